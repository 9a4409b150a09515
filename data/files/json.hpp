// JSON text and the values it stands for. The parser and the printer are templates that take a
// second to compile wherever they are called: here they are compiled once.
#pragma once

#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace skytape::data {

/// The value that `text` stands for. nlohmann::json::exception if it is broken.
[[nodiscard]] nlohmann::json parse_json(std::string_view text);
/// The same, but a discarded value (no object, no array) if it is broken.
[[nodiscard]] nlohmann::json try_parse_json(std::string_view text);
/// What an exception says, without the parser's own marks: "key 'steps' not found".
[[nodiscard]] std::string problem_of(const std::exception& error);
/// Text of a value: one line, or with so many blanks per level.
[[nodiscard]] std::string json_text(const nlohmann::json& value, int indent = -1);

}  // namespace skytape::data
