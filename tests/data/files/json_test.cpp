// JSON: what a value holds, what is said where it holds something else, and its text.
#include "data/files/json.hpp"

#include <cstdint>
#include <limits>

#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::data;

namespace {

template <class F> std::string problem(const F& f) { return synthetic::error_of<JsonError>(f); }

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
  CHECK(json_text(Json()) == "null");
  CHECK(json_text(Json::object()) == "{}");
  CHECK(json_text(Json::array()) == "[]");
  CHECK(json_text({{"a", std::vector<double>{1, 0.1}}}, {.indent = 1}) ==
        "{\n \"a\": [\n  1.0,\n  0.1\n ]\n}");
  CHECK(json_text(std::map<std::string, std::string>{{"b", "2"}, {"a", "1"}}) ==
        R"({"a":"1","b":"2"})");
}

TEST_CASE("JSON values are read as what they are") {
  const Json j = sample();
  CHECK(j.at("task").get<std::string>() == "listops");
  CHECK(j.at("sizes").get<std::vector<double>>() == std::vector<double>{2, -3, 0.5});
  CHECK(j.at("speed").at("steps").get<int>() == 9);
  CHECK(j.at("done").get<bool>());
  CHECK(j["sizes"][1].get<std::int64_t>() == -3);
  CHECK(j["sizes"].back() == 0.5);
  CHECK(j.value("task", "none") == "listops");
  CHECK(j.value("seed", 42) == 42);
  CHECK(j.value("labels", std::vector<std::string>{"a"}).size() == 1);
  CHECK(j.size() == 4);
  CHECK(j["speed"]["unit"].is_null());
  CHECK(j.contains("done"));
  CHECK_FALSE(j.contains("seed"));
  double sum = 0;
  for (const Json& size : j["sizes"]) sum += size.get<double>();
  CHECK(sum == -0.5);
  std::string keys;
  for (const auto& [key, value] : j.items()) keys += key + " ";
  CHECK(keys == "done sizes speed task ");
}

TEST_CASE("what a JSON value lacks reads as null, at any depth") {
  const Json j = sample();
  CHECK(j["machine"]["cpu"].is_null());
  CHECK(j["task"]["cpu"].is_null());
  CHECK(j.find("machine") == nullptr);
  CHECK(j["machine"].empty());
  for (const Json& nothing : j["machine"]) CHECK(nothing.is_null());
  CHECK(j["machine"].items().empty());
}

TEST_CASE("a JSON value of another kind is refused by what was expected and what it is") {
  const Json j = sample();
  CHECK(problem([&] { (void)j.at("seed"); }) == "key 'seed' not found");
  CHECK(problem([&] { (void)j.at("task").at("name"); }) == "cannot use at() with string");
  CHECK(problem([&] { (void)Json().value("name", ""); }) == "cannot use value() with null");
  CHECK(problem([&] { (void)j.value("task", 1); }) == "type must be number, but is string");
  CHECK(problem([&] { (void)j["done"].get<int>(); }) == "type must be number, but is boolean");
  CHECK(problem([&] { (void)j["speed"].get<std::string>(); }) ==
        "type must be string, but is object");
  CHECK(problem([&] { (void)j["sizes"].get<bool>(); }) == "type must be boolean, but is array");
  CHECK(problem([&] { (void)j["seed"].get<std::vector<double>>(); }) ==
        "type must be array, but is null");
  CHECK(problem([&] { (void)j["speed"].begin(); }) == "type must be array, but is object");
  CHECK(problem([&] { (void)j["task"].items(); }) == "type must be object, but is string");
  CHECK(problem([&] { (void)j["sizes"][3]; }) == "array index 3 is out of range");
  Json text = "a";
  CHECK(problem([&] { text["key"] = 1; }) == "type must be object, but is string");
  CHECK(problem([&] { text.push_back(1); }) == "type must be array, but is string");
}

TEST_CASE("JSON values change, and their copies do not") {
  Json j;
  j["a"]["b"] = 1;
  j["list"].push_back("x");
  const Json before = j;
  j["a"]["b"] = 2;
  for (Json& element : j["list"]) element = "y";
  j["c"] = j["a"];
  j.erase("a");
  CHECK(json_text(j) == R"({"c":{"b":2},"list":["y"]})");
  CHECK(json_text(before) == R"({"a":{"b":1},"list":["x"]})");
  CHECK(before != j);
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
  CHECK(Json(5).is_natural());
  CHECK_FALSE(Json(-5).is_natural());
  CHECK_FALSE(Json(5.0).is_natural());
  CHECK(json_text(std::numeric_limits<double>::infinity()) == "null");
}

TEST_CASE("broken JSON text is refused without the parser's own marks") {
  const std::string said = problem([] { (void)parse_json("{\"a\": 1"); });
  CHECK(said.starts_with("parse error at line 1, column 8"));
  CHECK(try_parse_json("{\"a\": 1").is_null());
  CHECK(try_parse_json(R"({"a": 1})")["a"] == 1);
  const std::string deep(1'000'000, '[');
  CHECK(problem([&] { (void)parse_json(deep); }).starts_with("nested deeper than"));
  const std::string levels = std::string(100, '[') + std::string(100, ']');
  CHECK(json_text(parse_json(levels)) == levels);
}

TEST_CASE("JSON text is UTF-8, whatever bytes it is made of") {
  const Json odd = {{"text", "\xc3\xa9 \xff"}};
  CHECK(problem([&] { (void)json_text(odd); }).starts_with("invalid UTF-8 byte"));
  CHECK(json_text(odd, {.mend = true}) == "{\"text\":\"\xc3\xa9 \xef\xbf\xbd\"}");
  CHECK(json_text(odd, {.ascii = true, .mend = true}) == R"({"text":"\u00e9 \ufffd"})");
}
