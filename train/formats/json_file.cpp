#include "train/formats/json_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "data/files/printable.hpp"
#include "data/files/source.hpp"
#include "tensor/core/error.hpp"

namespace skytape::train {
namespace {

using data::Json;

struct KindInfo {
  const char* name;
  bool (*fits)(const Json&);
};

bool is_natural(const Json& j) {
  return j.is_number_unsigned() || (j.is_number_integer() && j.get<std::int64_t>() >= 0);
}
bool are_texts(const Json& j) {
  return j.is_array() &&
         std::all_of(j.begin(), j.end(), [](const Json& part) { return part.is_string(); });
}

constexpr KindInfo kKinds[] = {
    {"a text", [](const Json& j) { return j.is_string(); }},
    {"a number", [](const Json& j) { return j.is_number(); }},
    {"a share in 0..1",
     [](const Json& j) { return j.is_number() && j.get<double>() >= 0 && j.get<double>() <= 1; }},
    {"a natural number", is_natural},
    {"true or false", [](const Json& j) { return j.is_boolean(); }},
    {"a list", [](const Json& j) { return j.is_array(); }},
    {"a list of texts", are_texts},
    {"an object", [](const Json& j) { return j.is_object(); }},
    {"an object or null", [](const Json& j) { return j.is_object() || j.is_null(); }},
};

/// The part of that path, names with dots between; nullptr: it is not there.
const Json* find_part(const Json& value, std::string_view path) {
  const Json* part = &value;
  for (const std::string_view name : data::split(path, '.')) {
    const auto found = part->find(name);
    if (found == part->end()) return nullptr;
    part = &*found;
  }
  return part;
}

}  // namespace

Json json_object_in(std::string_view text, const std::string& file) {
  const auto refuse = [&](const std::string& what) {
    throw DataError(fmt::format("{}: not a JSON object{}", file, what));
  };
  Json value;
  try {
    value = data::parse_json(text);
  } catch (const data::JsonError& broken) {
    const std::string problem = data::printable(data::problem_of(broken), 300);
    // Python writes them, and few others read them.
    const bool no_number = problem.ends_with("N'") || problem.ends_with("I'");
    refuse(": " + problem + (no_number ? "; NaN and Infinity are no numbers of JSON" : ""));
  }
  if (!value.is_object()) refuse("");
  return value;
}

void check_parts(const Json& value, std::span<const JsonPart> parts, const std::string& file) {
  for (const JsonPart& part : parts) {
    const Json* const found = find_part(value, part.path);
    const KindInfo& kind = kKinds[static_cast<int>(part.kind)];
    if (found != nullptr && !kind.fits(*found)) {
      refuse_json_part(file, part.path, kind.name, *found);
    }
  }
}

void refuse_json_part(const std::string& file, const std::string& path, const std::string& expected,
                      const Json& got) {
  throw DataError(fmt::format("{}: {}: expected {}, got {}", file, path, expected,
                              data::printable(data::json_text(got), 100)));
}

}  // namespace skytape::train
