#include "data/tokenisers/files.hpp"

#include <fmt/format.h>

#include "data/files/source.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

constexpr std::size_t kLargestConfig = 16 << 20;  // bytes; some list thousands of added tokens

}  // namespace

Json read_json_file(const std::filesystem::path& path, std::size_t most_bytes) {
  const auto stream = open_file(path);
  const std::vector<std::uint8_t> bytes = read_all(*stream, path.string(), most_bytes);
  try {
    return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } catch (const JsonError& error) {
    throw DataError(fmt::format("{}: not readable JSON: {}", path.string(), error.what()));
  }
}

TokeniserConfig::TokeniserConfig(const std::filesystem::path& folder)
    : path_(folder / "tokenizer_config.json"), config_(Json::object()) {
  if (std::filesystem::exists(path_)) config_ = read_json_file(path_, kLargestConfig);
  if (!config_.is_object()) {
    throw DataError(fmt::format("{}: expected a JSON object", path_.string()));
  }
}

bool TokeniserConfig::flag(std::string_view key, bool otherwise) const {
  const Json* const value = config_.find(key);
  if (value == nullptr || value->is_null()) return otherwise;
  if (!value->is_boolean()) {
    throw DataError(fmt::format("{}: {}: expected true or false, got {}", path_.string(), key,
                                printable(json_text(*value, {.mend = true}))));
  }
  return value->get<bool>();
}

}  // namespace skytape::data
