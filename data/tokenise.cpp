#include "data/tokenise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "data/batches.hpp"
#include "data/files/printable.hpp"
#include "data/tokenisers/vocabulary.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

std::vector<std::int32_t> symbol_ids(const TaskInfo& task, std::string_view line,
                                     const std::string& place) {
  std::vector<std::uint8_t> tokens;
  const std::string_view unknown = task.parse(line, tokens);
  if (!unknown.empty()) {
    throw DataError(
        fmt::format("{}: unknown token '{}', expected {}", place, printable(unknown), task.spelt));
  }
  std::vector<std::int32_t> ids(tokens.begin(), tokens.end());
  for (std::int32_t& id : ids) id += task.token_offset;
  return ids;
}

std::vector<std::int32_t> byte_ids(std::string text, std::size_t between, int offset) {
  if (between != text.npos) mark_end(text, between);
  std::vector<std::int32_t> ids;
  for (const char byte : text) ids.push_back(static_cast<std::uint8_t>(byte) + offset);
  return ids;
}

/// `tab`: where the second text of a pair begins behind it; npos: there is one text.
std::vector<std::int32_t> vocabulary_ids(const Vocabulary& vocabulary, std::string_view text,
                                         std::size_t tab, int offset, const std::string& place) {
  const std::string_view second = tab == text.npos ? "" : text.substr(tab + 1);
  std::vector<std::int32_t> ids = encode_pair(vocabulary, text.substr(0, tab), second, place);
  for (std::int32_t& id : ids) id += offset;
  return ids;
}

std::vector<std::int32_t> pixel_ids(std::string_view line, const std::string& place) {
  std::vector<std::int32_t> ids;
  const char* at = line.data();
  const char* const end = at + line.size();
  while (at != end) {
    if (*at == ' ' || *at == '\t') {
      ++at;
      continue;
    }
    std::int32_t value = -1;
    const auto [stop, error] = std::from_chars(at, end, value);
    if (error != std::errc{} || value < 0 || value > 255) {
      throw DataError(fmt::format("{}: expected intensities 0..255, got '{}'", place,
                                  std::string_view(at, std::min<std::ptrdiff_t>(end - at, 12))));
    }
    ids.push_back(value);
    at = stop;
  }
  return ids;
}

/// The ids of a sequence that a batch shows.
std::vector<std::int32_t> shown_ids(const std::vector<std::int32_t>& tokens,
                                    const BatchOptions& options) {
  const std::int64_t before = options.places_before(), most = before + options.most_tokens();
  std::vector<std::int32_t> ids(static_cast<std::size_t>(before), options.first_token);
  for (const std::int32_t id : tokens) {
    if (std::ssize(ids) == most) break;
    if (id != options.drop_token) ids.push_back(id);
  }
  return ids;
}

}  // namespace

Tokens tokenise(const TaskInfo& task, const Vocabulary* vocabulary, std::string_view line,
                const std::string& place, bool pairs, std::size_t between) {
  if (pairs && between == line.npos) between = line.find('\t');
  if (pairs && (between == line.npos || between == 0 || between + 1 >= line.size())) {
    throw DataError(fmt::format("{}: expected two texts with a tab between", place));
  }
  const auto ids = [&](std::string_view text) {
    if (vocabulary != nullptr) {
      return vocabulary_ids(*vocabulary, text, between, task.token_offset, place);
    }
    switch (task.tokens) {
      case TokenKind::symbols:
        return symbol_ids(task, text, place);
      case TokenKind::bytes:
        return byte_ids(std::string(text), pairs ? between : text.npos, task.token_offset);
      case TokenKind::pixels:
        return pixel_ids(text, place);
    }
    return std::vector<std::int32_t>();
  };
  Tokens tokens;
  if (task.sequences == 1) {
    tokens = {ids(line)};
  } else {
    const std::size_t tab = line.find('\t');
    if (tab == line.npos)
      throw DataError(fmt::format("{}: expected two documents with a tab between", place));
    tokens = {ids(line.substr(0, tab)), ids(line.substr(tab + 1))};
  }
  for (const std::vector<std::int32_t>& sequence : tokens) {
    if (sequence.empty()) throw DataError(fmt::format("{}: an empty example", place));
  }
  return tokens;
}

LabelledText split_label(const TaskInfo& task, std::string_view line) {
  const std::size_t tab = line.find('\t');
  const bool pair = task.sequences == 2;
  const bool labelled = task.tokens != TokenKind::pixels && tab != line.npos &&
                        (!pair || line.find('\t', tab + 1) != line.npos);
  if (!labelled) return {"", std::string(line)};
  const std::string front(line.substr(0, tab)), back(line.substr(tab + 1));
  if (task.tokens == TokenKind::symbols) return {back, front};
  return {front, back};
}

void mark_end(std::string& text, std::size_t first) {
  std::replace(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(first), '\t', ' ');
}

Batch pad(const std::vector<Tokens>& examples, const BatchOptions& options) {
  Batch batch;
  batch.size = static_cast<std::int64_t>(examples.size());
  batch.round_to = options.trim ? options.round_to : 0;
  batch.width = batch.widest = batch.nominal_length = options.nominal_length;
  batch.sequences = static_cast<int>(examples.at(0).size());
  batch.labels.assign(examples.size(), 0);
  std::vector<Tokens> shown(examples.size());
  std::size_t longest = 1;
  for (std::size_t b = 0; b < examples.size(); ++b) {
    for (const std::vector<std::int32_t>& tokens : examples[b]) {
      shown[b].push_back(shown_ids(tokens, options));
      longest = std::max(longest, shown[b].back().size());
    }
  }
  batch.width = batch.trimmed(static_cast<std::int64_t>(longest));
  const auto width = static_cast<std::size_t>(batch.width);
  for (std::size_t t = 0; t < static_cast<std::size_t>(batch.sequences); ++t) {
    batch.ids[t].assign(examples.size() * width, 0);
    batch.mask[t].assign(examples.size() * width, 0);
    for (std::size_t b = 0; b < examples.size(); ++b) {
      const std::vector<std::int32_t>& ids = shown[b][t];
      std::copy(ids.begin(), ids.end(), batch.ids[t].data() + b * width);
      const auto length = static_cast<std::int32_t>(ids.size());
      const std::int32_t ones =
          fill_mask(options.mask, length, ids.data(), batch.mask[t].data() + b * width);
      batch.lengths[t].push_back(length);
      batch.unmasked[t].push_back(ones);
      batch.real_tokens += ones - options.places_before();
    }
  }
  return batch;
}

}  // namespace skytape::data
