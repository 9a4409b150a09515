// Words and integers as tokens: they get their numbers from the training split, the most frequent
// ones first.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenisers/vocabulary.hpp"

namespace skytape::data {

enum class TokenUnit { words, integers };

/// "words" or "integers"; find_token_unit has nothing for any other name.
[[nodiscard]] std::string_view to_string(TokenUnit unit);
[[nodiscard]] std::optional<TokenUnit> find_token_unit(std::string_view name);

/// The words of a text, ASCII letters made small: a word is a run of letters, digits and characters
/// beyond ASCII; any other character that is no blank is a separate word. Or its integers, apart
/// by blanks or commas: DataError naming `place` for anything else.
[[nodiscard]] std::vector<std::string> units_of(TokenUnit unit, std::string_view text,
                                                const std::string& place);

/// Token 0 is what the vocabulary does not hold, token k its k-th entry.
class UnitVocabulary final : public Vocabulary {
 public:
  static constexpr std::size_t kMost = 65'000;  // entries

  UnitVocabulary(TokenUnit unit, std::vector<std::string> entries);

  [[nodiscard]] const std::vector<std::string>& entries() const { return entries_; }

  [[nodiscard]] std::string_view kind() const override { return to_string(unit_); }
  [[nodiscard]] std::int64_t size() const override {
    return static_cast<std::int64_t>(entries_.size()) + 1;
  }
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text,
                                                 const std::string& place) const override;
  /// "<unknown>" for 0.
  [[nodiscard]] std::string entry(std::int32_t token) const override;
  [[nodiscard]] std::string text_of(std::span<const std::int32_t> tokens) const override;
  void put(Json& provenance) const override;

 private:
  TokenUnit unit_;
  std::vector<std::string> entries_;
  std::unordered_map<std::string, std::int32_t> tokens_;
};

/// The vocabulary of training texts: the most frequent units first. A word must occur twice, so
/// that the unknown occurs in training too; integers need not.
[[nodiscard]] std::shared_ptr<const UnitVocabulary> vocabulary_of(
    TokenUnit unit, const std::vector<std::string>& texts);

}  // namespace skytape::data
