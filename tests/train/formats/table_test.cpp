#include "train/formats/table.hpp"

#include <limits>

#include "data/files/json.hpp"
#include "tests/support/close.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape::train;
using skytape::data::Json;
using skytape::test::error_text;

namespace {

Table sample() {
  Table table;
  table.name = "sample";
  table.title = "Three rows";
  table.columns = {{"what"}, {"ms", "{:.1f}"}, {"ratio"}};
  table.add({"whole", 12.345, 0.5});
  table.add({"missing", {}, std::optional<double>()});
  table.add({"a|b", std::numeric_limits<double>::quiet_NaN(), std::optional<int>(0)});
  table.notes = {"A note."};
  return table;
}

}  // namespace

TEST_CASE("a table shows what is missing as missing, and zero as zero") {
  CHECK(to_text(sample()) ==
        "Three rows\n"
        "what       ms  ratio\n"
        "whole    12.3    0.5\n"
        "missing     -      -\n"
        "a|b       nan      0\n"
        "A note.\n");
  const Json j = to_json(sample());
  CHECK(j["columns"] == Json::array({"what", "ms", "ratio"}));
  CHECK(j["formats"] == Json::array({"{:g}", "{:.1f}", "{:g}"}));
  CHECK(j["rows"][0][1] == 12.345);  // whole, not as printed
  CHECK(j["rows"][1][1].is_null());
  CHECK(j["rows"][1][2].is_null());
  CHECK(j["rows"][2][1] == "nan");
  CHECK(j["rows"][2][2] == 0);
}

TEST_CASE("a table refuses a row of another width") {
  Table table = sample();
  CHECK(error_text([&] { table.add({"short"}); }).find("a row of 1 cells for 3 columns") !=
        std::string::npos);
}
