#include "train/lab/lra/report.hpp"

#include <fmt/format.h>

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/program.hpp"
#include "train/formats/table.hpp"
#include "train/run/time_to_accuracy.hpp"

using namespace skytape;
using namespace skytape::train;
using data::Json;
using data::synthetic::error_of;
using data::synthetic::Folder;
using data::synthetic::read_file;
using test::contains;

namespace {

/// Writes a run at step 20 of 20: two training log points at 10 and 5 steps a second, one
/// evaluation; with its result if it is finished.
void write_run(const Folder& folder, const std::string& name, const std::string& attention,
               bool finished) {
  const Json settings = {{"steps", {{"value", "20"}, {"origin", "--steps"}}}};
  Json config = {
      {"task", "listops"}, {"attention", attention}, {"recipe", "skytape"},          {"seed", 1},
      {"device", "cpu"},   {"settings", settings},   {"data", {{"name", "listops"}}}};
  Json result = config;
  config["revision"] = "abc";
  config["machine"] = {{"cpu", "a <small> one"}};
  folder.write(name + "/config.json", data::json_text(config));
  folder.write(
      name + "/metrics.jsonl",
      R"({"kind":"train","step":10,"loss":2.5,"steps_per_second":10.0,"tokens_per_second":7})"
      "\n"
      R"({"kind":"eval","split":"dev","step":10,"accuracy":0.25,"loss":2})"
      "\n"
      R"({"kind":"train","step":20,"loss":2.25,"steps_per_second":5.0,"tokens_per_second":7})"
      "\n{\"kind\":\"tra");
  if (!finished) return;
  for (const char* key : {"steps", "selected_step", "train_seconds", "steps_per_second",
                          "tokens_per_second", "peak_bytes"}) {
    result[key] = 10;
  }
  result["dev_accuracy"] = 0.25;
  result["test_accuracy"] = 0.375;
  TimeToAccuracy times;
  (void)times.add("listops", trivial_baseline("listops"), {250, 90.0, 8'200'000, 0.38});
  result["test_examples"] = 100;
  result["time_to_accuracy"] = to_json(times);
  folder.write(name + "/result.json", data::json_text(result));
}

/// Returns the report.json of a folder of runs.
Json report_of(const Folder& folder) {
  return data::parse_json(read_file(write_report({folder.path(), folder.path() / "out"}).file));
}

/// Returns the cells of the row whose first cell is `name`, in the table with that heading.
Json row_of(const Json& sections, const std::string& heading, const std::string& name) {
  for (const Json& table : sections) {
    if (table["heading"] != heading) continue;
    for (const Json& row : table["rows"]) {
      if (row[0] == name) return row;
    }
  }
  return {};
}

}  // namespace

TEST_CASE("a report shows finished and unfinished runs and studies, and names what is broken") {
  const Folder folder;
  write_run(folder, "done", "softmax", true);
  write_run(folder, "going", "skyformer", false);
  folder.write("broken/config.json", "{}");
  folder.write("notes/readme.txt", "no run");
  Table errors{"errors", "Errors & bounds", {{"d"}, {"error"}}, {}, {"a note"}};
  errors.add({8.0, Cell()});
  const Json study = {{"experiment", "approx"},  {"date", "2026-01-01"},
                      {"revision", "abc"},       {"machine", {{"cpu", "one"}}},
                      {"facts", {{"seed", 42}}}, {"tables", {{"errors", to_json(errors)}}}};
  folder.write("study/approx.json", data::json_text(study));

  const auto out = folder.path() / "report";
  const ReportSummary summary = write_report({folder.path(), out});
  CHECK(summary.file == out / "report.json");
  CHECK(summary.finished == 1);
  CHECK(summary.unfinished == 1);
  CHECK(summary.studies == 1);
  REQUIRE(summary.skipped.size() == 1);
  CHECK(summary.skipped[0].starts_with("broken: broken: "));

  const Json report = data::parse_json(read_file(out / "report.json"));
  CHECK(contains(report["facts"].get<std::string>(), "runs: 1 finished, 1 not; studies: 1."));
  const Json accuracy =
      row_of(report["accuracies"], "Accuracy and the papers' accuracy", "softmax");
  CHECK(accuracy[1] == "skytape, steps=20");
  CHECK(accuracy[2] == "37.50");
  const Json going = row_of(report["runs"], "Runs", "going");
  CHECK(going[6] == "at 20 of 20");
  CHECK(going[7].is_null());  // no dev accuracy
  CHECK(going[14] == "a <small> one");
  CHECK(row_of(report["accuracies"], "Time to accuracy", "listops")[5] ==
        "90 s, step 250, 8.2 M tokens");
  CHECK(report["studies"][0]["name"] == "approx");
  CHECK(report["studies"][0]["file"] == (folder.path() / "study/approx.json").string());
  CHECK(report["skipped"] == Json(summary.skipped));
  REQUIRE(report["curves"].size() == 1);
  const Json& curves = report["curves"][0];
  CHECK(curves["task"] == "listops");
  CHECK(curves["papers_best"] == 39.25);
  REQUIRE(curves["lines"].size() == 2);
  const Json& run = curves["lines"][1]["runs"][0];
  CHECK(curves["lines"][0]["name"] == "softmax");
  CHECK(curves["lines"][1]["name"] == "skyformer");
  CHECK(run["step"] == Json::array({10, 20}));
  CHECK(run["seconds"] == Json::array({1, 3}));
  CHECK(run["loss"] == Json::array({2.5, 2.25}));
  CHECK(run["dev_seconds"] == Json::array({1}));
  CHECK(run["dev_accuracy"] == Json::array({25}));
  CHECK(run["dev_loss"] == Json::array({2}));
  CHECK(report["rates"].empty());
}

