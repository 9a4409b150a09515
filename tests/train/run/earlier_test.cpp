// The run of an earlier process is continued only where it is the same; messages name both sides.
#include "train/run/earlier.hpp"

#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::train;
using data::Json;
using data::synthetic::error_of;
using data::synthetic::Folder;
using test::contains;

TEST_CASE("of long lists that differ the first other entry is said, or how many there are") {
  const auto error = [](const Json& one, const Json& other) {
    return error_of<DataError>([&] {
      refuse_other_meaning({{"labels", one}}, "a", {{"labels", other}}, "b", false);
    });
  };
  Json list = Json::array();
  for (int i = 1; i <= 20; ++i) list.push_back(i);
  Json other = list;
  other[7] = 99;
  CHECK(contains(error(list, other), "labels: [1,2,3,4,5,6,7,8,9,"));
  list.push_back(21);
  other.push_back(21);
  CHECK(contains(error(list, other), "labels, entry 8: 8 in a, 99 in b: expected the same"));
  other = list;
  other.push_back(22);
  CHECK(contains(error(list, other), "labels, how many: 21 in a, 22 in b: expected the same"));
}

TEST_CASE("columns of files that differ in anything are other data, where columns count") {
  const auto data = [](const char* key, const char* value) -> Json {
    Json source = {{"format", "csv"}, {"delimiter", ";"}, {"columns", {{"text", "t"}}}};
    source[key] = value;
    return {{"sources", {source}}};
  };
  const Json one = data("file", "one.csv");
  refuse_other_meaning(one, "a", data("file", "two.csv"), "b", true);  // a name says nothing
  for (const char* key : {"format", "delimiter", "columns"}) {
    CAPTURE(key);
    const Json other = data(key, "x");
    refuse_other_meaning(one, "a", other, "b", false);
    CHECK(contains(error_of<DataError>([&] { refuse_other_meaning(one, "a", other, "b", true); }),
                   "sources: "));
  }
}

TEST_CASE(
    "a run is lost behind its last metric, and begins anew only from weights that are named") {
  const Folder folder;
  refuse_lost_run(folder.path(), {{"init", "0123"}}, true);
  refuse_lost_run(folder.path(), Json::object(), false);
  CHECK(contains(error_of<UsageError>([&] {
                   refuse_lost_run(folder.path(), {{"init", "0123"}}, false);
                 }),
                 "it starts from weights that --init must name again"));
  folder.write("metrics.jsonl",
               "{\"kind\":\"train\",\"step\":2}\n{\"kind\":\"eval\",\"step\":5}\n");
  CHECK(
      contains(error_of<DataError>([&] { refuse_lost_run(folder.path(), Json::object(), false); }),
               "metrics up to step 5, but last.safetensors is missing"));
}

TEST_CASE("another configuration is refused with a word on --data where that is what differs") {
  const Folder folder;
  const Json config = {{"task", "text"},
                       {"settings", {{"lr", {{"value", "1e-4"}, {"origin", "recipe"}}}}},
                       {"data", {{"train", {{"fingerprint", "01"}}}}}};
  refuse_other_run(folder.path(), config);  // there is none
  folder.write("config.json", data::json_text(config));
  refuse_other_run(folder.path(), config);
  const auto error = [&](const Json& other) {
    return error_of<UsageError>([&] { refuse_other_run(folder.path(), other); });
  };
  Json other = config;
  other["settings"]["lr"]["value"] = "2e-4";
  CHECK(error(other).ends_with("refuses another configuration: lr: 1e-4 there, 2e-4 here"));
  other = config;
  other["data"]["train"]["fingerprint"] = "02";
  CHECK(error(other).ends_with("; --data FOLDER says where the run's data are"));
}

TEST_CASE("a warning for each of device, threads and revision says what it was and is") {
  const Json saved = {{"device", "cpu"}, {"machine", {{"threads", 2}}}, {"revision", "a1"}};
  const Json now = {{"device", "cuda"}, {"machine", {{"threads", 3}}}, {"revision", "b2"}};
  CHECK(reproducibility_warnings(saved, saved).empty());
  const std::string end = ": the last bits may differ";
  CHECK(reproducibility_warnings(saved, now) ==
        std::vector<std::string>{"warning: device was \"cpu\", is \"cuda\"" + end,
                                 "warning: number of threads was 2, is 3" + end,
                                 "warning: revision was \"a1\", is \"b2\"" + end});
}
