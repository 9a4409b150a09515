#include "data/files/columns.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "data/files/json.hpp"
#include "tensor/core/suggest.hpp"

namespace skytape::data {
namespace {

// The first of them that a file has counts.
constexpr std::string_view kLabels[] = {"label",        "labels", "gold_label", "class",
                                        "category",     "target", "sentiment",  "quality",
                                        "is_duplicate", "rating", "stars"};
constexpr std::string_view kTexts[] = {"text",    "sentence", "review", "content", "document",
                                       "comment", "message",  "tweet",  "body"};
constexpr std::pair<std::string_view, std::string_view> kPairs[] = {
    {"text", "text2"},          {"text1", "text2"},         {"text_a", "text_b"},
    {"sentence1", "sentence2"}, {"question1", "question2"}, {"#1 string", "#2 string"},
    {"premise", "hypothesis"},  {"question", "sentence"},   {"query", "passage"}};

/// ASCII letters made small, without blanks at the ends.
std::string plain(std::string_view name) {
  const std::size_t begin = std::min(name.find_first_not_of(" \t"), name.size());
  std::string small(name.substr(begin, name.find_last_not_of(" \t") + 1 - begin));
  for (char& c : small) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return small;
}

/// A column's number from 1 as an index; nothing if it is a name.
std::optional<std::size_t> index_in(std::string_view name) {
  const auto number = number_in<std::size_t>(name);
  if (!number || *number == 0) return std::nullopt;
  return *number - 1;
}

using Names = std::vector<std::string>;

std::optional<std::size_t> place_of(const Names& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

/// A column that the user named: by its very name before its number.
std::optional<std::size_t> wanted_place(const Names& names, const std::string& name) {
  if (const auto found = place_of(names, name)) return found;
  const auto number = index_in(name);
  return number && *number < names.size() ? number : std::nullopt;
}

template <class List> std::optional<std::size_t> first_of(const Names& names, const List& list) {
  for (const std::string_view name : list) {
    if (const auto found = place_of(names, name)) return found;
  }
  return std::nullopt;
}

}  // namespace

bool ColumnNames::need_header() const {
  const auto named = [](const std::string& name) { return !name.empty() && !index_in(name); };
  return named(label) || named(text) || named(second);
}

ColumnNames columns_in(const Json& provenance) {
  const Json& sources = member(provenance, "sources");
  if (!sources.is_array() || sources.empty()) return {};
  const Json& columns = member(sources[0], "columns");
  if (!columns.is_object()) return {};
  return {columns.value("label", ""), columns.value("text", ""), columns.value("text2", "")};
}

Columns find_columns(const Names& names, const ColumnNames& wanted, bool pairs) {
  Names known;
  for (const std::string& name : names) known.push_back(plain(name));
  Columns columns;
  columns.label =
      wanted.label.empty() ? first_of(known, kLabels) : wanted_place(names, wanted.label);
  if (!wanted.second.empty()) columns.second = wanted_place(names, wanted.second);
  if (!wanted.text.empty()) {
    columns.text = wanted_place(names, wanted.text);
    return columns;
  }
  for (const auto& [first, second] : kPairs) {
    const auto a = place_of(known, first), b = place_of(known, second);
    if (!pairs || !a || !b) continue;
    columns.text = a;
    if (wanted.second.empty()) columns.second = b;
    return columns;
  }
  columns.text = first_of(known, kTexts);
  return columns;
}

bool is_header(const Names& fields, const ColumnNames& wanted, bool need_label, bool pairs) {
  const Columns columns = find_columns(fields, wanted, pairs);
  const bool enough = columns.label || (!need_label && !wanted.text.empty());
  return enough && columns.text && columns.label != columns.text;
}

}  // namespace skytape::data
