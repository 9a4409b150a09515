// Runs whose config.json or result.json somebody has edited by hand: what contradicts is refused
// with both sides, and what is of another kind than it was is a sentence, whatever reads it.
#include <functional>

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/program.hpp"

using namespace skytape;
using namespace skytape::test;
using data::Json;
using data::synthetic::Folder;
using data::synthetic::read_file;

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

/// A small run on a CSV file of three classes with words as tokens.
struct EditedRun {
  Folder folder;
  std::string data = (folder.path() / "data").string(), run = (folder.path() / "runs/r").string();

  EditedRun() {
    std::string rows = "kind;words\n";
    constexpr const char* kRows[] = {"ham;green green green", "spam;nasty nasty nasty",
                                     "eggs;white white white"};
    for (int i = 0; i < 90; ++i) rows += kRows[i % 3] + std::string("\n");
    const auto file = folder.write("own.csv", rows).string();
    const Finished prepared =
        finish({"data", "--task", "tsv", "--from", file, "--tokens", "words", "--delimiter", ";",
                "--label-column", "kind", "--text-column", "words", "--data", data});
    REQUIRE_MESSAGE(prepared.code == 0, prepared.err);
    const Finished trained = finish({"train",        "--task",       "tsv",        "--attention",
                                     "vmean",        "--seed",       "7",          "--data",
                                     data,           "--out",        run,          "--steps",
                                     "40",           "--batch",      "9",          "--device",
                                     "cpu",          "--threads",    "1",          "--set",
                                     "max_length=8", "width=8",      "ff_width=8", "heads=2",
                                     "lr=0.03",      "eval_every=20"});
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
    folder.write("asked.csv", "words\ngreen green\nwhite\n");
  }

  [[nodiscard]] Finished finish(const Words& arguments) const {
    return run_program(folder.path(), arguments);
  }
  [[nodiscard]] fs::path file(const std::string& name) const { return fs::path(run) / name; }
  /// Changes a file of the run.
  void edit(const std::string& name, const std::function<void(Json&)>& change) const {
    Json json = data::parse_json(read_file(file(name)));
    change(json);
    folder.write("runs/r/" + name, data::json_text(json));
  }
  /// Every command that reads a run.
  [[nodiscard]] std::vector<Words> readers() const {
    const std::string asked = (folder.path() / "asked.csv").string();
    return {{"predict", "--run", run, "--from", asked, "--device", "cpu"},
            {"eval", "--run", run, "--device", "cpu"},
            {"train", "--resume", "--out", run},
            {"train", "--recipe", run + "/config.json", "--print-config"},
            {"info", "run", run},
            {"report", "--runs", run, "--out", (folder.path() / "one").string()},
            {"report", "--runs", (folder.path() / "runs").string(), "--out",
             (folder.path() / "page").string()}};
  }
};

/// Every part of a JSON value; of a list the first entry.
void visit(const Json& value, const Json::json_pointer& at,
           const std::function<void(const Json::json_pointer&)>& see) {
  if (!at.empty()) see(at);
  if (value.is_array() && !value.empty()) visit(value[0], at / std::size_t{0}, see);
  if (!value.is_object()) return;
  for (const auto& [key, part] : value.items()) visit(part, at / key, see);
}

}  // namespace

