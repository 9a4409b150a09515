#include "data/files/json.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "data/files/printable.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

constexpr std::size_t kDeepest = 500;  // levels: what walks through a value calls itself

[[noreturn]] void refuse(const std::string& what) {
  throw nlohmann::json::other_error::create(599, what, nullptr);
}

/// Builds a value from the parser's events. The library's own builder with a callback walks through
/// the whole parent for each object that ends, which takes quadratic time.
class Builder {
 public:
  [[nodiscard]] Json take() { return std::move(whole_); }

  // The parser's events; true: it goes on.
  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(Json::number_integer_t value) { return put(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return put(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(Json::binary_t& value) { return put(std::move(value)); }
  bool start_object(std::size_t) { return put(Json::object(), true); }
  bool start_array(std::size_t) { return put(Json::array(), true); }
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool key(std::string& key) {
    const auto [member, is_new] =
        open_.back()->get_ref<Json::object_t&>().try_emplace(key, nullptr);
    if (!is_new) refuse("key '" + key + "' appears twice in an object");
    member_ = &member->second;
    return true;
  }
  template <class Problem>
  bool parse_error(std::size_t, const std::string&, const Problem& problem) {
    throw problem;
  }

 private:
  /// `opens`: the values that follow are inside this one.
  bool put(Json value, bool opens = false) {
    if (open_.size() > kDeepest) {
      refuse("nested deeper than " + std::to_string(kDeepest) + " levels");
    }
    Json* place = &whole_;
    if (!open_.empty() && open_.back()->is_object()) {
      place = member_;
    } else if (!open_.empty()) {
      place = &open_.back()->get_ref<Json::array_t&>().emplace_back();
    }
    *place = std::move(value);
    if (opens) open_.push_back(place);
    return true;
  }
  bool end() {
    open_.pop_back();
    return true;
  }

  Json whole_;
  std::vector<Json*> open_;  // the objects and arrays around a place
  Json* member_ = nullptr;   // of the innermost object: the one whose value comes next
};

}  // namespace

std::string problem_of(const std::exception& error) {
  const std::string text = error.what();  // "[json.exception.parse_error.101] …"
  return text.starts_with("[json.exception") ? text.substr(text.find("] ") + 2) : text;
}

void refuse_part(const std::string& file, const std::string& part, const std::string& expected,
                 const Json& got) {
  throw DataError(fmt::format("{}: {}: expected {}, which is all that is supported, got {}", file,
                              part, expected, printable(json_text(got), 200)));
}

Json parse_json(std::string_view text) {
  // The library takes it for the end, and would drop what follows.
  if (const std::size_t at = text.find('\0'); at != text.npos) {
    refuse("byte " + std::to_string(at + 1) + " is NUL, which no JSON has");
  }
  Builder builder;
  Json::sax_parse(text, &builder);
  return builder.take();
}

Json try_parse_json(std::string_view text) {
  try {
    return parse_json(text);
  } catch (const JsonError&) {
    return {};
  }
}

std::string json_text(const Json& value, JsonFormat format) {
  return value.dump(format.indent, ' ', format.ascii, Json::error_handler_t::replace);
}

const Json& member(const Json& value, std::string_view key) {
  static const Json kNull;
  const auto found = value.find(key);
  return found == value.end() ? kNull : *found;
}

}  // namespace skytape::data
