// JSON: what a value holds, what is said where it holds something else, and its text.
#include "data/files/json.hpp"

#include <cstdint>
#include <limits>
#include <map>

#include "tensor/core/error.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::data;

namespace {

template <class F> std::string problem(const F& f) {
  try {
    f();
  } catch (const JsonError& error) {
    return problem_of(error);
  }
  return "nothing";
}

Json sample() {
  return {{"task", "listops"},
          {"sizes", Json::array({2, -3, 0.5})},
          {"speed", {{"steps", 9.5}, {"unit", nullptr}}},
          {"done", true}};
}

}  // namespace

TEST_CASE("a JSON value prints what it was made of, its keys in order") {
  CHECK(json_text(sample()) ==
        R"({"done":true,"sizes":[2,-3,0.5],"speed":{"steps":9.5,"unit":null},"task":"listops"})");
  CHECK(json_text({{"a", std::vector<double>{1, 0.1}}}, {.indent = 1}) ==
        "{\n \"a\": [\n  1.0,\n  0.1\n ]\n}");
  CHECK(json_text(std::map<std::string, std::string>{{"b", "2"}, {"a", "1"}}) ==
        R"({"a":"1","b":"2"})");
}

TEST_CASE("what a JSON value lacks reads as null, at any depth") {
  const Json j = sample();
  CHECK(member(j, "speed", "steps") == 9.5);
  CHECK(member(j, "speed", "unit").is_null());
  CHECK(member(j, "machine", "cpu").is_null());
  CHECK(member(j, "task", "cpu").is_null());
  CHECK(member(Json(), "task").is_null());
  for (const Json& nothing : member(j, "machine")) CHECK(nothing.is_null());
  CHECK_THROWS_AS((void)j["machine"], std::logic_error);  // without a check it is undefined
}

TEST_CASE("a JSON value of another kind is refused by what was expected and what it is") {
  const Json j = sample();
  CHECK(problem([&] { (void)j.at("seed"); }) == "key 'seed' not found");
  CHECK(problem([&] { (void)j.at("task").at("name"); }) == "cannot use at() with string");
  CHECK(problem([&] { (void)Json().value("name", ""); }) == "cannot use value() with null");
  CHECK(problem([&] { (void)j.value("task", 1); }) == "type must be number, but is string");
  CHECK(problem([&] { (void)j.at("speed").get<std::string>(); }) ==
        "type must be string, but is object");
  CHECK(problem([&] { (void)member(j, "seed").get<std::vector<double>>(); }) ==
        "type must be array, but is null");
  CHECK(problem_of(DataError("a.json: [3] is no name")) == "a.json: [3] is no name");
}

TEST_CASE("JSON numbers keep every digit and are equal by what they are worth") {
  const Json most = std::numeric_limits<std::uint64_t>::max();
  const Json least = std::numeric_limits<std::int64_t>::min();
  CHECK(json_text(Json::array({most, least})) == "[18446744073709551615,-9223372036854775808]");
  CHECK(parse_json("18446744073709551615") == most);
  CHECK(parse_json("-9223372036854775808").get<std::int64_t>() ==
        std::numeric_limits<std::int64_t>::min());
  const double tenth = 0.1 + 0.2;
  CHECK(parse_json(json_text(tenth)).get<double>() == tenth);
  CHECK(Json(std::int64_t{5}) == parse_json("5"));
  CHECK(Json(1) == Json(1.0));
  CHECK(Json(1) != Json(true));
  CHECK(parse_json("5").is_number_unsigned());
  CHECK_FALSE(parse_json("-5").is_number_unsigned());
  CHECK_FALSE(parse_json("5.0").is_number_unsigned());
  CHECK(json_text(std::numeric_limits<double>::infinity()) == "null");
}

TEST_CASE("broken JSON text is refused without the parser's own marks") {
  const std::string said = problem([] { (void)parse_json("{\"a\": 1"); });
  CHECK(said.starts_with("parse error at line 1, column 8"));
  CHECK(try_parse_json("{\"a\": 1").is_null());
  CHECK(try_parse_json(R"({"a": 1})")["a"] == 1);
  const std::string deep(1'000'000, '[');
  CHECK(problem([&] { (void)parse_json(deep); }).starts_with("nested deeper than"));
  CHECK(problem([] { (void)parse_json(R"({"a": 1, "b": {"a": 2}, "a": 3})"); }) ==
        "key 'a' appears twice in an object");
  const std::string levels = std::string(100, '[') + std::string(100, ']');
  CHECK(json_text(parse_json(levels)) == levels);
}

TEST_CASE("JSON text takes time in proportion to its length, however many objects are in one") {
  // Quadratic time would be minutes.
  constexpr int kObjects = 200'000;
  std::string text = "{";
  for (int i = 0; i < kObjects; ++i) text += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":{}";
  const Json members = parse_json(text + "}");
  CHECK(members.size() == kObjects);
  CHECK(members.at("7") == Json::object());
}

TEST_CASE("all kinds of JSON values are read, at any place") {
  const char* const text = R"({"a":[[],{},[null,true,{"b":[-3,0.5,"c"]}],7],"d":{"e":{}},"f":[]})";
  CHECK(json_text(parse_json(text)) == text);
  for (const char* single : {"null", "false", "-2", "1.5", "\"x\"", "[]", "{}"}) {
    CHECK(json_text(parse_json(single)) == single);
  }
  CHECK(problem([] { (void)parse_json("{} 1"); }).starts_with("parse error at line 1, column 4"));
  CHECK(problem([] { (void)parse_json("[1e999]"); }).starts_with("number overflow"));
  CHECK(problem([] { (void)parse_json(std::string("{} \0[2]", 7)); }) ==
        "byte 4 is NUL, which no JSON has");
}

TEST_CASE("JSON text is UTF-8, whatever bytes it is made of") {
  const Json odd = {{"text", "\xc3\xa9 \xff"}};
  CHECK(json_text(odd) == "{\"text\":\"\xc3\xa9 \xef\xbf\xbd\"}");
  CHECK(json_text(odd, {.ascii = true}) == R"({"text":"\u00e9 \ufffd"})");
}
