#include "data/files/json.hpp"

#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <variant>

namespace skytape::data {
namespace {

constexpr int kDeepest = 500;  // levels: what walks through a value calls itself

/// What nlohmann's exception says, without its mark: "[json.exception.parse_error.101] ".
JsonError error_of(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  const std::size_t mark = text.find("] ");
  return JsonError(mark == text.npos ? text : text.substr(mark + 2));
}

}  // namespace

// ---- the value ---------------------------------------------------------------------------------

struct Json::Value {
  // Whole numbers from 0 on are unsigned, so that one number has one form.
  std::variant<bool, unsigned long, long, double, std::string, Array, Object> held;

  static nlohmann::json printable(const Json& json);
};

Json::Json(std::nullptr_t) {}
Json::Json(bool value) : value_(new Value{value}) {}
Json::Json(int number) : Json(static_cast<long>(number)) {}
Json::Json(unsigned number) : Json(static_cast<unsigned long>(number)) {}
Json::Json(long number) : value_(new Value{number}) {
  if (number >= 0) value_->held = static_cast<unsigned long>(number);
}
Json::Json(unsigned long number) : value_(new Value{number}) {}
Json::Json(double number) : value_(new Value{number}) {}
Json::Json(const char* text) : Json(std::string(text)) {}
Json::Json(std::string_view text) : Json(std::string(text)) {}
Json::Json(std::string text) : value_(new Value{std::move(text)}) {}
Json::Json(std::initializer_list<Member> members) : Json(object()) {
  for (const Member& member : members) (*this)[member.key] = member.value;
}

Json Json::array(std::initializer_list<Json> values) {
  Json made;
  made.value_ = std::make_unique<Value>(Value{Array(values)});
  return made;
}

Json Json::object() {
  Json made;
  made.value_ = std::make_unique<Value>(Value{Object()});
  return made;
}

Json::Json(const Json& other)
    : value_(other.value_ ? std::make_unique<Value>(*other.value_) : nullptr) {}
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) { return *this = Json(other); }
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

template <class T> const T* Json::as() const {
  return value_ ? std::get_if<T>(&value_->held) : nullptr;
}

/// The array or object that it is, or becomes if it is null.
template <class T> T& Json::become() {
  if (!value_) value_ = std::make_unique<Value>(Value{T()});
  if (T* held = std::get_if<T>(&value_->held)) return *held;
  refuse(std::is_same_v<T, Array> ? "type must be array, but is " : "type must be object, but is ");
}

void Json::refuse(const char* what) const {
  constexpr const char* kKinds[] = {"boolean", "number", "number", "number",
                                    "string",  "array",  "object"};
  throw JsonError(what + std::string(value_ ? kKinds[value_->held.index()] : "null"));
}

bool Json::is_boolean() const { return as<bool>() != nullptr; }
bool Json::is_number() const { return is_natural() || as<long>() || as<double>(); }
bool Json::is_natural() const { return as<unsigned long>() != nullptr; }
bool Json::is_string() const { return as<std::string>() != nullptr; }
bool Json::is_array() const { return as<Json::Array>() != nullptr; }
bool Json::is_object() const { return as<Json::Object>() != nullptr; }

bool operator==(const Json& a, const Json& b) {
  if (!a.value_ || !b.value_) return a.value_ == b.value_;
  if (a.value_->held.index() != b.value_->held.index() && a.is_number() && b.is_number()) {
    return a.get<double>() == b.get<double>();
  }
  return a.value_->held == b.value_->held;
}

template <class T> T Json::get() const {
  if constexpr (std::is_same_v<T, bool>) {
    if (const bool* value = as<bool>()) return *value;
    refuse("type must be boolean, but is ");
  } else if constexpr (std::is_arithmetic_v<T>) {
    if (const auto* natural = as<unsigned long>()) return static_cast<T>(*natural);
    if (const auto* negative = as<long>()) return static_cast<T>(*negative);
    if (const auto* real = as<double>()) return static_cast<T>(*real);
    refuse("type must be number, but is ");
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (const std::string* text = as<std::string>()) return *text;
    refuse("type must be string, but is ");
  } else if constexpr (std::is_same_v<T, std::map<std::string, std::string>>) {
    if (!is_object()) refuse("type must be object, but is ");
    T members;
    for (const Object::value_type& member : items()) {
      members[member.first] = member.second.get<std::string>();
    }
    return members;
  } else {
    if (!is_array()) refuse("type must be array, but is ");
    T elements;
    for (const Json& element : *this) elements.push_back(element.get<typename T::value_type>());
    return elements;
  }
}

template <class T> T Json::value(std::string_view key, T otherwise) const {
  if (!is_object()) refuse("cannot use value() with ");
  const Json* member = find(key);
  return member == nullptr ? otherwise : member->get<T>();
}

