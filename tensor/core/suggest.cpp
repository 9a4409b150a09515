#include "tensor/core/suggest.hpp"

#include <algorithm>
#include <limits>

namespace skytape {
namespace {

/// Optimal string alignment distance: insert, delete, replace, swap two neighbours.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  size_t fewest = std::numeric_limits<size_t>::max();
  for (const std::string& candidate : candidates) {
    const size_t edits = edit_distance(name, candidate);
    if (edits < fewest) fewest = edits, best = candidate;
  }
  return fewest <= std::max<size_t>(2, name.size() / 3) ? best : std::string();
}

std::string unknown_name(std::string_view kind, std::string_view name,
                         const std::vector<std::string>& candidates) {
  std::string text = "unknown ";
  text.append(kind).append(" '").append(name).append("' (");
  const std::string near = nearest(name, candidates);
  if (!near.empty()) text += "did you mean '" + near + "'? ";
  text += "known: " + listed(candidates);
  return text + ")";
}

std::string listed(std::span<const std::string> names, std::string_view between) {
  std::string text;
  for (const std::string& name : names) {
    if (&name != &names.front()) text += between;
    text += name;
  }
  return text;
}

}  // namespace skytape
