// JSON: values and their text. nlohmann/json parses and prints, in json.cpp alone: every file that
// includes it compiles for a second more, and a quarter of the program handles JSON.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <iosfwd>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace skytape::data {

/// What is wrong with a text or a value: "key 'steps' not found".
struct JsonError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// How text is written: on one line, or with so many blanks per level.
struct JsonFormat {
  int indent = -1;
  bool ascii = false;  // all other characters as \uXXXX
  bool mend = false;   // bytes that are no UTF-8 become U+FFFD; otherwise they are a JsonError
};

/// Null, a truth value, a number, a text, an array, or an object, whose keys are sorted.
///
///   Json run = {{"task", "listops"}, {"sizes", Json::array({2, 3})}, {"speed", {{"steps", 9.5}}}};
///   run["seed"] = 42;
///   run.at("task").get<std::string>();  // JsonError where there is none, or it is no text
class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::map<std::string, Json, std::less<>>;

  Json(std::nullptr_t = nullptr);
  Json(bool value);
  Json(int number);
  Json(unsigned number);
  Json(long number);
  Json(unsigned long number);
  Json(double number);
  Json(const char* text);
  Json(std::string_view text);
  Json(std::string text);
  Json(std::initializer_list<Member> members);
  template <class T> Json(const std::vector<T>& values) : Json(array()) {
    for (const T& value : values) push_back(value);
  }
  template <class T> Json(const std::map<std::string, T>& members) : Json(object()) {
    for (const auto& [key, value] : members) (*this)[key] = value;
  }
  [[nodiscard]] static Json array(std::initializer_list<Json> values = {});
  [[nodiscard]] static Json object();

  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();

  [[nodiscard]] bool is_null() const { return value_ == nullptr; }
  [[nodiscard]] bool is_boolean() const;
  [[nodiscard]] bool is_number() const;
  [[nodiscard]] bool is_natural() const;  // a whole number from 0 on
  [[nodiscard]] bool is_string() const;
  [[nodiscard]] bool is_array() const;
  [[nodiscard]] bool is_object() const;
  /// Numbers are equal by what they are worth: 1 and 1.0.
  friend bool operator==(const Json& a, const Json& b);

  /// As bool, int, std::int64_t, std::uint64_t, float, double, std::string, a vector of them, or a
  /// map from text to text. JsonError if it is of another kind.
  template <class T> [[nodiscard]] T get() const;

  // Members of an object.
  [[nodiscard]] bool contains(std::string_view key) const { return find(key) != nullptr; }
  [[nodiscard]] const Json* find(std::string_view key) const;        // nullptr: there is none
  [[nodiscard]] const Json& at(std::string_view key) const;          // JsonError: there is none
  [[nodiscard]] const Json& operator[](std::string_view key) const;  // null: there is none
  Json& operator[](std::string_view key);                            // made if there is none
  /// The member's value, `otherwise` where there is none. JsonError if it is of another kind.
  template <class T> [[nodiscard]] T value(std::string_view key, T otherwise) const;
  [[nodiscard]] std::string value(std::string_view key, const char* otherwise) const;
  [[nodiscard]] const Object& items() const;
  void erase(std::string_view key);

  // Elements of an array.
  [[nodiscard]] const Json& operator[](std::size_t index) const;
  [[nodiscard]] const Json& back() const;
  [[nodiscard]] const Json* begin() const;
  [[nodiscard]] const Json* end() const;
  [[nodiscard]] Json* begin();
  [[nodiscard]] Json* end();
  void push_back(Json value);

  /// Of members or elements.
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] bool empty() const { return size() == 0; }

 private:
  friend std::string json_text(const Json& value, JsonFormat format);
  struct Value;

  template <class T> [[nodiscard]] const T* as() const;
  template <class T> [[nodiscard]] T& become();
  [[noreturn]] void refuse(const char* what) const;

  std::unique_ptr<Value> value_;  // nullptr: null
};

struct Json::Member {
  std::string_view key;
  Json value;
};

/// The value that `text` stands for. JsonError if it is broken, or a key stands twice in an object:
/// which of the two is meant, nobody knows.
[[nodiscard]] Json parse_json(std::string_view text);
/// The same, but null if it is broken.
[[nodiscard]] Json try_parse_json(std::string_view text);
[[nodiscard]] std::string json_text(const Json& value, JsonFormat format = {});
std::ostream& operator<<(std::ostream& out, const Json& value);

}  // namespace skytape::data