TEST_CASE("runs that differ in learning rate and batch alone are cells of one map") {
  const Folder folder;
  const auto run = [&](const std::string& name, const char* lr, const char* batch,
                       const char* width) {
    write_run(folder, name, "softmax", true);
    for (const std::string& file : {name + "/config.json", name + "/result.json"}) {
      Json json = data::parse_json(read_file(folder.path() / file));
      json["settings"]["lr"] = {{"value", lr}, {"origin", "--lr"}};
      json["settings"]["batch"] = {{"value", batch}, {"origin", "--batch"}};
      json["settings"]["width"] = {{"value", width}, {"origin", "--set"}};
      folder.write(file, data::json_text(json));
    }
  };
  run("a", "1e-3", "64", "32");
  run("b", "1e-4", "128", "32");
  run("wide", "1e-4", "128", "48");
  const Json rates = report_of(folder)["rates"];
  REQUIRE(rates.size() == 1);
  CHECK(rates[0]["task"] == "listops");
  CHECK(rates[0]["attention"] == "softmax");
  REQUIRE(rates[0]["runs"].size() == 2);
  CHECK(rates[0]["runs"][0]["lr"] == 0.001);
  CHECK(rates[0]["runs"][0]["batch"] == 64);
  CHECK(rates[0]["runs"][1]["batch"] == 128);
  CHECK(rates[0]["runs"][1]["dev_accuracy"] == 25);
  CHECK(rates[0]["runs"][1]["seconds"] == 10);
}

TEST_CASE(
    "an evaluation stands at its own seconds, also before the first log point and between two") {
  const Folder folder;
  write_run(folder, "run", "softmax", false);
  const auto eval = [](int step, double seconds) {
    return fmt::format(
        R"({{"kind":"eval","split":"dev","step":{},"accuracy":0.25,"loss":2,"train_seconds":{}}})"
        "\n",
        step, seconds);
  };
  const std::string early = eval(4, 0.5);
  const auto curve = [&] { return report_of(folder)["curves"][0]["lines"][0]["runs"][0]; };
  folder.write("run/metrics.jsonl", early);
  CHECK(curve()["dev_seconds"] == Json::array({0.5}));
  CHECK(row_of(report_of(folder)["runs"], "Runs", "run")[6] == "at 4 of 20");

  folder.write("run/metrics.jsonl",
               early +
                   R"({"kind":"train","step":10,"loss":2.5,"steps_per_second":10.0})"
                   "\n" +
                   eval(14, 1.75));
  CHECK(curve()["seconds"] == Json::array({1}));
  CHECK(curve()["dev_seconds"] == Json::array({0.5, 1.75}));
}

TEST_CASE("a report shows pre-trainings, alone and inside a run of two phases, by themselves") {
  const Folder folder;
  write_run(folder, "both", "softmax", true);
  for (const char* run : {"both/pretraining", "alone"}) {
    const std::string name = run;
    write_run(folder, run, name == "alone" ? "linformer" : "skyformer", true);
    for (const std::string& file : {name + "/config.json", name + "/result.json"}) {
      Json json = data::parse_json(read_file(folder.path() / file));
      json["phase"] = "pretraining";
      json["settings"]["pretrain_steps"] = {{"value", "40"}, {"origin", "--set"}};
      json["masked_accuracy"] = 0.5;
      json["masked_loss"] = 1.0;
      json["perplexity"] = 2.718;
      folder.write(file, data::json_text(json));
    }
  }
  const auto out = folder.path() / "report";
  const ReportSummary summary = write_report({folder.path(), out});
  CHECK(summary.finished == 1);
  CHECK(summary.skipped.empty());
  const Json report = data::parse_json(read_file(out / "report.json"));
  const Json row = row_of(report["runs"], "Pre-trainings", "both/pretraining");
  CHECK(row[5] == "at 20 of 40");
  CHECK(row[6] == 50);
  CHECK(row[7] == 2.718);
  REQUIRE(report["curves"].size() == 2);
  CHECK(report["curves"][1]["pretraining"] == true);
  CHECK(report["curves"][1]["papers_best"].is_null());
  CHECK(report["curves"][1]["lines"][0]["name"] == "linformer");
}

