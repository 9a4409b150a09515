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
    return {Option::integer("count", count, 1, 9, "how many"),
            Option::flag("hold", hold, "a flag").former_key("keep"),
            Option::choice("rule", rule, {"own", "official"}, "which one")
                .former_choice("original", "official")};
  }
};

Sample assigned(const OptionValues& values) {
  Sample sample;
  attention::assign("sample", sample.options(), values);
  return sample;
}

}  // namespace

TEST_CASE("former spellings of keys and values set what today's set") {
  CHECK(assigned({{"hold", "1"}}).hold);
  CHECK(assigned({{"keep", "1"}}).hold);
  CHECK(assigned({{"rule", "official"}}).rule == "official");
  CHECK(assigned({{"rule", "original"}}).rule == "official");
  CHECK(assigned({{"count", "7"}, {"keep", "0"}}).count == 7);
}

TEST_CASE("a key in both spellings, and former spellings with wrong values, are refused") {
  CHECK_THROWS_WITH_AS((void)assigned({{"hold", "1"}, {"keep", "1"}}),
                       doctest::Contains("sample.hold is set twice"), UsageError);
  CHECK_THROWS_WITH_AS((void)assigned({{"keep", "maybe"}}),
                       doctest::Contains("sample.hold: expected 0|1, got 'maybe'"), UsageError);
  CHECK_THROWS_WITH_AS((void)assigned({{"rule", "origin"}}),
                       doctest::Contains("expected own|official, got 'origin'"), UsageError);
  CHECK_THROWS_WITH_AS((void)assigned({{"holt", "1"}}), doctest::Contains("did you mean 'hold'"),
                       UsageError);
}

TEST_CASE("a former value belongs to its own option only") {
  Sample sample;
  const auto infos = attention::describe(sample.options());
  const auto today = [&](const char* key, const char* value) {
    return attention::in_todays_spelling(infos, key, value);
  };
  CHECK(today("rule", "original") == std::pair<std::string, std::string>("rule", "official"));
  CHECK(today("hold", "original") == std::pair<std::string, std::string>("hold", "original"));
  CHECK(today("keep", "1") == std::pair<std::string, std::string>("hold", "1"));
  CHECK(today("other", "original") == std::pair<std::string, std::string>("other", "original"));
}

TEST_CASE("the iterative inverse takes its options under their former names") {
  for (const char* name : {"skyformer", "nystrom", "nystrom_sm"}) {
    CAPTURE(name);
    const attention::Spec& spec = attention::find(name);
    CHECK(spec.has_option("detach_start"));
    CHECK(spec.has_option("constant_init"));
    CHECK_FALSE(spec.has_option(""));
    const auto whole_batch = [&](const char* start) {
      return spec.make({}, {{"inverse_start", start}, {"constant_init", "0"}})->needs_whole_batch();
    };
    CHECK(whole_batch("original"));
    CHECK(whole_batch("official"));
    CHECK_FALSE(whole_batch("per_matrix"));
  }
}
