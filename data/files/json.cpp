#include "data/files/json.hpp"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "data/files/printable.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

constexpr int kDeepest = 500;  // levels: what walks through a value calls itself

[[noreturn]] void refuse(const std::string& what) {
  throw nlohmann::json::other_error::create(599, what, nullptr);
}

}  // namespace

std::string problem_of(const std::exception& error) {
  const std::string text = error.what();  // "[json.exception.parse_error.101] …"
  return text.starts_with("[json.exception") ? text.substr(text.find("] ") + 2) : text;
}

void refuse_part(const std::string& file, const std::string& part, const std::string& expected,
                 const Json& got) {
  throw DataError(fmt::format("{}: {}: expected {}, which is all that is supported, got {}", file,
                              part, expected, printable(json_text(got, {.mend = true}), 200)));
}

Json parse_json(std::string_view text) {
  std::vector<std::set<std::string>> keys;  // of the objects around a place
  return Json::parse(text, [&](int depth, Json::parse_event_t event, const Json& part) {
    using Event = Json::parse_event_t;
    if (depth > kDeepest) refuse("nested deeper than " + std::to_string(kDeepest) + " levels");
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(part.get<std::string>()).second) {
      refuse("key '" + part.get<std::string>() + "' appears twice in an object");
    }
    return true;
  });
}

Json try_parse_json(std::string_view text) {
  try {
    return parse_json(text);
  } catch (const JsonError&) {
    return {};
  }
}

std::string json_text(const Json& value, JsonFormat format) {
  using Broken = Json::error_handler_t;
  return value.dump(format.indent, ' ', format.ascii,
                    format.mend ? Broken::replace : Broken::strict);
}

const Json& member(const Json& value, std::string_view key) {
  static const Json kNull;
  const auto found = value.find(key);
  return found == value.end() ? kNull : *found;
}

}  // namespace skytape::data
