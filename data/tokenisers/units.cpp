#include "data/tokenisers/units.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "data/files/json.hpp"
#include "data/files/printable.hpp"
#include "data/files/source.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"

namespace skytape::data {
namespace {

constexpr std::string_view kUnknown = "<unknown>";  // one unit, and no entry

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80;
}

/// Passes the runs of characters for which `inside` holds to `take`.
template <class Inside, class Take>
void split_runs(std::string_view text, const Inside& inside, const Take& take) {
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && inside(text[end])) ++end;
    if (end > at) take(text.substr(at, end - at));
    at = std::max(end, at + 1);
  }
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  split_runs(
      text, [](char c) { return !is_blank(c); },
      [&](std::string_view run) {
        for (std::size_t at = 0; at < run.size();) {
          std::size_t end = at;
          while (end < run.size() && (is_letter(run[end]) || is_digit(run[end]))) ++end;
          end = std::max(end, at + 1);
          if (run.substr(at).starts_with(kUnknown)) end = at + kUnknown.size();
          std::string& word = words.emplace_back(run.substr(at, end - at));
          for (char& c : word) {
            if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
          }
          at = end;
        }
      });
  return words;
}

std::vector<std::string> integers_of(std::string_view text, const std::string& place) {
  std::vector<std::string> integers;
  split_runs(
      text, [](char c) { return !is_blank(c) && c != ','; },
      [&](std::string_view run) {
        if (run == kUnknown) {
          integers.emplace_back(run);
          return;
        }
        const auto value = number_in<std::int64_t>(run);
        if (!value) {
          throw DataError(fmt::format("{}: expected integers apart by blanks or commas, got '{}'",
                                      place, printable(run)));
        }
        integers.push_back(std::to_string(*value));
      });
  return integers;
}

}  // namespace

std::string_view to_string(TokenUnit unit) {
  return unit == TokenUnit::words ? "words" : "integers";
}

std::optional<TokenUnit> find_token_unit(std::string_view name) {
  for (const TokenUnit unit : {TokenUnit::words, TokenUnit::integers}) {
    if (name == to_string(unit)) return unit;
  }
  return std::nullopt;
}

std::vector<std::string> units_of(TokenUnit unit, std::string_view text, const std::string& place) {
  return unit == TokenUnit::words ? words_of(text) : integers_of(text, place);
}

UnitVocabulary::UnitVocabulary(TokenUnit unit, std::vector<std::string> entries)
    : unit_(unit), entries_(std::move(entries)) {
  ENSURE(entries_.size() <= kMost, "vocabulary: ", entries_.size(), " entries, expected at most ",
         kMost);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    tokens_.emplace(entries_[i], static_cast<std::int32_t>(i + 1));
  }
}

std::vector<std::int32_t> UnitVocabulary::encode(std::string_view text,
                                                 const std::string& place) const {
  std::vector<std::int32_t> tokens;
  for (const std::string& unit : units_of(unit_, text, place)) {
    const auto found = tokens_.find(unit);
    tokens.push_back(found == tokens_.end() ? 0 : found->second);
  }
  return tokens;
}

std::string UnitVocabulary::entry(std::int32_t token) const {
  if (token <= 0 || token >= size()) return std::string(kUnknown);
  return entries_[static_cast<std::size_t>(token - 1)];
}

std::string UnitVocabulary::text_of(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) text += (text.empty() ? "" : " ") + entry(token);
  return text;
}

void UnitVocabulary::put(Json& provenance) const { provenance["vocabulary"] = entries_; }

std::shared_ptr<const UnitVocabulary> vocabulary_of(TokenUnit unit,
                                                    const std::vector<std::string>& texts) {
  std::unordered_map<std::string, std::int64_t> counts;
  for (const std::string& text : texts) {
    for (const std::string& entry : units_of(unit, text, "training text")) ++counts[entry];
  }
  std::vector<std::pair<std::string, std::int64_t>> kept;
  const std::int64_t fewest = unit == TokenUnit::words ? 2 : 1;
  for (const auto& entry : counts) {
    if (entry.second >= fewest && entry.first != kUnknown) kept.push_back(entry);
  }
  std::sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  if (kept.size() > UnitVocabulary::kMost) kept.resize(UnitVocabulary::kMost);
  std::vector<std::string> entries;
  entries.reserve(kept.size());
  for (auto& [entry, count] : kept) entries.push_back(std::move(entry));
  return std::make_shared<UnitVocabulary>(unit, std::move(entries));
}

}  // namespace skytape::data
