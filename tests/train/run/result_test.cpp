#include "train/run/result.hpp"

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "train/config/run_config.hpp"

using namespace skytape;
using namespace skytape::train;
using data::Json;
using data::synthetic::error_of;
using data::synthetic::Folder;

namespace {

/// The warning of a run on the task that reaches this test accuracy.
std::string warning_of(const std::string& task, double accuracy) {
  Choices choices;
  choices.task = task;
  Evaluation test;
  test.accuracy = accuracy;
  return baseline_warning(resolve(choices), test);
}

Json result_of(const Json& config) {
  Json result = config;
  for (const char* key : {"steps", "selected_step", "train_seconds", "steps_per_second",
                          "tokens_per_second", "peak_bytes", "dev_accuracy", "test_accuracy"}) {
    result[key] = 1;
  }
  return result;
}

}  // namespace

TEST_CASE("a finished run at or below its trivial baseline is warned of, one above is not") {
  CHECK(warning_of("listops", 0.362) ==
        "warning: test accuracy 36.20 % is not above 36.2 %, which the best label given the root "
        "operator alone reaches: train longer, or something is wrong");
  CHECK(warning_of("text", 0.5).find("66.2 %, which logistic regression") != std::string::npos);
  CHECK(warning_of("image", 0.2).find("28.7 %") != std::string::npos);
  CHECK(warning_of("pathfinder", 0.5).find("50.0 %") != std::string::npos);
  CHECK(warning_of("retrieval", 0.49).find("50.0 %") != std::string::npos);
  for (const char* task : {"listops", "text", "image", "pathfinder", "retrieval"}) {
    CAPTURE(task);
    CHECK(warning_of(task, 0.67).empty());
  }
  // On custom data it is the share of the largest class, which is in the confusion matrix.
  CHECK(warning_of("tsv", 0.1).empty());
  CHECK(warning_of("tsv", 0).find("the largest class alone") != std::string::npos);
}

TEST_CASE("a result that lacks a figure or has an impossible one is refused by file and key") {
  const Folder folder;
  const Json good = result_of({{"task", "text"},
                               {"attention", "softmax"},
                               {"recipe", "skytape"},
                               {"seed", 1},
                               {"settings", Json::object()},
                               {"data", Json::object()}});
  const auto reading = [&](const Json& result) {
    const auto path = folder.write("result.json", data::json_text(result));
    return error_of<DataError>([&] { (void)read_result(path); });
  };
  CHECK(reading(good).empty());
  for (const auto& [key, value] : good.items()) {
    CAPTURE(key);
    Json bad = good;
    bad.erase(key);
    CHECK(reading(bad).find("result.json: no ") != std::string::npos);
    CHECK(reading(bad).find("'" + key + "'") != std::string::npos);
    bad[key] = nullptr;
    CHECK_FALSE(reading(bad).empty());
  }
  Json share = good;
  share["test_accuracy"] = 36.2;
  CHECK(reading(share).find("share in 0..1 'test_accuracy'") != std::string::npos);
  CHECK(reading("text").find("not a JSON object") != std::string::npos);
}

TEST_CASE("a folder is finished only by a whole result of the same configuration and data") {
  const Folder folder;
  const Json config = {{"task", "text"},
                       {"attention", "softmax"},
                       {"recipe", "skytape"},
                       {"seed", 1},
                       {"settings", {{"lr", {{"value", "1e-4"}, {"origin", "recipe"}}}}},
                       {"data", {{"name", "text"}, {"fingerprint", "01"}}}};
  const auto finished = [&](const Json& wanted) {
    return finished_result(folder.path(), wanted).has_value();
  };
  CHECK_FALSE(finished(config));
  folder.write("config.json", data::json_text(config));
  CHECK_FALSE(finished(config));
  folder.write("result.json", data::json_text(result_of(config)));
  CHECK(finished(config));
  Json same = config;
  same["settings"]["lr"]["origin"] = "--set";  // who said it does not matter
  CHECK(finished(same));
  Json other = config;
  other["settings"]["lr"]["value"] = "2e-4";
  CHECK_FALSE(finished(other));
  other = config;
  other["data"]["fingerprint"] = "02";
  CHECK_FALSE(finished(other));
  folder.write("result.json", "{\"task\": \"te");
  CHECK_FALSE(finished(config));
}
