// Custom data in the layouts of GLUE's tasks.
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "data/files/json.hpp"
#include "data/files/source.hpp"
#include "tests/data/tasks/custom_folder.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/unicode.hpp"

using namespace skytape;
using namespace skytape::data;
using namespace skytape::data::synthetic;
using test::contains;
using test::unicode_or_skip;

namespace fs = std::filesystem;

namespace {

/// A folder in the official layout: 40 rows of train, 10 of dev, and a test split without labels.
void write_glue(const Folder& folder, const std::string& header,
                const std::function<std::string(int)>& row, const std::string& test) {
  std::string train = header.empty() ? "" : header + "\n", dev = train;  // CoLA has none
  for (int i = 0; i < 40; ++i) train += row(i) + "\n";
  for (int i = 40; i < 50; ++i) dev += row(i) + "\n";
  folder.write("glue/train.tsv", train);
  folder.write("glue/dev.tsv", dev);
  folder.write("glue/test.tsv", test);
}

std::string numbered(const char* text, int i) { return text + std::to_string(i); }

}  // namespace

TEST_CASE("GLUE's layouts: single sentences and pairs, dev as test, a part of train as dev") {
  struct Layout {
    const char *header, *test;
    std::function<std::string(int)> row, text;
    std::vector<std::string> labels;
  };
  const Layout layouts[] = {
      // Quotation marks and blanks at the end are the official files' custom.
      {"sentence\tlabel",
       "index\tsentence\n0\tx\n",
       [](int i) { return numbered("a \"fine film ", i) + " \t" + std::to_string(i % 2); },
       [](int i) { return numbered("a \"fine film ", i) + " "; },
       {"0", "1"}},
      {"index\tquestion\tsentence\tlabel",
       "index\tquestion\tsentence\n0\tx\ty\n",
       [](int i) {
         return std::to_string(i) + "\tWho? " + std::to_string(i) + "\tHe did.\t" +
                (i % 2 ? "entailment" : "not_entailment");
       },
       [](int i) { return numbered("Who? ", i) + "\tHe did."; },
       {"entailment", "not_entailment"}},
      {"\xEF\xBB\xBFQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
       "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n",
       [](int i) { return std::to_string(i % 2) + "\t71\t72\t" + numbered("It ", i) + "\tThey"; },
       [](int i) { return numbered("It ", i) + "\tThey"; },
       {"0", "1"}},
      {"index\tsentence1\tsentence2\tlabel",
       "index\tsentence1\tsentence2\n",
       [](int i) {
         return std::to_string(i) + "\tIt " + std::to_string(i) + "\tThey\t" +
                (i % 2 ? "entailment" : "not_entailment");
       },
       [](int i) { return numbered("It ", i) + "\tThey"; },
       {"entailment", "not_entailment"}},
      {"",
       "index\tsentence\n",
       [](int i) {
         return std::string("gj04\t") + (i % 2 ? "0\t*\t" : "1\t\t") + numbered("It ", i);
       },
       [](int i) { return numbered("It ", i); },
       {"0", "1"}},
      {"id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
       "id\tquestion1\tquestion2\n",
       [](int i) {
         return std::to_string(i) + "\t1\t2\tHow " + std::to_string(i) + "?\tWhy?\t" +
                std::to_string(i % 2);
       },
       [](int i) { return numbered("How ", i) + "?\tWhy?"; },
       {"0", "1"}},
  };
  for (const Layout& layout : layouts) {
    CAPTURE(layout.header);
    const CustomFolder custom;
    write_glue(custom.folder, layout.header, layout.row, layout.test);
    const Said said = custom.prepare(custom.folder.path() / "glue");
    REQUIRE(said.error.empty());
    CHECK(said.warnings.empty());
    CHECK(custom.split("train").size() == 38);
    CHECK(custom.split("dev").size() == 2);
    const std::vector<std::string> tested = custom.texts("test");
    REQUIRE(tested.size() == 10);
    for (int i = 0; i < 10; ++i) CHECK(tested[static_cast<std::size_t>(i)] == layout.text(40 + i));
    // Every example of train is in one of the two splits.
    std::vector<std::string> all = custom.texts("train"), wanted;
    const std::vector<std::string> dev = custom.texts("dev");
    all.insert(all.end(), dev.begin(), dev.end());
    for (int i = 0; i < 40; ++i) wanted.push_back(layout.text(i));
    std::sort(all.begin(), all.end());
    std::sort(wanted.begin(), wanted.end());
    CHECK(all == wanted);
    const Json provenance = parse_json(custom.provenance());
    CHECK(provenance["labels"] == Json(layout.labels));
    CHECK(contains(provenance.at("splits").get<std::string>(), "dev.tsv"));
    for (int i = 0; i < 10; ++i) {
      const std::string& label =
          layout.labels[static_cast<std::size_t>(custom.split("test").label(i))];
      CHECK(contains("\t" + layout.row(40 + i) + "\t", "\t" + label + "\t"));
    }
  }
}

