#include "train/run/run_summary.hpp"

#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::error_of;
using data::synthetic::Folder;

namespace {

const char* const kConfig = R"({"task": "listops", "attention": "vmean", "recipe": "skytape",
  "seed": 7, "device": "cpu", "revision": "abc", "machine": {"cpu": "a CPU"},
  "data": {"name": "listops"},
  "settings": {"steps": {"value": "1000", "origin": "recipe"},
               "lr": {"value": "1e-3", "origin": "--set"}}})";

Cell value_of(const Table& table, const std::string& what) {
  for (const auto& row : table.rows) {
    if (row[0].words == what) return row[1];
  }
  FAIL("no row " << what);
  return {};
}

}  // namespace

TEST_CASE("a run's summary tells what there is, and what there is not yet as missing") {
  const Folder folder;
  folder.write("config.json", kConfig);
  folder.write(
      "metrics.jsonl",
      "{\"kind\":\"train\",\"step\":400,\"steps_per_second\":2.5,\"tokens_per_second\":99}\n"
      "{\"kind\":\"eval\",\"step\":200,\"accuracy\":0.25,\"loss\":2.5}\n"
      "{\"kind\":\"eval\",\"step\":400,\"accuracy\":0.2,\"loss\":2.25}\n"
      "{\"kind\":\"eva");
  const Table running = run_summary(folder.path());
  CHECK(value_of(running, "state").words == "not finished");
  CHECK(value_of(running, "steps").words == "400");
  CHECK(value_of(running, "planned steps").words == "1,000");
  CHECK(value_of(running, "set by the user").words == "lr=1e-3");
  CHECK(value_of(running, "best dev accuracy").words == "25.00 % at step 200");
  CHECK(value_of(running, "lowest dev loss").words == "2.2500 at step 400");
  CHECK(value_of(running, "reached without attention").words == "36.2 %");
  CHECK(value_of(running, "test accuracy").kind == Cell::Kind::missing);
  CHECK(value_of(running, "training time").kind == Cell::Kind::missing);

  folder.write("result.json", R"({"steps": 1000, "test_accuracy": 0.375, "dev_accuracy": 0.25,
    "train_seconds": 120.0, "steps_per_second": 8.3, "tokens_per_second": 1000, "peak_bytes": 5e6,
    "parameters": 1234, "time_to_accuracy": {"paper": null, "best": null, "trivial":
    {"step": 2500, "seconds": 90.0, "tokens": 77, "accuracy": 0.37}}})");
  const Table finished = run_summary(folder.path());
  CHECK(value_of(finished, "state").words == "finished");
  CHECK(value_of(finished, "steps").words == "1,000");
  CHECK(value_of(finished, "test accuracy").words == "37.50 %");
  CHECK(value_of(finished, "above that after").words.ends_with(", step 2,500"));
  CHECK(value_of(finished, "above the papers' best result after").kind == Cell::Kind::missing);
  CHECK(value_of(finished, "peak memory").words == "5.0 MB");

  folder.write("result.json", R"({"time_to_accuracy": {"trivial": {"above": "x"}}})");
  CHECK(error_of<DataError>([&] {
          (void)run_summary(folder.path());
        }).find("time_to_accuracy.trivial: above: expected a share") != std::string::npos);
}

TEST_CASE("a folder that holds no run, or a broken one, is named") {
  const Folder folder;
  CHECK(error_of<DataError>([&] { (void)run_summary(folder.path()); }).find("holds no run") !=
        std::string::npos);
  folder.write("config.json", "{\"task\": \"listops\"}");
  CHECK(error_of<DataError>([&] { (void)run_summary(folder.path()); }).find("not one of ours") !=
        std::string::npos);
}