TEST_CASE(
    "labels that config.json and the weights, or the data, have in another order are refused") {
  if (!program_or_skip()) return;
  const EditedRun w;
  const std::string config = read_file(w.file("config.json"));
  const std::vector<Words> readers = w.readers();
  const Finished good = w.finish(readers[0]);
  CHECK(good.out == "ham\neggs\n");

  const auto refused = [&](const Words& command, const std::string& one, const std::string& other) {
    const Finished f = w.finish(command);
    CAPTURE(f.err);
    CHECK(f.code == 3);
    CHECK(f.out.empty());
    CHECK(contains(f.err, one));
    CHECK(contains(f.err, other));
  };
  const std::string right = R"(["eggs","ham","spam"])", wrong = R"(["ham","eggs","spam"])";
  const auto swap_labels = [](Json& labels) { std::swap(labels[0], labels[1]); };
  SUBCASE("in one of its two places") {
    w.edit("config.json", [&](Json& c) { swap_labels(c["data_provenance"]["labels"]); });
    for (std::size_t i = 0; i < 3; ++i) refused(readers[i], wrong, right);
  }
  SUBCASE("in both") {
    w.edit("config.json", [&](Json& c) {
      swap_labels(c["data_provenance"]["labels"]);
      swap_labels(c["model"]["labels"]);
    });
    for (std::size_t i = 0; i < 3; ++i) refused(readers[i], wrong, right);
  }
  SUBCASE("a label that is gone, or renamed") {
    w.edit("config.json", [&](Json& c) {
      c["data_provenance"]["labels"] = {"eggs", "ham"};
      c["model"]["labels"] = {"eggs", "ham"};
    });
    for (std::size_t i = 0; i < 3; ++i) refused(readers[i], R"(["eggs","ham"])", right);
  }
  SUBCASE("all that is said of the data is gone") {
    w.edit("config.json", [&](Json& c) { c.erase("data_provenance"); });
    for (std::size_t i = 0; i < 2; ++i) refused(readers[i], "config.json", "safetensors");
  }
  SUBCASE("a word of the vocabulary") {
    w.edit("config.json", [&](Json& c) {
      Json& words = c["data_provenance"]["vocabulary"];
      std::swap(words[0], words[1]);
    });
    for (std::size_t i = 0; i < 2; ++i) refused(readers[i], "vocabulary: ", "config.json");
  }
  SUBCASE("the columns") {
    w.edit("config.json", [&](Json& c) {
      Json& columns = c["data_provenance"]["sources"][0]["columns"];
      REQUIRE(columns["text"] == "words");
      std::swap(columns["text"], columns["label"]);
    });
    refused(readers[0], R"("text":"kind")", R"("text":"words")");
  }
  SUBCASE("the data") {  // the same examples under other names
    std::string rows = read_file(w.folder.path() / "own.csv");
    for (std::size_t at; (at = rows.find("ham;")) != rows.npos;) rows.replace(at, 4, "jam;");
    const std::string renamed = w.folder.write("own.csv", rows).string();
    REQUIRE(w.finish({"data", "--task", "tsv", "--from", renamed, "--tokens", "words",
                      "--delimiter", ";", "--label-column", "kind", "--text-column", "words",
                      "--data", w.data, "--force"})
                .code == 0);
    refused(readers[1], right, R"(["eggs","jam","spam"])");
    CHECK(w.finish(readers[0]).out == "ham\neggs\n");  // who reads no data has the weights' labels
  }
}

