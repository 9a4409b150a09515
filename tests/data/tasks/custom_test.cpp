// Custom data: what files of labels and texts become, and what is said about odd ones.
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "data/custom/records.hpp"
#include "data/files/csv.hpp"
#include "data/files/json.hpp"
#include "data/files/source.hpp"
#include "tests/data/tasks/custom_folder.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::data;
using namespace skytape::data::synthetic;
using test::contains;

namespace fs = std::filesystem;

TEST_CASE("own lines are split 80/10/10 with labels as classes in sorted order") {
  const CustomFolder custom;
  REQUIRE(custom.prepare(custom.folder.write("custom.tsv", rows(100))).error.empty());
  const Description facts = describe(custom.task, custom.folder.path());
  CHECK(facts.splits[0].examples == 80);
  CHECK(facts.splits[1].examples == 10);
  CHECK(facts.splits[2].examples == 10);
  std::int64_t ham = 0;
  for (const SplitFacts& split : facts.splits) ham += split.label_counts.at(0);
  CHECK(ham == 75);
  CHECK(contains(facts.provenance, "\"labels\":[\"ham\",\"spam\"]"));

  std::string numbers;
  for (int i = 0; i < 30; ++i) numbers += std::to_string(i % 3 * 5) + "\tx\n";
  REQUIRE(custom.prepare(custom.folder.write("custom.tsv", numbers)).error.empty());
  CHECK(contains(custom.provenance(), "[\"0\",\"5\",\"10\"]"));
}

TEST_CASE("a third column that nobody asked for is said to be part of the text") {
  const CustomFolder custom;
  std::string pairs;
  for (int i = 0; i < 30; ++i)
    pairs += std::to_string(i % 2) + "\ta " + std::to_string(i) + "\tb\n";
  const auto file = custom.folder.write("custom.tsv", pairs);
  CHECK(contains(custom.prepare(file).warnings, "every text has a tab, which is part of it"));
  PrepareOptions options;
  options.columns = {"1", "2", "3"};
  CHECK(custom.prepare(file, options).warnings.empty());
  CHECK(contains(custom.provenance(), "\"pairs\":true"));
  // One text among others may have a tab.
  CHECK(
      custom.prepare(custom.folder.write("custom.tsv", rows(40) + "ham\tx\ty\n")).warnings.empty());
  if (!can_read_csv()) return;
  const auto commas = custom.folder.write("custom.csv", "0,a,b\n");
  CHECK(contains(custom.prepare(commas).error, "--text2-column"));
}