TEST_CASE("a foreign, an old and a broken result.json are skipped and named") {
  const Folder folder;
  for (const char* run : {"good", "foreign", "old", "torn", "wordy"}) {
    write_run(folder, run, "softmax", true);
  }
  folder.write("foreign/result.json", R"({"accuracy": "0.9", "model": "of another program"})");
  Json old = data::parse_json(read_file(folder.path() / "old/result.json"));
  old.erase("steps");
  folder.write("old/result.json", data::json_text(old));
  folder.write("torn/result.json", "{\"task\": ");
  Json config = data::parse_json(read_file(folder.path() / "wordy/config.json"));
  config["settings"]["steps"]["value"] = "many";
  folder.write("wordy/config.json", data::json_text(config));

  const ReportSummary summary = write_report({folder.path(), folder.path() / "out"});
  CHECK(summary.finished == 1);
  CHECK(summary.skipped.size() == 4);
  for (const char* run : {"foreign: ", "old: ", "torn: ", "wordy: "}) {
    CHECK(std::any_of(summary.skipped.begin(), summary.skipped.end(),
                      [&](const std::string& line) { return line.starts_with(run); }));
  }
  for (const std::string& line : summary.skipped) {
    CAPTURE(line);
    CHECK_FALSE(contains(line, "json.exception"));
    CHECK_FALSE(contains(line, "stoll"));
  }
}

TEST_CASE("runs of several seeds are one line, runs of several settings one each") {
  const Folder folder;
  write_run(folder, "a", "softmax", true);
  write_run(folder, "b", "softmax", false);
  std::string metrics = read_file(folder.path() / "b/metrics.jsonl");
  metrics.replace(metrics.find("2.5"), 3, "3.5");                  // loss of step 10
  metrics.replace(metrics.find("10.0"), 4, "5.00");                // two seconds until there
  metrics.erase(metrics.find("{\"kind\":\"train\",\"step\":20"));  // not there yet
  folder.write("b/metrics.jsonl", metrics);
  const auto lines = [&] { return report_of(folder)["curves"][0]["lines"]; };
  REQUIRE(lines().size() == 1);
  CHECK(lines()[0]["name"] == "softmax");
  REQUIRE(lines()[0]["runs"].size() == 2);
  CHECK(lines()[0]["runs"][1]["loss"] == Json::array({3.5}));
  CHECK(lines()[0]["runs"][1]["seconds"] == Json::array({2}));
  Json config = data::parse_json(read_file(folder.path() / "b/config.json"));
  config["recipe"] = "skyformer";  // a label: what they compute is the same
  folder.write("b/config.json", data::json_text(config));
  CHECK(lines().size() == 1);
  config["settings"]["dropout"] = {{"value", "0.3"}, {"origin", "recipe skyformer"}};
  folder.write("b/config.json", data::json_text(config));
  REQUIRE(lines().size() == 2);
  CHECK(lines()[1]["name"] == "b");
}

TEST_CASE("a report of one run's folder is of that run") {
  const Folder folder;
  write_run(folder, "runs/done", "softmax", true);
  write_run(folder, "runs/other", "vmean", true);
  for (const char* runs : {"runs/done", "runs/done/", "runs/done/."}) {
    const ReportSummary summary = write_report({folder.path() / runs, folder.path() / "out"});
    CHECK(summary.finished == 1);
    CHECK(summary.skipped.empty());
    const Json report = data::parse_json(read_file(folder.path() / "out/report.json"));
    CHECK(row_of(report["runs"], "Runs", "done")[2] == "softmax");
    CHECK(row_of(report["runs"], "Runs", "other").is_null());
  }
}

TEST_CASE("a report calls an encoder no run, and not broken") {
  const Folder folder;
  write_run(folder, "done", "softmax", true);
  folder.write("theirs/config.json", R"({"model_type": "bert", "hidden_size": 12})");
  const ReportSummary summary = write_report({folder.path(), folder.path() / "out"});
  CHECK(summary.finished == 1);
  CHECK(summary.skipped == std::vector<std::string>{"theirs: an encoder, which is no run"});
}

TEST_CASE("a report of nothing is refused") {
  const Folder folder;
  const auto refused = [&](const std::filesystem::path& runs) {
    return error_of<DataError>([&] { (void)write_report({runs, folder.path() / "out"}); });
  };
  CHECK(contains(refused(folder.path() / "nowhere"), "nowhere: no folder of runs"));
  CHECK(contains(refused(folder.path()), "no run and no study there"));
  folder.write("broken/config.json", "{}");
  CHECK(contains(refused(folder.path()), "no run and no study there; broken: broken: "));
  CHECK_FALSE(std::filesystem::exists(folder.path() / "out"));
}

TEST_CASE("report names the file that it wrote, and what makes its page") {
  if (!test::program_or_skip()) return;
  const Folder folder;
  write_run(folder, "runs/going", "skyformer", false);
  const test::Finished finished =
      test::run_program(folder.path(), {"report", "--runs", folder.path() / "runs"});
  CHECK(finished.code == 0);
  CHECK(contains(finished.out, "runs/report/report.json: runs: 0 finished, 1 not; studies: 0"));
  CHECK(contains(finished.out, "its page: train/report/page.py "));
  CHECK(std::filesystem::exists(folder.path() / "runs/report/report.json"));
}
