// The tokens of a text and their numbers: the interface of all tokenisers but bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/json_fwd.hpp"

namespace skytape::data {

class Vocabulary {
 public:
  Vocabulary() = default;
  virtual ~Vocabulary() = default;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  /// Returns the kind's name in --tokens.
  [[nodiscard]] virtual std::string_view kind() const = 0;
  /// Tokens are the numbers 0..size()-1. In a prepared set they are stored as they are; ids are one
  /// more, so that 0 stays free for padding.
  [[nodiscard]] virtual std::int64_t size() const = 0;
  /// DataError naming `place` where the text has none of the tokens' form: no UTF-8, no integers.
  [[nodiscard]] virtual std::vector<std::int32_t> encode(std::string_view text,
                                                         const std::string& place) const = 0;
  /// Returns a token's text for readers.
  [[nodiscard]] virtual std::string entry(std::int32_t token) const = 0;
  /// Returns the tokens that a model reads, as a text.
  [[nodiscard]] virtual std::string text_of(std::span<const std::int32_t> tokens) const = 0;
  /// The token that stands between two texts of a corpus; -1: there is none.
  [[nodiscard]] virtual std::int32_t end_of_text() const { return -1; }
  /// Writes "vocabulary", the entries in their order, and what else vocabulary_in needs.
  virtual void put(Json& provenance) const = 0;

  /// Rows of an embedding: padding, the tokens, and one for hidden tokens.
  [[nodiscard]] std::int64_t rows() const { return mask_id() + 1; }
  [[nodiscard]] std::int64_t mask_id() const { return size() + 1; }
};

/// The tokens of a text or, where `second` is not empty, of a pair as one sequence: the tokens of
/// the first text, what ends a text, those of the second.
[[nodiscard]] std::vector<std::int32_t> encode_pair(const Vocabulary& vocabulary,
                                                    std::string_view first, std::string_view second,
                                                    const std::string& place);

/// Most tokens of a vocabulary whose texts are to be stored: two bytes hold each of them.
inline constexpr std::int64_t kMostStored = 65'536;

/// The value of --tokens: a kind, and the path of its files.
struct TokenChoice {
  std::string kind;
  std::filesystem::path from;  // of bytes, words and integers: empty
};

/// "bytes", "words", "integers", "sentencepiece:FILE", "wordpiece:FILE", "bpe:FOLDER" or
/// "unigram:FILE"; UsageError that lists them for anything else.
[[nodiscard]] TokenChoice parse_token_choice(const std::string& text);

/// Reads the vocabulary of a choice that has files. DataError naming the file and what is wrong.
[[nodiscard]] std::shared_ptr<const Vocabulary> read_vocabulary(const TokenChoice& choice);

/// A vocabulary as the provenance of a set holds it: {"tokens": "words", "vocabulary": […]}.
void put_vocabulary(const Vocabulary& vocabulary, Json& provenance);
/// Returns whether there is one, and the vocabulary itself. DataError if it is broken.
[[nodiscard]] bool has_vocabulary(const Json& provenance);
[[nodiscard]] std::shared_ptr<const Vocabulary> vocabulary_in(const Json& provenance);
/// "words as tokens: 20 different ones, …": takes the vocabulary out of the provenance, which is
/// then short enough to be shown. Nothing where there is none.
[[nodiscard]] std::string take_vocabulary(Json& provenance);

}  // namespace skytape::data
