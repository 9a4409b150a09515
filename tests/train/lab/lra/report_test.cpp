#include "train/lab/lra/report.hpp"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/no_programs.hpp"
#include "tests/train/cli/program.hpp"
#include "train/formats/html.hpp"
#include "train/formats/looks.hpp"
#include "train/formats/plot.hpp"
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
  (void)times.add("listops", {250, 90.0, 8'200'000, 0.38});
  result["test_examples"] = 100;
  result["time_to_accuracy"] = to_json(times, "listops");
  folder.write(name + "/result.json", data::json_text(result));
}

}  // namespace

TEST_CASE("a report shows finished and unfinished runs and studies, and names what is broken") {
  const Folder folder;
  const test::NoPrograms no_gnuplot;
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
  folder.write("study/error.svg", "<svg>'#'</svg>");

  const auto out = folder.path() / "report";
  const ReportSummary summary = write_report({folder.path(), out, 0});
  CHECK(summary.finished == 1);
  CHECK(summary.unfinished == 1);
  CHECK(summary.studies == 1);
  CHECK_FALSE(summary.pictures);
  REQUIRE(summary.skipped.size() == 1);
  CHECK(summary.skipped[0].starts_with("broken: broken: "));

  const std::string page = read_file(out / "report.html");
  CHECK(contains(page, "<td>softmax</td><td>skytape, steps=20</td><td>37.50</td>"));  // accuracy
  CHECK(contains(page, "<td>at 20 of 20</td><td class=\"number\">-</td>"));  // no dev accuracy
  CHECK(contains(page, "<td>90 s, step 250, 8.2 M tokens</td>"));            // time to accuracy
  CHECK(contains(page, "a &lt;small&gt; one"));
  CHECK(contains(page, "Errors &amp; bounds"));
  CHECK(contains(page, "<td class=\"number\">8</td><td class=\"number\">-</td>"));
  CHECK(contains(page, "data:image/svg+xml;charset=utf-8,%3Csvg%3E%27%23%27%3C/svg%3E"));
  CHECK(contains(page, "<li>broken: "));
  CHECK(contains(page, "apt-get install gnuplot-nox"));
  CHECK_FALSE(contains(page, "http-equiv"));
  CHECK_FALSE(contains(page, "<script"));
  const std::string curves = read_file(out / "curves-listops.dat");
  CHECK(contains(curves, "Loss against steps: softmax\n# x y low high\n10 2.5 2.5 2.5\n20 2.25"));
  CHECK(contains(curves, "Loss against time: skyformer\n# x y low high\n1 2.5 2.5 2.5\n3 2.25"));
  CHECK(contains(curves, "Dev accuracy against time: softmax\n# x y low high\n1 25 25 25\n"));

  (void)write_report({folder.path(), out, 5});
  CHECK(contains(read_file(out / "report.html"), "http-equiv=\"refresh\" content=\"5\""));
}

TEST_CASE(
    "an evaluation stands at its own seconds, also before the first log point and between two") {
  const Folder folder;
  const test::NoPrograms no_gnuplot;
  write_run(folder, "run", "softmax", false);
  const auto eval = [](int step, double seconds) {
    return fmt::format(
        R"({{"kind":"eval","split":"dev","step":{},"accuracy":0.25,"loss":2,"train_seconds":{}}})"
        "\n",
        step, seconds);
  };
  const std::string early = eval(4, 0.5);
  const auto curves = [&] {
    (void)write_report({folder.path(), folder.path() / "out", 0});
    return read_file(folder.path() / "out/curves-listops.dat");
  };
  folder.write("run/metrics.jsonl", early);
  CHECK(contains(curves(), "Dev accuracy against time: softmax\n# x y low high\n0.5 25 25 25\n"));
  CHECK(contains(read_file(folder.path() / "out/report.html"), "<td>at 4 of 20</td>"));

  folder.write("run/metrics.jsonl",
               early +
                   R"({"kind":"train","step":10,"loss":2.5,"steps_per_second":10.0})"
                   "\n" +
                   eval(14, 1.75));
  const std::string text = curves();
  CHECK(contains(text, "Loss against time: softmax\n# x y low high\n1 2.5 2.5 2.5\n"));
  CHECK(contains(
      text, "Dev accuracy against time: softmax\n# x y low high\n0.5 25 25 25\n1.75 25 25 25\n"));
}

TEST_CASE("a report shows pre-trainings, alone and inside a run of two phases, by themselves") {
  const Folder folder;
  const test::NoPrograms no_gnuplot;
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
  const ReportSummary summary = write_report({folder.path(), out, 0});
  CHECK(summary.finished == 1);
  CHECK(summary.skipped.empty());
  const std::string page = read_file(out / "report.html");
  CHECK(contains(page, "<h2>Pre-trainings</h2>"));
  CHECK(contains(page, "<td>both/pretraining</td>"));
  CHECK(contains(page, "<td>at 20 of 40</td><td class=\"number\">50.00</td>"));
  CHECK(contains(page, "2.718"));
  CHECK(contains(read_file(out / "pretraining-listops.dat"),
                 "Dev accuracy against steps: linformer"));
}

