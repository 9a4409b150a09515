// What a token of the user's own texts is: a byte, a word, or an integer. Words and integers get
// their ids from a vocabulary, which is made from the training split, kept in the prepared set and
// in every run on it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/files/json.hpp"

namespace skytape::data {

enum class TokenUnit { bytes, words, integers };

/// "bytes", "words" or "integers"; parse_token_unit throws UsageError for any other name.
[[nodiscard]] std::string_view to_string(TokenUnit unit);
[[nodiscard]] TokenUnit parse_token_unit(std::string_view name);

/// The words of a text, ASCII letters made small: a word is a run of letters, digits and characters
/// beyond ASCII; any other character that is no blank is a word of its own. Or its integers, apart
/// by blanks or commas: DataError naming `place` for anything else.
[[nodiscard]] std::vector<std::string> units_of(TokenUnit unit, std::string_view text,
                                                const std::string& place);

/// Words or integers with their numbers. Stored tokens: 0 what the vocabulary does not hold, k its
/// k-th entry. Ids are one more, so that 0 stays free for padding.
class Vocabulary {
 public:
  /// Most entries: tokens are stored in two bytes.
  static constexpr std::size_t kMost = 65'000;

  Vocabulary(TokenUnit unit, std::vector<std::string> entries);

  [[nodiscard]] TokenUnit unit() const { return unit_; }
  [[nodiscard]] const std::vector<std::string>& entries() const { return entries_; }

  /// Rows of an embedding: padding, the unknown, the entries, and one for hidden tokens.
  [[nodiscard]] std::int64_t rows() const { return mask_id() + 1; }
  [[nodiscard]] std::int64_t mask_id() const {
    return static_cast<std::int64_t>(entries_.size()) + 2;
  }

  /// Stored tokens of a text. DataError as units_of.
  [[nodiscard]] std::vector<std::uint16_t> encode(std::string_view text,
                                                  const std::string& place) const;
  /// The entry of a stored token; "<unknown>" for 0.
  [[nodiscard]] std::string_view entry(std::uint16_t token) const;

 private:
  TokenUnit unit_;
  std::vector<std::string> entries_;
  std::unordered_map<std::string, std::uint16_t> tokens_;
};

/// The vocabulary of training texts: the most frequent units first. A word must occur twice, so
/// that the unknown occurs in training too; integers need not.
[[nodiscard]] Vocabulary vocabulary_of(TokenUnit unit, const std::vector<std::string>& texts);

/// A vocabulary as the provenance of a set holds it: {"tokens": "words", "vocabulary": […]}.
void put_vocabulary(const Vocabulary& vocabulary, Json& provenance);
/// Whether there is one, and the vocabulary itself. DataError if it is broken.
[[nodiscard]] bool has_vocabulary(const Json& provenance);
[[nodiscard]] Vocabulary vocabulary_in(const Json& provenance);

}  // namespace skytape::data