TEST_CASE("the texts of a pair are one sequence with the end of a text between them") {
  if (!unicode_or_skip()) return;
  const CustomFolder custom;
  custom.folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhow\nwhy\nmany\n");
  write_glue(
      custom.folder, "index\tquestion\tsentence\tlabel",
      [](int i) { return std::to_string(i) + "\thow many\twhy\t" + std::to_string(i % 2); }, "");
  PrepareOptions options;
  options.tokens = "wordpiece:" + (custom.folder.path() / "vocab.txt").string();
  REQUIRE(custom.prepare(custom.folder.path() / "glue", options).error.empty());
  const Dataset train = custom.split("train");
  const auto tokens = train.wide_tokens(0);
  CHECK(std::vector<int>(tokens.begin(), tokens.end()) == std::vector<int>{5, 7, 3, 6});
}

TEST_CASE("rows of GLUE's files with other columns are named, but for those of the official QQP") {
  const CustomFolder custom;
  const auto prepare = [&](const std::string& header, const std::string& odd, auto row) {
    write_glue(custom.folder, header, row, "");
    std::ofstream(custom.folder.path() / "glue/dev.tsv", std::ios::app) << odd << "\n";
    return custom.prepare(custom.folder.path() / "glue");
  };
  const auto single = [](int i) { return "a film\t" + std::to_string(i % 2); };
  CHECK(contains(prepare("sentence\tlabel", "a\tb\t1", single).error, "dev.tsv:12: 3 columns"));
  CHECK(contains(prepare("sentence\tlabel", "\t1", single).error, "dev.tsv:12: an empty column"));
  const auto pair = [](int i) { return "1\t2\t3\tHow?\tWhy?\t" + std::to_string(i % 2); };
  const Said said =
      prepare("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "7\t1\t2\tHow", pair);
  CHECK(said.error.empty());
  CHECK(contains(said.warnings, "1 rows without all columns are left out"));
  CHECK(custom.split("test").size() == 10);
  CHECK(contains(
      prepare("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "7\t1\t2\tHow\tWhy\t1\t0", pair)
          .error,
      "dev.tsv:12: 7 columns, expected the 6 of QQP"));
  CHECK(contains(
      prepare("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "7\t1\t2\tHow\tWhy\t", pair)
          .error,
      "dev.tsv:12: an empty column"));
  CHECK(contains(prepare("index\tquestion\tsentence\tlabel", "7\tHow?\t\t1",
                         [](int i) { return "7\tHow?\tWhy?\t" + std::to_string(i % 2); })
                     .error,
                 "dev.tsv:12: an empty column"));
  fs::remove(custom.folder.path() / "glue/dev.tsv");
  CHECK(contains(custom.prepare(custom.folder.path() / "glue").error, "no dev.tsv"));
}

TEST_CASE("flags of columns count in a folder of GLUE's files, too") {
  const CustomFolder custom;
  write_glue(
      custom.folder, "sentence\tlabel",
      [](int i) { return numbered("film ", i) + "\t" + std::to_string(i % 2); }, "x\n");
  PrepareOptions options;
  options.columns = {"label", "label", ""};
  CHECK(contains(custom.prepare(custom.folder.path() / "glue", options).error,
                 "both label and text"));
  options.columns = {};
  CHECK(custom.prepare(custom.folder.path() / "glue", options).error.empty());
  CHECK(custom.split("test").size() == 10);  // GLUE's dev
}