TEST_CASE("a value of another kind in config.json or result.json is a sentence for every command") {
  if (!program_or_skip()) return;
  const EditedRun w;
  const Json odd[] = {7, "odd", Json(), Json::array({1, 2}), true, Json::object({{"a", 1}}), -1.5};
  int tried = 0;
  for (const char* name : {"config.json", "result.json"}) {
    const std::string whole = read_file(w.file(name));
    const Json good = data::parse_json(whole);
    std::vector<Json::json_pointer> parts;
    visit(good, Json::json_pointer(), [&](const Json::json_pointer& at) {
      // Settings are alike, and nobody reads more than two entries of a machine's metadata.
      const std::string path = at.to_string();
      if (path.starts_with("/settings/") && !path.starts_with("/settings/lr")) return;
      if (path.starts_with("/machine/") && path != "/machine/cpu" && path != "/machine/threads") {
        return;
      }
      parts.push_back(at);
    });
    REQUIRE(parts.size() > 20);
    for (const Json::json_pointer& at : parts) {
      // Each part gets one odd value, and each reader its turn: all pairs would take minutes.
      const std::vector<Words> readers = w.readers();
      const Json& value = odd[tried % std::size(odd)];
      const Words& reader = readers[static_cast<std::size_t>(tried) % readers.size()];
      ++tried;
      Json bad = good;
      bad[at] = value;
      w.folder.write(std::string("runs/r/") + name, data::json_text(bad));
      const Finished f = w.finish(reader);
      CAPTURE(name);
      CAPTURE(at.to_string());
      CAPTURE(data::json_text(value));
      CAPTURE(reader[0]);
      CAPTURE(f.err);
      CHECK(f.code <= 3);
      CHECK_FALSE(f.killed);
      for (const char* raw : {"please report", "json.exception", "std::", "type must be"}) {
        CHECK_FALSE(contains(f.err, raw));
      }
    }
    w.folder.write(std::string("runs/r/") + name, whole);
  }
  const auto refused = [&](const char* at, const Json& value, const char* part) {
    const std::string whole = read_file(w.file("config.json"));
    w.edit("config.json", [&](Json& c) { c[Json::json_pointer(at)] = value; });
    const Finished f = w.finish(w.readers()[0]);
    CAPTURE(f.err);
    CHECK(f.code == 3);
    CHECK(contains(f.err, part));
    w.folder.write("runs/r/config.json", whole);
  };
  refused("/data_provenance/labels", {1, 2, 3},
          "config.json: data_provenance.labels: expected a list of texts, got [1,2,3]");
  refused("/data_provenance/sources/0/columns/text", 2, "columns.text: expected a text, got 2");
  refused("/data_provenance/sources/0/delimiter", 5, "delimiter: expected a text, got 5");
  refused("/settings/lr", 0.03, "config.json: settings.lr: expected an object, got 0.03");
  refused("/settings/lr/value", 0.03, "settings.lr: value: expected a text, got 0.03");
  refused("/seed", -7, "config.json: seed: expected a natural number, got -7");
}

TEST_CASE(
    "a line of another kind in metrics.jsonl is named, and so is config.json for its values") {
  if (!program_or_skip()) return;
  const EditedRun w;
  const std::string metrics = read_file(w.file("metrics.jsonl"));
  const auto refused = [&](const Words& command, const char* expected) {
    const Finished f = w.finish(command);
    CAPTURE(f.err);
    CHECK(f.code == 3);
    CHECK(contains(f.err, expected));
  };
  const Words info = {"info", "run", w.run};
  w.folder.write("runs/r/metrics.jsonl", R"({"kind":5,"step":3})"
                                         "\n" +
                                             metrics);
  refused(info, "metrics.jsonl:1: kind: expected a text, got 5");
  w.folder.write("runs/r/metrics.jsonl", R"({"kind":"train","step":3,"loss":"x"})"
                                         "\n" +
                                             metrics);
  refused(info, "metrics.jsonl:1: loss: expected a number, got \"x\"");
  w.folder.write("runs/r/metrics.jsonl", "{\"kind\":\n" + metrics);  // cut off by a kill
  CHECK(w.finish(info).code == 0);
  w.edit("config.json", [](Json& config) { config["settings"]["steps"]["value"] = "x"; });
  refused(w.readers()[0], "config.json: steps: expected 3..1000000000, got 'x'");
}

TEST_CASE("NaN in a file of a run is said to be no number of JSON, with its line") {
  if (!program_or_skip()) return;
  const EditedRun w;
  std::string result = read_file(w.file("result.json"));
  const std::size_t at = result.find("\"test_loss\": ");
  REQUIRE(at != result.npos);
  result.replace(at, result.find_first_of(",\n", at) - at, "\"test_loss\": NaN");
  w.folder.write("runs/r/result.json", result);
  const Finished f = w.finish({"info", "run", w.run});
  CAPTURE(f.err);
  CHECK(f.code == 3);
  CHECK(contains(f.err, "result.json: not a JSON object: "));
  CHECK(contains(f.err, "line "));
  CHECK(contains(f.err, "NaN and Infinity are no numbers of JSON"));
}
