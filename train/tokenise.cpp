#include "train/tokenise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "data/listops.hpp"
#include "tensor/error.hpp"

namespace skytape::train {
namespace {

std::vector<std::int32_t> listops_ids(std::string_view line, const std::string& place) {
  std::vector<std::uint8_t> tokens;
  const std::string_view unknown = data::parse_listops(line.substr(0, line.find('\t')), tokens);
  if (!unknown.empty()) throw DataError(fmt::format("{}: unknown token '{}'", place, unknown));
  return {tokens.begin(), tokens.end()};
}

std::vector<std::int32_t> byte_ids(std::string_view text, int offset) {
  std::vector<std::int32_t> ids;
  for (const char byte : text) ids.push_back(static_cast<std::uint8_t>(byte) + offset);
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
      throw DataError(fmt::format("{}: expected grey values 0..255, got '{}'", place,
                                  std::string_view(at, std::min<std::ptrdiff_t>(end - at, 12))));
    }
    ids.push_back(value);
    at = stop;
  }
  return ids;
}

}  // namespace

Tokens tokenise(const data::TaskInfo& task, std::string_view line, const std::string& place) {
  Tokens tokens;
  if (task.name == "listops") {
    tokens = {listops_ids(line, place)};
  } else if (task.token_offset == 0) {
    tokens = {pixel_ids(line, place)};
  } else if (task.towers == 1) {
    tokens = {byte_ids(line, task.token_offset)};
  } else {
    const std::size_t tab = line.find('\t');
    if (tab == line.npos)
      throw DataError(fmt::format("{}: expected two documents with a tab between", place));
    tokens = {byte_ids(line.substr(0, tab), task.token_offset),
              byte_ids(line.substr(tab + 1), task.token_offset)};
  }
  for (const std::vector<std::int32_t>& tower : tokens) {
    if (tower.empty()) throw DataError(fmt::format("{}: an empty example", place));
  }
  return tokens;
}

data::Batch pad(const std::vector<Tokens>& examples, const data::BatchOptions& options) {
  data::Batch batch;
  batch.size = static_cast<std::int64_t>(examples.size());
  batch.width = batch.nominal_length = options.nominal_length;
  batch.towers = static_cast<int>(examples.at(0).size());
  const std::int64_t most = options.max_length > 0 ? options.max_length : options.nominal_length;
  batch.labels.assign(examples.size(), 0);
  for (std::size_t t = 0; t < static_cast<std::size_t>(batch.towers); ++t) {
    const auto cells = static_cast<std::size_t>(batch.size * batch.width);
    batch.ids[t].assign(cells, 0);
    batch.mask[t].assign(cells, 0);
    for (std::size_t b = 0; b < examples.size(); ++b) {
      std::int64_t length = 0;
      std::int32_t ones = 0;
      for (const std::int32_t id : examples[b][t]) {
        if (id == options.drop_token || length == most) continue;
        const auto cell =
            b * static_cast<std::size_t>(batch.width) + static_cast<std::size_t>(length);
        const bool readable = options.mask == data::MaskRule::length || id != 0;
        batch.ids[t][cell] = id;
        batch.mask[t][cell] = readable ? 1 : 0;
        ones += readable ? 1 : 0;
        ++length;
      }
      batch.lengths[t].push_back(static_cast<std::int32_t>(length));
      batch.unmasked[t].push_back(ones);
      batch.real_tokens += ones;
    }
  }
  return batch;
}

}  // namespace skytape::train