template bool Json::get() const;
template int Json::get() const;
template long Json::get() const;
template unsigned long Json::get() const;
template float Json::get() const;
template double Json::get() const;
template std::string Json::get() const;
template std::vector<long> Json::get() const;
template std::vector<double> Json::get() const;
template std::vector<std::string> Json::get() const;
template std::map<std::string, std::string> Json::get() const;
template bool Json::value(std::string_view, bool) const;
template int Json::value(std::string_view, int) const;
template long Json::value(std::string_view, long) const;
template unsigned long Json::value(std::string_view, unsigned long) const;
template double Json::value(std::string_view, double) const;
template std::string Json::value(std::string_view, std::string) const;
template std::vector<std::string> Json::value(std::string_view, std::vector<std::string>) const;

// ---- members and elements ------------------------------------------------------------------------

const Json* Json::find(std::string_view key) const {
  const Object* members = as<Object>();
  if (members == nullptr) return nullptr;
  const auto found = members->find(key);
  return found == members->end() ? nullptr : &found->second;
}

const Json& Json::at(std::string_view key) const {
  if (!is_object()) refuse("cannot use at() with ");
  const Json* member = find(key);
  if (member == nullptr) throw JsonError("key '" + std::string(key) + "' not found");
  return *member;
}

const Json& Json::operator[](std::string_view key) const {
  static const Json kNull;
  const Json* member = find(key);
  return member == nullptr ? kNull : *member;
}

Json& Json::operator[](std::string_view key) { return become<Object>()[std::string(key)]; }

std::string Json::value(std::string_view key, const char* otherwise) const {
  return value(key, std::string(otherwise));
}

const Json::Object& Json::items() const {
  static const Object kNone;
  if (is_null()) return kNone;
  if (!is_object()) refuse("type must be object, but is ");
  return *as<Object>();
}

void Json::erase(std::string_view key) { become<Object>().erase(std::string(key)); }

const Json& Json::operator[](std::size_t index) const {
  if (index < static_cast<std::size_t>(end() - begin())) return begin()[index];
  throw JsonError("array index " + std::to_string(index) + " is out of range");
}

const Json& Json::back() const { return (*this)[size() - 1]; }

const Json* Json::begin() const {
  if (is_null()) return nullptr;
  if (!is_array()) refuse("type must be array, but is ");
  return as<Array>()->data();
}

const Json* Json::end() const { return is_null() ? nullptr : begin() + as<Array>()->size(); }
Json* Json::begin() { return become<Array>().data(); }
Json* Json::end() { return begin() + size(); }
void Json::push_back(Json value) { become<Array>().push_back(std::move(value)); }

std::size_t Json::size() const {
  if (is_null()) return 0;
  if (const Array* elements = as<Array>()) return elements->size();
  return items().size();
}

// ---- text ----------------------------------------------------------------------------------------

namespace {

Json value_of(const nlohmann::json& parsed) {
  switch (parsed.type()) {
    case nlohmann::json::value_t::boolean:
      return parsed.get<bool>();
    case nlohmann::json::value_t::number_unsigned:
      return parsed.get<unsigned long>();
    case nlohmann::json::value_t::number_integer:
      return parsed.get<long>();
    case nlohmann::json::value_t::number_float:
      return parsed.get<double>();
    case nlohmann::json::value_t::string:
      return parsed.get_ref<const std::string&>();
    case nlohmann::json::value_t::array: {
      Json elements = Json::array();
      for (const nlohmann::json& element : parsed) elements.push_back(value_of(element));
      return elements;
    }
    case nlohmann::json::value_t::object: {
      Json members = Json::object();
      for (const auto& [key, member] : parsed.items()) members[key] = value_of(member);
      return members;
    }
    default:
      return {};
  }
}

}  // namespace

Json parse_json(std::string_view text) {
  std::vector<std::set<std::string>> keys;  // of the objects around a place
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& part) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > kDeepest) {
      throw JsonError("nested deeper than " + std::to_string(kDeepest) + " levels");
    }
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(part.get<std::string>()).second) {
      throw JsonError("key '" + part.get<std::string>() + "' stands twice in an object");
    }
    return true;
  };
  try {
    return value_of(nlohmann::json::parse(text, watch));
  } catch (const nlohmann::json::exception& error) {
    throw error_of(error);
  }
}

Json try_parse_json(std::string_view text) {
  try {
    return parse_json(text);
  } catch (const JsonError&) {
    return {};
  }
}

nlohmann::json Json::Value::printable(const Json& json) {
  if (json.is_null()) return nullptr;
  return std::visit(
      [](const auto& held) -> nlohmann::json {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, Array>) {
          nlohmann::json elements = nlohmann::json::array();
          for (const Json& element : held) elements.push_back(printable(element));
          return elements;
        } else if constexpr (std::is_same_v<Held, Object>) {
          nlohmann::json members = nlohmann::json::object();
          for (const auto& [key, member] : held) members[key] = printable(member);
          return members;
        } else {
          return held;
        }
      },
      json.value_->held);
}

std::string json_text(const Json& value, JsonFormat format) {
  using Broken = nlohmann::json::error_handler_t;
  try {
    return Json::Value::printable(value).dump(format.indent, ' ', format.ascii,
                                              format.mend ? Broken::replace : Broken::strict);
  } catch (const nlohmann::json::exception& error) {
    throw error_of(error);
  }
}

std::ostream& operator<<(std::ostream& out, const Json& value) { return out << json_text(value); }

}  // namespace skytape::data