TEST_CASE("rows that are broken are refused with file, row and reason") {
  const auto text_of = [](std::string_view text, RecordOptions options = {}) {
    const auto stream = open_memory({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    return error_of([&] { read_records(*stream, "own", options, [](const Record&) {}); });
  };
  CHECK(text_of("a\tb\n\nc\td\r\n").empty());
  CHECK(text_of("a\tb\nc d\n") ==
        "own:2: no tab in 'c d', expected label<TAB>text; --delimiter names another character");
  CHECK(contains(text_of("\tb\n"), "empty label"));
  CHECK(contains(text_of("a\t\n"), "empty text"));
  CHECK(contains(text_of("a\x01\tb\n"), "control characters"));
  CHECK(text_of(std::string(200, 'a') + "\tb\n").empty());
  CHECK(contains(text_of(std::string(201, 'a') + "\tb\n"), "more than 200 bytes"));
  CHECK(contains(text_of("label\ttext\ttext2\na\tb\t\n"), "own:2: empty second text"));

  const RecordOptions json{RecordFormat::jsonl};
  CHECK(text_of("{\"label\": 1, \"text\": \"a\"}\n\n{\"label\": true, \"text\": \"b\"}", json)
            .empty());
  CHECK(contains(text_of("{\"label\": 1, \"text\": \"a\"}\n{\"text\": \"a\"}", json),
                 "own:2: no label"));
  CHECK(contains(text_of("{\"label\": [1], \"text\": \"a\"}", json), "own:1: no label"));
  CHECK(contains(text_of("{\"label\": 1", json), "own:1: no JSON object with a text"));
  CHECK(contains(text_of("[1]", json), "own:1: no JSON object with a text"));
  CHECK(
      contains(text_of("{\"label\": 1, \"text\": 2}", json), "own:1: no JSON object with a text"));
  CHECK(contains(text_of(R"({"label": "a\nb", "text": "a"})", json), "control characters"));
  CHECK(contains(text_of("", {RecordFormat::jsonl, true}), "--header"));

  const CustomFolder custom;
  CHECK(contains(custom.prepare(custom.folder.write("custom.tsv", "a\tb\n")).error, "1 lines"));
  CHECK(contains(custom.prepare(custom.folder.write("custom.tsv", "a\tb\nb\tc\n")).error,
                 "at least 10"));
  std::string same;
  for (int i = 0; i < 12; ++i) same += "a\tb\n";
  CHECK(contains(custom.prepare(custom.folder.write("custom.tsv", same)).error,
                 "1 different label, expected 2"));
}

TEST_CASE("a byte order mark makes no class of its own") {
  const CustomFolder custom;
  const Said said = custom.prepare(custom.folder.write("custom.tsv", "\xEF\xBB\xBF" + rows(40)));
  CHECK(said.error.empty());
  CHECK(said.warnings.empty());
  CHECK(custom.split("train").classes() == 2);
}

TEST_CASE("a first row whose label occurs nowhere else is said, and --header reads names in it") {
  const CustomFolder custom;
  const auto file = custom.folder.write("custom.tsv", "class\twords\n" + rows(40));
  const Said said = custom.prepare(file);
  CHECK(said.error.empty());
  CHECK(contains(said.warnings, "a class with a single example: 'class'"));
  CHECK(contains(said.warnings, "'class' is the label of a first row and of no other"));
  CHECK(custom.split("train").classes() == 3);

  PrepareOptions options;
  options.header = true;
  CHECK(contains(custom.prepare(file, options).error, "no column 'text' in class,words"));
  options.columns.text = "words";
  const Said named = custom.prepare(file, options);
  CHECK(named.error.empty());
  CHECK(named.warnings.empty());
  CHECK(custom.split("train").classes() == 2);
  CHECK(contains(custom.provenance(), "\"columns\":{\"label\":\"class\",\"text\":\"words\"}"));

  // In a folder each file has its header: the label occurs three times, always in a first row.
  for (const char* split : {"train", "dev", "test"}) {
    custom.folder.write(std::string("mine/") + split + ".csv",
                        "kind,clip\nham,one " + std::string(split) + "\nspam,two " + split + "\n");
  }
  if (can_read_csv()) {
    CHECK(contains(custom.prepare(custom.folder.path() / "mine").warnings,
                   "'kind' is the label of 3 first rows and of no other"));
  }
  for (const char* split : {"train", "dev", "test"}) {
    custom.folder.write(std::string("named/") + split + ".tsv",
                        "text\tlabel\none " + std::string(split) + "\tham\ntwo\tspam\n");
  }
  const Said known = custom.prepare(custom.folder.path() / "named");
  CHECK(known.error.empty());
  CHECK(contains(known.warnings, "test.tsv: columns found by name: label 'label'"));
  CHECK(custom.split("train").classes() == 2);
  CHECK(custom.texts("dev") == std::vector<std::string>{"one dev", "two"});

  // A rare label further down is no header.
  const Said rare = custom.prepare(custom.folder.write("custom.tsv", rows(40) + "eggs\tx\n"));
  CHECK(contains(rare.warnings, "a class with a single example: 'eggs'"));
  CHECK_FALSE(contains(rare.warnings, "--header"));
}

TEST_CASE("texts that lose their end are counted and said") {
  const CustomFolder custom;
  const std::string fits(2048, 'x'), longer(2049, 'y');
  const Said said = custom.prepare(custom.folder.write(
      "custom.tsv", rows(40) + "ham\t" + fits + "\nham\t" + longer + "\nspam\t" + longer + "\n"));
  CHECK(said.error.empty());
  CHECK(contains(said.warnings, "2 of 43 texts have more than 2048 tokens"));
  std::int64_t counted = 0;
  for (const char* split : {"train", "dev", "test"})
    counted += custom.split(split).longer_than(2048);
  CHECK(counted == 2);
}

TEST_CASE("a folder with train, dev and test is taken as it is") {
  const CustomFolder custom;
  custom.folder.write("mine/train.tsv", "ham\tone\nspam\ttwo\nham\tthree\nspam\tfour\n");
  custom.folder.write("mine/dev.jsonl", "{\"label\": \"ham\", \"text\": \"five\"}\n");
  CHECK(contains(custom.prepare(custom.folder.path() / "mine").error, "no test.tsv"));
  custom.folder.write("mine/test.tsv", "spam\tsix\nham\tseven\neggs\teight\neggs\tnine\n");
  const Said said = custom.prepare(custom.folder.path() / "mine");
  CHECK(said.error.empty());
  CHECK(contains(said.warnings, "train has no example of 'eggs'"));
  CHECK(custom.texts("train") == std::vector<std::string>{"one", "two", "three", "four"});
  CHECK(custom.texts("dev") == std::vector<std::string>{"five"});
  CHECK(custom.texts("test") == std::vector<std::string>{"six", "seven", "eight", "nine"});
  CHECK(custom.split("test").label(2) == 0);  // eggs, ham, spam
  custom.folder.write("mine/dev.tsv", "ham\tfive\n");
  CHECK(contains(custom.prepare(custom.folder.path() / "mine").error, "expected one file for dev"));
  fs::remove(custom.folder.path() / "mine/dev.jsonl");
  custom.folder.write("mine/dev.tsv", "");
  CHECK(contains(custom.prepare(custom.folder.path() / "mine").error,
                 "no example for split dev in "));
  custom.folder.write("mine/dev.tsv", "label\ttext\ttext2\nham\tfive\tfiver\n");
  CHECK(contains(custom.prepare(custom.folder.path() / "mine").error, "two texts, unlike "));
  PrepareOptions options;
  options.stratify = true;
  CHECK(contains(custom.prepare(custom.folder.path() / "mine", options).error,
                 "--stratify: the folder is split already"));
}

TEST_CASE("what is exported shows each split, and prepared again is the same set") {
  const CustomFolder custom;
  const auto exported = custom.folder.path() / "exported";
  const auto fingerprints = [&] {
    std::vector<std::string> all;
    for (const char* split : {"train", "dev", "test"})
      all.push_back(custom.split(split).fingerprint());
    return all;
  };
  REQUIRE(custom.prepare(custom.folder.write("custom.tsv", rows(40))).error.empty());
  const std::vector<std::string> before = fingerprints(), test = custom.texts("test");
  export_official(custom.task, custom.folder.path(), exported);
  for (const std::string& text : test) {
    CHECK(contains(read_file(exported / "test.tsv"), "\t" + text + "\n"));
  }
  CHECK(custom.prepare(exported).error.empty());
  CHECK(fingerprints() == before);

  // The folder may hold what the set was made from.
  const std::string kept = read_file(exported / "train.tsv");
  CHECK(contains(error_of([&] { export_official(custom.task, custom.folder.path(), exported); }),
                 "train.tsv is there already"));
  CHECK(read_file(exported / "train.tsv") == kept);

  // Nothing is there unless all could be written.
  fs::remove_all(exported);
  fs::create_directories(exported / ("test.tsv." + std::to_string(::getpid()) + ".tmp"));
  CHECK(contains(error_of([&] { export_official(custom.task, custom.folder.path(), exported); }),
                 "test.tsv: cannot create it"));
  CHECK(!fs::exists(exported / "train.tsv"));
  CHECK(!fs::exists(exported / "dev.tsv"));

  for (const char* end : {"\n", "\r"}) {  // a text with line ends takes JSON Lines
    CAPTURE(end);
    fs::remove_all(exported);
    std::string lines;
    for (int i = 0; i < 20; ++i) {
      const std::string text = std::string("a") + end + "b\t" + std::to_string(i);
      lines += json_text({{"label", i % 2}, {"text", text}}) + "\n";
    }
    REQUIRE(custom.prepare(custom.folder.write("custom.jsonl", lines)).error.empty());
    const std::vector<std::string> broken = fingerprints();
    export_official(custom.task, custom.folder.path(), exported);
    CHECK(fs::exists(exported / "train.jsonl"));
    CHECK(custom.prepare(exported).error.empty());
    CHECK(fingerprints() == broken);
  }
}

TEST_CASE("CSV may quote commas and line ends, and its header may name the columns") {
  if (!can_read_csv()) {
    MESSAGE("skipped: this build is without libcsv");
    return;
  }
  const auto read = [](std::string_view text, bool header) {
    const auto stream = open_memory({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    std::vector<std::pair<std::string, std::string>> found;
    const std::string error = error_of([&] {
      read_records(*stream, "custom.csv", {RecordFormat::csv, header},
                   [&](const Record& r) { found.emplace_back(r.label, r.text); });
    });
    return std::pair(found, error);
  };
  using Found = std::vector<std::pair<std::string, std::string>>;
  CHECK(read("ham,\"a, \"\"b\"\"\nc\"\r\nspam,d\r\n", false).first ==
        Found{{"ham", "a, \"b\"\nc"}, {"spam", "d"}});
  CHECK(read("id,text,label\n1,a,ham\n2,b,spam\n", true).first ==
        Found{{"ham", "a"}, {"spam", "b"}});
  CHECK(contains(read("1,a,ham\n", false).second, "row 1: found 3 fields"));
  CHECK(contains(read("ham,a\nspam\n", false).second, "row 2: found 1 field "));
  CHECK(contains(read("id,words\n1,a\n", true).second, "no column 'text'"));
  CHECK(contains(read("ham,\"a\n", false).second, "never closes"));
  CHECK(contains(read("ham,a\nham,\"a\"b\n", false).second, "row 2"));
  const CustomFolder custom;
  std::string lines;
  for (int i = 0; i < 20; ++i)
    lines += (i % 2 ? "ham,\"x," : "spam,\"y,") + std::to_string(i) + "\"\n";
  CHECK(custom.prepare(custom.folder.write("custom.csv", lines)).error.empty());
  CHECK(custom.split("train").size() == 16);
}

TEST_CASE("all broken rows are listed, ten at most, or left out and counted") {
  const CustomFolder custom;
  const auto file = custom.folder.write(
      "custom.tsv", rows(40) + "no tab\n\tx\nham\t" + std::string("a\0b", 3) + "\n");
  const std::string error = custom.prepare(file).error;
  for (const char* place :
       {"custom.tsv:41: no tab", "custom.tsv:42: empty label", "custom.tsv:43: byte 2"}) {
    CHECK(contains(error, place));
  }
  CHECK(contains(error, "3 broken rows; --skip-bad-rows"));
  PrepareOptions options;
  options.skip_bad_rows = true;
  const Said said = custom.prepare(file, options);
  CHECK(said.error.empty());
  CHECK(contains(said.warnings, "3 broken rows are left out: "));
  CHECK(custom.split("train").size() == 32);
  std::string many = rows(20);
  for (int i = 0; i < 25; ++i) many += "none\n";
  const std::string listed = custom.prepare(custom.folder.write("custom.tsv", many)).error;
  CHECK(contains(listed, "custom.tsv:30:"));
  CHECK_FALSE(contains(listed, "custom.tsv:31:"));
  CHECK(contains(listed, "and 15 more, at last "));
  CHECK(contains(listed, "custom.tsv:45: no tab"));
}

TEST_CASE("labels that differ in blanks, case or the spelling of a number are named") {
  const CustomFolder custom;
  const auto warned = [&](const std::string& a, const std::string& b) {
    std::string lines;
    for (int i = 0; i < 40; ++i) lines += (i % 2 ? a : b) + "\ttext " + std::to_string(i) + "\n";
    return custom.prepare(custom.folder.write("custom.tsv", lines)).warnings;
  };
  CHECK(contains(warned("Good", "good"), "'Good' and 'good' are two classes, though they differ"));
  CHECK(contains(warned("ham", "ham "), "'ham' and 'ham ' are two classes"));
  CHECK(contains(warned("1", "1.0"), "'1' and '1.0' are two classes"));
  CHECK_FALSE(contains(warned("good", "goods"), "are two classes"));
  CHECK_FALSE(contains(warned("1", "10"), "are two classes"));
}

TEST_CASE("the same texts under other labels are other data") {
  const CustomFolder custom;
  const auto preparing = [&](const std::string& one, const std::string& two) {
    std::string lines;
    for (int i = 0; i < 40; ++i)
      lines += (i % 2 ? one : two) + "\ttext " + std::to_string(i) + "\n";
    PrepareOptions options;
    options.from = custom.folder.write("custom.tsv", lines);
    options.warn = [](std::string_view) {};
    return error_of<UsageError>([&] { prepare(custom.task, custom.folder.path(), options); });
  };
  CHECK(preparing("bad", "good").empty());
  CHECK(preparing("bad", "good").empty());
  CHECK(contains(preparing("no", "yes"), "holds other data than"));
  CHECK(contains(custom.provenance(), "[\"bad\",\"good\"]"));
}

TEST_CASE("texts of train in dev and test are counted") {
  const CustomFolder custom;
  custom.folder.write("mine/train.tsv", "ham\tone\nspam\ttwo\nham\tthree\n");
  custom.folder.write("mine/dev.tsv", "ham\tfour\n");
  custom.folder.write("mine/test.tsv", "spam\tone\nspam\ttwo\nham\tfive\nham\tthree\n");
  CHECK(contains(custom.prepare(custom.folder.path() / "mine").warnings,
                 "3 of 4 texts of test are in train, too (1 with another label)"));
  CHECK(contains(custom.provenance(), "\"in_train_too\":{\"test\":3}"));
}

TEST_CASE("a stratified split gives every class its share of each split") {
  const CustomFolder custom;
  std::string lines;
  for (int i = 0; i < 100; ++i) {
    lines += std::string(i % 20 == 7 ? "rare" : "often") + "\ttext " + std::to_string(i) + "\n";
  }
  PrepareOptions options;
  options.stratify = true;
  REQUIRE(custom.prepare(custom.folder.write("custom.tsv", lines), options).error.empty());
  const Description facts = describe(custom.task, custom.folder.path());
  CHECK(facts.splits[0].label_counts == std::vector<std::int64_t>{75, 3});
  CHECK(facts.splits[1].label_counts == std::vector<std::int64_t>{10, 1});
  CHECK(facts.splits[2].label_counts == std::vector<std::int64_t>{10, 1});
  CHECK(contains(to_text(facts), " often 75, rare 3\n"));
  CHECK(contains(facts.provenance, "\"stratified\":true"));
  lines.resize(lines.find("often\ttext 48"));  // three of the rare ones are left
  REQUIRE(custom.prepare(custom.folder.write("custom.tsv", lines), options).error.empty());
  const Description few = describe(custom.task, custom.folder.path());
  for (const SplitFacts& split : few.splits) CHECK(split.label_counts.at(1) > 0);
}
