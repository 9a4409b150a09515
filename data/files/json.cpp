#include "data/files/json.hpp"

#include <nlohmann/json.hpp>

namespace skytape::data {

nlohmann::json parse_json(std::string_view text) { return nlohmann::json::parse(text); }

nlohmann::json try_parse_json(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, false);
}

std::string problem_of(const std::exception& error) {
  const std::string_view text = error.what();
  const std::size_t mark = text.starts_with("[json.exception.") ? text.find("] ") : text.npos;
  return std::string(mark == text.npos ? text : text.substr(mark + 2));
}

std::string json_text(const nlohmann::json& value, int indent) { return value.dump(indent); }

}  // namespace skytape::data
