// JSON that a file holds: what is broken in it, or of another kind than we read, is said with the
// file's name.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "data/files/json.hpp"

namespace skytape::train {

/// The object that `text` stands for. DataError naming `file`, the line and what is wrong there.
[[nodiscard]] data::Json json_object_in(std::string_view text, const std::string& file);

enum class JsonKind { text, number, share, natural, flag, list, texts, object, maybe_object };

/// The kind that a part of a file must have, where it is there: {"data.train.examples",
/// JsonKind::natural}.
struct JsonPart {
  const char* path;
  JsonKind kind;
};

/// DataError naming `file`, the first part that is of another kind, what was expected and what
/// came.
void check_parts(const data::Json& value, std::span<const JsonPart> parts, const std::string& file);

/// Refuses a part in the same words.
[[noreturn]] void refuse_json_part(const std::string& file, const std::string& path,
                                   const std::string& expected, const data::Json& got);

}  // namespace skytape::train
