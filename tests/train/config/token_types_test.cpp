// token_types: a setting whose meaning the data decide.
#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "train/config/run_config.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::error_of;

TEST_CASE("the texts of a pair are told apart where there are pairs with a mark between") {
  const auto on = [](std::vector<Setting> values, const char* task, const data::Json& provenance) {
    Choices c;
    c.settings = std::move(values);
    c.task = task;
    return with_vocabulary(resolve(c), provenance);
  };
  const std::vector<Setting> typed = {{"token_types", "1", "--set"}};
  data::Json bytes = data::Json::object();
  bytes["pairs"] = true;
  CHECK(on(typed, "tsv", bytes).model.token_types);
  CHECK(on(typed, "tsv", bytes).model.separator == '\t' + 1);
  CHECK_FALSE(on({}, "tsv", bytes).model.token_types);
  data::Json words = bytes;
  words["tokens"] = "words";
  words["vocabulary"] = data::Json::array();
  words["vocabulary"].push_back("river");
  CHECK(error_of<UsageError>([&] { (void)on(typed, "tsv", words); }) ==
        "token_types: there is no token between two texts of words; expected 0");
  CHECK(error_of<UsageError>([&] { (void)on(typed, "listops", data::Json()); }) ==
        "token_types: the examples of listops are no pairs of texts in one sequence; expected 0");
  // An encoder that brings types reads single texts with the first of them.
  const RunConfig single = on({{"token_types", "1", "--init"}}, "tsv", data::Json::object());
  CHECK(single.model.token_types);
  CHECK(single.model.separator == -1);
}
