#include "data/files/json.hpp"

#include <nlohmann/json.hpp>

namespace skytape::data {

nlohmann::json parse_json(std::string_view text) { return nlohmann::json::parse(text); }

nlohmann::json try_parse_json(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, false);
}

std::string json_text(const nlohmann::json& value, int indent) { return value.dump(indent); }

}  // namespace skytape::data
