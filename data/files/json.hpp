// JSON by nlohmann/json, and what it leaves open: objects with a key twice, depth, members that may
// be missing.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace skytape::data {
/// [] of a const value, asked for a member that it lacks, is an error and not undefined.
inline void require_json(bool condition) {
  if (!condition) throw std::logic_error("JSON: [] asked for a member that is not there");
}
}  // namespace skytape::data
#define JSON_ASSERT(condition) skytape::data::require_json(condition)
#define JSON_USE_IMPLICIT_CONVERSIONS 0
#include <nlohmann/json.hpp>

namespace skytape::data {

using Json = nlohmann::json;
using JsonError = Json::exception;

/// Returns the problem without the library's prefix: "key 'steps' not found".
[[nodiscard]] std::string problem_of(const std::exception& error);

/// Refuses a part of a file that we cannot take: "a.json: normalizer: expected BertNormalizer, …".
[[noreturn]] void refuse_part(const std::string& file, const std::string& part,
                              const std::string& expected, const Json& got);

/// The format of written text: on one line, or with so many blanks per level.
struct JsonFormat {
  int indent = -1;
  bool ascii = false;  // all other characters as \uXXXX
};

/// The value that `text` stands for. JsonError if it is broken, or a key appears twice in an
/// object: which of the two is meant, nobody knows.
[[nodiscard]] Json parse_json(std::string_view text);
/// The same, but null if it is broken.
[[nodiscard]] Json try_parse_json(std::string_view text);
/// Bytes that are no UTF-8, as a path may have, become U+FFFD.
[[nodiscard]] std::string json_text(const Json& value, JsonFormat format = {});

/// The member of that name; null where there is none, or `value` is no object.
[[nodiscard]] const Json& member(const Json& value, std::string_view key);
/// That of a member's member, and so on.
template <class... Keys> [[nodiscard]] const Json& member(const Json& value, std::string_view key,
                                                          std::string_view next,
                                                          const Keys&... more) {
  return member(member(value, key), next, more...);
}

}  // namespace skytape::data