TEST_CASE("a foreign, an old and a broken result.json are skipped and named") {
  const Folder folder;
  const test::NoPrograms no_gnuplot;
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

  const ReportSummary summary = write_report({folder.path(), folder.path() / "out", 0});
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

TEST_CASE("runs of several seeds are one line with a band, runs of several settings one each") {
  const Folder folder;
  const test::NoPrograms no_gnuplot;
  write_run(folder, "a", "softmax", true);
  write_run(folder, "b", "softmax", false);
  std::string metrics = read_file(folder.path() / "b/metrics.jsonl");
  metrics.replace(metrics.find("2.5"), 3, "3.5");                  // loss of step 10
  metrics.replace(metrics.find("10.0"), 4, "5.00");                // two seconds until there
  metrics.erase(metrics.find("{\"kind\":\"train\",\"step\":20"));  // not there yet
  folder.write("b/metrics.jsonl", metrics);
  (void)write_report({folder.path(), folder.path() / "out", 0});
  const std::string curves = read_file(folder.path() / "out/curves-listops.dat");
  CHECK(
      contains(curves, "Loss against steps: softmax\n# x y low high\n10 3 2.5 3.5\n20 2.25 2.25"));
  CHECK(contains(curves, "Loss against time: softmax\n# x y low high\n1.5 3 2.5 3.5\n3 2.25"));
  const std::string script = read_file(folder.path() / "out/curves-listops.gp");
  CHECK(contains(script,
                 "index 0 using 1:3:4 with filledcurves lc rgb '" + look_of("softmax").colour));
  CHECK(contains(script, "bands: lowest to highest"));
  Json config = data::parse_json(read_file(folder.path() / "b/config.json"));
  config["recipe"] = "skyformer";  // a label: what they compute is the same
  folder.write("b/config.json", data::json_text(config));
  (void)write_report({folder.path(), folder.path() / "out", 0});
  CHECK(contains(read_file(folder.path() / "out/curves-listops.dat"), "against steps: softmax\n"));
  config["settings"]["dropout"] = {{"value", "0.3"}, {"origin", "recipe skyformer"}};
  folder.write("b/config.json", data::json_text(config));
  (void)write_report({folder.path(), folder.path() / "out", 0});
  CHECK(contains(read_file(folder.path() / "out/curves-listops.dat"), "Loss against steps: b\n"));
}

TEST_CASE("a report of one run's folder is of that run, and a page has the name that is said") {
  const Folder folder;
  const test::NoPrograms no_gnuplot;
  write_run(folder, "runs/done", "softmax", true);
  write_run(folder, "runs/other", "vmean", true);
  const auto page = folder.path() / "pages/mine.html";
  for (const char* runs : {"runs/done", "runs/done/", "runs/done/."}) {
    const ReportSummary summary = write_report({folder.path() / runs, page, 0});
    CHECK(summary.finished == 1);
    CHECK(summary.skipped.empty());
    CHECK(summary.page == page);
    REQUIRE(std::filesystem::is_regular_file(page));
    CHECK(contains(read_file(page), "<td>done</td>"));
    CHECK_FALSE(contains(read_file(page), "vmean</td>"));
    CHECK(std::filesystem::exists(folder.path() / "pages/curves-listops.dat"));
    CHECK_FALSE(std::filesystem::exists(folder.path() / "pages/report.html"));
  }
}

TEST_CASE("a report calls an encoder no run, and not broken") {
  const Folder folder;
  const test::NoPrograms no_gnuplot;
  write_run(folder, "done", "softmax", true);
  folder.write("theirs/config.json", R"({"model_type": "bert", "hidden_size": 12})");
  const ReportSummary summary = write_report({folder.path(), folder.path() / "out", 0});
  CHECK(summary.finished == 1);
  CHECK(summary.skipped == std::vector<std::string>{"theirs: an encoder, which is no run"});
}

TEST_CASE("a report of nothing is refused") {
  const Folder folder;
  const auto refused = [&](const std::filesystem::path& runs) {
    return error_of<DataError>([&] { (void)write_report({runs, folder.path() / "out", 0}); });
  };
  CHECK(contains(refused(folder.path() / "nowhere"), "nowhere: no folder of runs"));
  CHECK(contains(refused(folder.path()), "no run and no study there"));
  folder.write("broken/config.json", "{}");
  CHECK(contains(refused(folder.path()), "no run and no study there; broken: broken: "));
  CHECK_FALSE(std::filesystem::exists(folder.path() / "out"));
}

TEST_CASE("a watched report is made again until a signal comes") {
  if (!test::program_or_skip()) return;
  const Folder folder;
  const test::NoPrograms no_gnuplot;
  write_run(folder, "runs/going", "skyformer", false);
  test::Program program(folder.path(),
                        {"report", "--runs", folder.path() / "runs", "--watch", "1"});
  const auto page = folder.path() / "runs/report/report.html";
  const auto wait_for_page = [&] {
    while (program.running() && !std::filesystem::exists(page)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  };
  wait_for_page();
  std::filesystem::remove(page);
  wait_for_page();
  program.kill(SIGINT);
  const test::Finished finished = program.wait();
  CHECK(finished.code == 0);
  CHECK(contains(finished.out, "report.html: runs: 0 finished, 1 not; studies: 0"));
  CHECK(contains(read_file(page), "content=\"1\""));
}
