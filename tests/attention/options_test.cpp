#include "attention/options.hpp"

#include <string>
#include <utility>
#include <vector>

#include "attention/registry.hpp"
#include "tensor/core/error.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using attention::Option;
using attention::OptionValues;

namespace {

struct Sample {
  std::int64_t count = 3;
  bool hold = false;
  std::string rule = "own";

  std::vector<Option> options() {
    return {Option::integer("count", count, 1, 9, "how many"), Option::flag("hold", hold, "a flag"),
            Option::choice("rule", rule, {"own", "official"}, "which one")};
  }
};

Sample assigned(const OptionValues& values) {
  Sample sample;
  attention::assign("sample", sample.options(), values);
  return sample;
}

}  // namespace

TEST_CASE("options set the fields that they name") {
  CHECK(assigned({{"hold", "1"}}).hold);
  CHECK(assigned({{"hold", "true"}}).hold);
  CHECK_FALSE(assigned({{"hold", "false"}}).hold);
  CHECK(assigned({{"rule", "official"}}).rule == "official");
  CHECK(assigned({{"count", "7"}, {"hold", "0"}}).count == 7);
}

TEST_CASE("wrong values and unknown keys of options are refused") {
  CHECK_THROWS_WITH_AS((void)assigned({{"hold", "maybe"}}),
                       doctest::Contains("sample.hold: expected 0|1, got 'maybe'"), UsageError);
  CHECK_THROWS_WITH_AS((void)assigned({{"rule", "origin"}}),
                       doctest::Contains("expected own|official, got 'origin'"), UsageError);
  CHECK_THROWS_WITH_AS((void)assigned({{"holt", "1"}}), doctest::Contains("did you mean 'hold'"),
                       UsageError);
}

TEST_CASE("both ends of a range are legal, and what lies beyond them is refused") {
  for (const auto& [text, count] : {std::pair("1", 1), {"9", 9}}) {
    CHECK(assigned({{"count", text}}).count == count);
  }
  for (const char* text : {"0", "10", "4.5", "4 ", ""}) {
    CHECK_THROWS_WITH_AS((void)assigned({{"count", text}}),
                         doctest::Contains("sample.count: expected 1..9, got '"), UsageError);
  }
  for (const char* text : {"4:0", "-1", "4:", "4::5", "a"}) {
    CHECK_THROWS_WITH_AS((void)attention::parse_list("sample.sizes", text),
                         doctest::Contains("sample.sizes: expected positive whole numbers joined"),
                         UsageError);
  }
  CHECK(attention::parse_list("sample.sizes", "4:1") == std::vector<std::int64_t>{4, 1});
}

TEST_CASE("the iterative inverse needs the whole batch for one start of all its matrices") {
  for (const char* name : {"skyformer", "nystrom", "nystrom_sm"}) {
    CAPTURE(name);
    const attention::Spec& spec = attention::find(name);
    CHECK(spec.has_option("detach_start"));
    CHECK_FALSE(spec.has_option(""));
    const auto whole_batch = [&](const char* start) {
      return spec.make({}, {{"inverse_start", start}, {"detach_start", "0"}})->needs_whole_batch();
    };
    CHECK(whole_batch("official"));
    CHECK_FALSE(whole_batch("per_matrix"));
  }
}
