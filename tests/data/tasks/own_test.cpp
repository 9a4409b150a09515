// Own data: what files of labels and texts become, and what is said about odd ones.
#include "data/tasks/own.hpp"

#include <algorithm>
#include <fstream>
#include <functional>

#include "data/files/csv.hpp"
#include "data/files/json.hpp"
#include "data/files/source.hpp"
#include "data/own/records.hpp"
#include "data/tokenisers/sentencepiece.hpp"
#include "data/tokenisers/units.hpp"
#include "data/unicode/unicode.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::data;
using namespace skytape::data::synthetic;
using test::contains;

namespace {

namespace fs = std::filesystem;

/// What preparing a file or folder says: its warnings, or the error.
struct Said {
  std::string error, warnings;
};

struct Own {
  Folder folder;
  const TaskInfo& task = find_task("tsv");

  [[nodiscard]] Said prepare(const fs::path& from, PrepareOptions options = {}) const {
    Said said;
    options.from = from;
    options.force = true;
    options.warn = [&](std::string_view text) { said.warnings += std::string(text) + "\n"; };
    said.error = error_of([&] { data::prepare(task, folder.path(), options); });
    return said;
  }
  [[nodiscard]] Dataset split(const char* name) const { return open(task, folder.path(), name); }
  [[nodiscard]] std::string provenance() const { return describe(task, folder.path()).provenance; }
  [[nodiscard]] std::vector<std::string> texts(const char* name) const {
    std::vector<std::string> all;
    const Dataset data = split(name);
    for (std::int64_t i = 0; i < data.size(); ++i) {
      all.emplace_back(data.tokens(i).begin(), data.tokens(i).end());
    }
    return all;
  }
};

/// `count` rows of two labels in turn, the text made of the row's number.
std::string rows(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    lines += std::string(i % 4 ? "ham" : "spam") + "\ttext " + std::to_string(i) + "\n";
  }
  return lines;
}

}  // namespace

TEST_CASE("own lines are split 80/10/10 with labels as classes in sorted order") {
  const Own own;
  REQUIRE(own.prepare(own.folder.write("own.tsv", rows(100))).error.empty());
  const Description facts = describe(own.task, own.folder.path());
  CHECK(facts.splits[0].examples == 80);
  CHECK(facts.splits[1].examples == 10);
  CHECK(facts.splits[2].examples == 10);
  std::int64_t ham = 0;
  for (const SplitFacts& split : facts.splits) ham += split.label_counts.at(0);
  CHECK(ham == 75);
  CHECK(contains(facts.provenance, "\"labels\":[\"ham\",\"spam\"]"));

  std::string numbers;
  for (int i = 0; i < 30; ++i) numbers += std::to_string(i % 3 * 5) + "\tx\n";
  REQUIRE(own.prepare(own.folder.write("own.tsv", numbers)).error.empty());
  CHECK(contains(own.provenance(), "[\"0\",\"5\",\"10\"]"));
}

TEST_CASE("rows that are broken are refused with file, row and reason") {
  const auto text_of = [](std::string_view text, RecordOptions options = {}) {
    const auto stream = open_memory({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    return error_of([&] { read_records(*stream, "own", options, [](const Record&) {}); });
  };
  CHECK(text_of("a\tb\n\nc\td\r\n").empty());
  CHECK(text_of("a\tb\nc d\n") == "own:2: no tab in 'c d', expected label<TAB>text");
  CHECK(contains(text_of("\tb\n"), "empty label"));
  CHECK(contains(text_of("a\t\n"), "empty text"));
  CHECK(contains(text_of("a\x01\tb\n"), "control characters"));

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
  CHECK(contains(text_of("", {RecordFormat::jsonl, true}), "--header"));

  const Own own;
  CHECK(contains(own.prepare(own.folder.write("own.tsv", "a\tb\n")).error, "1 lines"));
  CHECK(contains(own.prepare(own.folder.write("own.tsv", "a\tb\nb\tc\n")).error, "at least 10"));
  std::string same;
  for (int i = 0; i < 12; ++i) same += "a\tb\n";
  CHECK(contains(own.prepare(own.folder.write("own.tsv", same)).error, "1 different labels"));
}

TEST_CASE("a byte order mark makes no class of its own") {
  const Own own;
  const Said said = own.prepare(own.folder.write("own.tsv", "\xEF\xBB\xBF" + rows(40)));
  CHECK(said.error.empty());
  CHECK(said.warnings.empty());
  CHECK(own.split("train").classes() == 2);
}

TEST_CASE("a first row whose label occurs nowhere else is said, and --header reads names in it") {
  const Own own;
  const auto file = own.folder.write("own.tsv", "class\twords\n" + rows(40));
  const Said said = own.prepare(file);
  CHECK(said.error.empty());
  CHECK(contains(said.warnings, "a class with a single example: 'class'"));
  CHECK(contains(said.warnings, "'class' is the label of a first row and of no other"));
  CHECK(own.split("train").classes() == 3);

  PrepareOptions options;
  options.header = true;
  CHECK(contains(own.prepare(file, options).error, "no column 'text' in class,words"));
  options.columns.text = "words";
  const Said named = own.prepare(file, options);
  CHECK(named.error.empty());
  CHECK(named.warnings.empty());
  CHECK(own.split("train").classes() == 2);
  CHECK(contains(own.provenance(), "\"columns\":{\"label\":\"class\",\"text\":\"words\"}"));

  // In a folder each file has its header: the label occurs three times, always in a first row.
  for (const char* split : {"train", "dev", "test"}) {
    own.folder.write(std::string("mine/") + split + ".csv",
                     "kind,clip\nham,one " + std::string(split) + "\nspam,two " + split + "\n");
  }
  if (can_read_csv()) {
    CHECK(contains(own.prepare(own.folder.path() / "mine").warnings,
                   "'kind' is the label of 3 first rows and of no other"));
  }
  for (const char* split : {"train", "dev", "test"}) {
    own.folder.write(std::string("named/") + split + ".tsv",
                     "text\tlabel\none " + std::string(split) + "\tham\ntwo\tspam\n");
  }
  const Said known = own.prepare(own.folder.path() / "named");
  CHECK(known.error.empty());
  CHECK(contains(known.warnings, "test.tsv: its columns are known by name: label 'label'"));
  CHECK(own.split("train").classes() == 2);
  CHECK(own.texts("dev") == std::vector<std::string>{"one dev", "two"});

  // A rare label further down is no header.
  const Said rare = own.prepare(own.folder.write("own.tsv", rows(40) + "eggs\tx\n"));
  CHECK(contains(rare.warnings, "a class with a single example: 'eggs'"));
  CHECK_FALSE(contains(rare.warnings, "--header"));
}

TEST_CASE("texts that lose their end are counted and said") {
  const Own own;
  const std::string fits(2048, 'x'), longer(2049, 'y');
  const Said said = own.prepare(own.folder.write(
      "own.tsv", rows(40) + "ham\t" + fits + "\nham\t" + longer + "\nspam\t" + longer + "\n"));
  CHECK(said.error.empty());
  CHECK(contains(said.warnings, "2 of 43 texts have more than 2048 tokens"));
  std::int64_t counted = 0;
  for (const char* split : {"train", "dev", "test"}) counted += own.split(split).longer_than(2048);
  CHECK(counted == 2);
}

TEST_CASE("a folder with train, dev and test is taken as it is") {
  const Own own;
  own.folder.write("mine/train.tsv", "ham\tone\nspam\ttwo\nham\tthree\nspam\tfour\n");
  own.folder.write("mine/dev.jsonl", "{\"label\": \"ham\", \"text\": \"five\"}\n");
  CHECK(contains(own.prepare(own.folder.path() / "mine").error, "no test.tsv"));
  own.folder.write("mine/test.tsv", "spam\tsix\nham\tseven\neggs\teight\neggs\tnine\n");
  const Said said = own.prepare(own.folder.path() / "mine");
  CHECK(said.error.empty());
  CHECK(contains(said.warnings, "train has no example of 'eggs'"));
  CHECK(own.texts("train") == std::vector<std::string>{"one", "two", "three", "four"});
  CHECK(own.texts("dev") == std::vector<std::string>{"five"});
  CHECK(own.texts("test") == std::vector<std::string>{"six", "seven", "eight", "nine"});
  CHECK(own.split("test").label(2) == 0);  // eggs, ham, spam
  own.folder.write("mine/dev.tsv", "ham\tfive\n");
  CHECK(contains(own.prepare(own.folder.path() / "mine").error, "expected one file for dev"));
}

TEST_CASE("what is exported shows each split, and prepared again is the same set") {
  const Own own;
  const auto exported = own.folder.path() / "exported";
  const auto fingerprints = [&] {
    std::vector<std::string> all;
    for (const char* split : {"train", "dev", "test"})
      all.push_back(own.split(split).fingerprint());
    return all;
  };
  REQUIRE(own.prepare(own.folder.write("own.tsv", rows(40))).error.empty());
  const std::vector<std::string> before = fingerprints(), test = own.texts("test");
  export_official(own.task, own.folder.path(), exported);
  for (const std::string& text : test) {
    CHECK(contains(read_file(exported / "test.tsv"), "\t" + text + "\n"));
  }
  CHECK(own.prepare(exported).error.empty());
  CHECK(fingerprints() == before);

  // A text with line ends takes JSON Lines.
  fs::remove_all(exported);
  std::string lines;
  for (int i = 0; i < 20; ++i) {
    lines += json_text({{"label", i % 2}, {"text", "a\nb\t" + std::to_string(i)}}) + "\n";
  }
  REQUIRE(own.prepare(own.folder.write("own.jsonl", lines)).error.empty());
  const std::vector<std::string> broken = fingerprints();
  export_official(own.task, own.folder.path(), exported);
  CHECK(fs::exists(exported / "train.jsonl"));
  CHECK(own.prepare(exported).error.empty());
  CHECK(fingerprints() == broken);
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
      read_records(*stream, "own.csv", {RecordFormat::csv, header},
                   [&](const Record& r) { found.emplace_back(r.label, r.text); });
    });
    return std::pair(found, error);
  };
  using Found = std::vector<std::pair<std::string, std::string>>;
  CHECK(read("ham,\"a, \"\"b\"\"\nc\"\r\nspam,d\r\n", false).first ==
        Found{{"ham", "a, \"b\"\nc"}, {"spam", "d"}});
  CHECK(read("id,text,label\n1,a,ham\n2,b,spam\n", true).first ==
        Found{{"ham", "a"}, {"spam", "b"}});
  CHECK(contains(read("1,a,ham\n", false).second, "row 1: 3 fields"));
  CHECK(contains(read("ham,a\nspam\n", false).second, "row 2: 1 field"));
  CHECK(contains(read("id,words\n1,a\n", true).second, "no column 'text'"));
  CHECK(contains(read("ham,\"a\n", false).second, "never closes"));
  CHECK(contains(read("ham,a\nham,\"a\"b\n", false).second, "row 2"));
  const Own own;
  std::string lines;
  for (int i = 0; i < 20; ++i)
    lines += (i % 2 ? "ham,\"x," : "spam,\"y,") + std::to_string(i) + "\"\n";
  CHECK(own.prepare(own.folder.write("own.csv", lines)).error.empty());
  CHECK(own.split("train").size() == 16);
}

TEST_CASE("words are runs of letters and digits, and marks by themselves") {
  using Words = std::vector<std::string>;
  CHECK(units_of(TokenUnit::words, "It's 3.14,\tÄpfel!", "x") ==
        Words{"it", "'", "s", "3", ".", "14", ",", "Äpfel", "!"});
  CHECK(units_of(TokenUnit::words, " \t", "x").empty());
  CHECK(units_of(TokenUnit::integers, "7, -3 007", "x") == Words{"7", "-3", "7"});
  CHECK(contains(error_of<DataError>([] { (void)units_of(TokenUnit::integers, "1 2.5", "f:3"); }),
                 "f:3: expected integers apart by blanks or commas, got '2.5'"));
}

TEST_CASE("numbers as symbols: more of them than a byte has, and the unknown is one token") {
  const Own own;
  std::string train;
  for (int i = 0; i < 400; ++i) {
    train += std::to_string(i % 2) + "\t" + std::to_string(1000 + i) + " 5\n";
  }
  own.folder.write("mine/train.tsv", train);
  own.folder.write("mine/dev.tsv", "0\t5 1000 77\n1\t1399\n");
  own.folder.write("mine/test.tsv", "0\t5\n");
  PrepareOptions options;
  options.tokens = "integers";
  REQUIRE(own.prepare(own.folder.path() / "mine", options).error.empty());
  const Dataset dev = own.split("dev");
  REQUIRE(dev.token_bytes() == 2);
  const auto provenance = parse_json(dev.provenance());
  REQUIRE(has_vocabulary(provenance));
  const auto vocabulary = vocabulary_in(provenance);
  CHECK(vocabulary->size() == 402);
  CHECK(vocabulary->entry(1) == "5");  // the most frequent
  CHECK(dev.length(0) == 3);
  const auto tokens = dev.wide_tokens(0);
  CHECK(std::vector<int>(tokens.begin(), tokens.end()) == std::vector<int>{1, 2, 0});
  CHECK(vocabulary->entry(dev.wide_tokens(1)[0]) == "1399");
  CHECK(contains(to_text(describe(own.task, own.folder.path())), "401 different ones"));
  CHECK_THROWS_AS((void)dev.tokens(0), Error);

  BatchOptions batches;
  batches.batch = 2;
  batches.nominal_length = 8;
  batches.trim = false;
  Batch batch;
  collate(dev, {0, 1}, batches, batch);
  CHECK(std::vector<int>(batch.ids[0].begin(), batch.ids[0].begin() + 4) ==
        std::vector<int>{2, 3, 1, 0});
  CHECK(batch.lengths[0] == std::vector<std::int32_t>{3, 1});
  CHECK(batch.ids[0][8] > 256);

  const auto exported = own.folder.path() / "exported";
  export_official(own.task, own.folder.path(), exported);
  CHECK(read_file(exported / "dev.tsv") == "0\t5 1000 <unknown>\n1\t1399\n");

  own.folder.write("mine/test.tsv", "0\t5 five\n");
  CHECK(contains(own.prepare(own.folder.path() / "mine", options).error, "test.tsv:1"));
}

TEST_CASE("subword tokens: the set keeps its vocabulary, and texts come back from it") {
  if (!knows_unicode()) {
    MESSAGE("skipped: built without utf8proc");
    return;
  }
  const Own own;
  const auto vocabulary =
      own.folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nriver\n##s\n!\ndeep\n");
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += (i % 2 ? "a\t" : "b\t") + std::string("Rivers, DEEP!\n");
  PrepareOptions options;
  options.tokens = "wordpiece:" + vocabulary.string();
  REQUIRE(own.prepare(own.folder.write("own.tsv", lines), options).error.empty());
  std::filesystem::remove(vocabulary);  // the set needs it no longer
  const Dataset train = own.split("train");
  const auto tokens = train.wide_tokens(0);
  CHECK(std::vector<int>(tokens.begin(), tokens.end()) == std::vector<int>{5, 6, 1, 8, 7});
  CHECK(contains(to_text(describe(own.task, own.folder.path())),
                 "wordpiece as tokens: 9 different ones\n"));
  const auto exported = own.folder.path() / "exported";
  export_official(own.task, own.folder.path(), exported);
  CHECK(contains(read_file(exported / "dev.tsv"), "\trivers [UNK] deep !\n"));

  own.folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n");
  const auto odd = own.folder.write("odd.tsv", lines + "a\t\u200b\n");
  CHECK(contains(own.prepare(odd, options).error, "odd.tsv:21: no token of wordpiece"));
  const auto broken = own.folder.write("broken.tsv", lines + "a\tcaf\xE9\n");
  CHECK(contains(own.prepare(broken, options).error, "broken.tsv:21: byte 4"));
  std::string many = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (int i = 0; i < 65'536; ++i) many += std::to_string(i) + "\n";
  own.folder.write("vocab.txt", many);
  CHECK(contains(own.prepare(own.folder.path() / "own.tsv", options).error,
                 "65541 tokens, but a set stores at most 65536"));
}

TEST_CASE("a model of SentencePiece is learnt from the training split alone, once") {
  if (!has_sentencepiece() || !knows_unicode()) {
    MESSAGE("skipped: built without SentencePiece or utf8proc");
    return;
  }
  const Own own;
  std::string train;
  for (int i = 0; i < 60; ++i) train += (i % 2 ? "a\tred " : "b\tblue ") + std::to_string(i) + "\n";
  own.folder.write("mine/train.tsv", train);
  own.folder.write("mine/dev.tsv", "a\t\u6f22 red\n");
  own.folder.write("mine/test.tsv", "b\tblue\n");
  const auto model = own.folder.path() / "own.model";
  PrepareOptions options;
  options.from = own.folder.path() / "mine";
  options.tokens = "sentencepiece:" + model.string();
  options.learn_tokens = "unigram:32";
  const auto prepare = [&] {
    return error_of([&] { data::prepare(own.task, own.folder.path(), options); });
  };
  REQUIRE(prepare().empty());
  const auto learnt = read_sentencepiece(model);
  const auto stored = vocabulary_in(parse_json(own.split("dev").provenance()));
  CHECK(stored->encode("blue red", "x") == learnt->encode("blue red", "x"));
  const Dataset split = own.split("dev");
  const auto dev = split.wide_tokens(0);
  CHECK(std::count(dev.begin(), dev.end(), 0) == 1);  // what only dev shows is unknown

  CHECK(contains(prepare(), "own.model is there already"));
  options.learn_tokens.clear();
  CHECK(prepare().empty());
  options.learn_tokens = "bpe:32";
  options.force = true;
  CHECK(prepare().empty());
  options.tokens = "words";
  CHECK(contains(prepare(), "expected with --tokens sentencepiece:FILE, got --tokens words"));
}

TEST_CASE("kinds of tokens that do not exist are refused with those that do") {
  const Own own;
  const auto file = own.folder.write("own.tsv", rows(40));
  for (const char* kind : {"word", "sentences:m.model", ""}) {
    PrepareOptions options;
    options.tokens = kind;
    const std::string error = own.prepare(file, options).error;
    CAPTURE(kind);
    CHECK(error.empty() == std::string(kind).empty());
    if (!error.empty()) {
      for (const char* known : {"bytes", "words", "integers"}) CHECK(contains(error, known));
    }
  }
  for (const char* missing : {"sentencepiece:none/m", "wordpiece:none/v.txt", "bpe:none"}) {
    PrepareOptions options;
    options.tokens = missing;
    CHECK(contains(own.prepare(file, options).error, "none"));
  }
  PrepareOptions options;
  options.header = true;
  CHECK(contains(error_of<UsageError>(
                     [&] { data::prepare(find_task("listops"), own.folder.path(), options); }),
                 "--header has no effect on listops"));
}

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

TEST_CASE("all broken rows are listed, ten at most, or left out and counted") {
  const Own own;
  const auto file =
      own.folder.write("own.tsv", rows(40) + "no tab\n\tx\nham\t" + std::string("a\0b", 3) + "\n");
  const std::string error = own.prepare(file).error;
  for (const char* place :
       {"own.tsv:41: no tab", "own.tsv:42: empty label", "own.tsv:43: byte 2"}) {
    CHECK(contains(error, place));
  }
  CHECK(contains(error, "3 broken rows; --skip-bad-rows"));
  PrepareOptions options;
  options.skip_bad_rows = true;
  const Said said = own.prepare(file, options);
  CHECK(said.error.empty());
  CHECK(contains(said.warnings, "3 broken rows are left out: "));
  CHECK(own.split("train").size() == 32);
  std::string many = rows(20);
  for (int i = 0; i < 25; ++i) many += "none\n";
  const std::string listed = own.prepare(own.folder.write("own.tsv", many)).error;
  CHECK(contains(listed, "own.tsv:30:"));
  CHECK_FALSE(contains(listed, "own.tsv:31:"));
  CHECK(contains(listed, "and 15 more"));
}

TEST_CASE("texts of train in dev and test are counted") {
  const Own own;
  own.folder.write("mine/train.tsv", "ham\tone\nspam\ttwo\nham\tthree\n");
  own.folder.write("mine/dev.tsv", "ham\tfour\n");
  own.folder.write("mine/test.tsv", "spam\tone\nspam\ttwo\nham\tfive\n");
  CHECK(contains(own.prepare(own.folder.path() / "mine").warnings,
                 "2 of 3 texts of test are in train, too (1 with another label)"));
  CHECK(contains(own.provenance(), "\"in_train_too\":{\"test\":2}"));
}

TEST_CASE("a stratified split gives every class its share of each split") {
  const Own own;
  std::string lines;
  for (int i = 0; i < 100; ++i) {
    lines += std::string(i % 20 == 7 ? "rare" : "often") + "\ttext " + std::to_string(i) + "\n";
  }
  PrepareOptions options;
  options.stratify = true;
  REQUIRE(own.prepare(own.folder.write("own.tsv", lines), options).error.empty());
  const Description facts = describe(own.task, own.folder.path());
  CHECK(facts.splits[0].label_counts == std::vector<std::int64_t>{75, 3});
  CHECK(facts.splits[1].label_counts == std::vector<std::int64_t>{10, 1});
  CHECK(facts.splits[2].label_counts == std::vector<std::int64_t>{10, 1});
  CHECK(contains(to_text(facts), " often 75, rare 3\n"));
}

TEST_CASE("UTF-8 is expected of texts that are cut into pieces, of second ones too") {
  if (!knows_unicode()) return;
  const Own own;
  own.folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nx\n");
  PrepareOptions options;
  options.tokens = "wordpiece:" + (own.folder.path() / "vocab.txt").string();
  std::string lines = "label\tsentence1\tsentence2\n";
  for (int i = 0; i < 20; ++i) lines += std::to_string(i % 2) + "\tx\tx\n";
  const auto odd = own.folder.write("own.tsv", lines + "1\tx\tcaf\xE9\n");
  CHECK(contains(own.prepare(odd, options).error, "own.tsv:22: byte 4 of 'caf?'"));
  const Said bytes = own.prepare(odd);
  CHECK(bytes.error.empty());
  CHECK(contains(bytes.warnings, "texts and labels are read as bytes, the first"));
  const auto nul = own.folder.write("own.tsv", lines + "1\tx\t" + std::string("a\0b", 3) + "\n");
  CHECK(contains(own.prepare(nul).error, "own.tsv:22: byte 2"));
}

TEST_CASE("GLUE's layouts: single sentences and pairs, dev as test, a part of train as dev") {
  struct Layout {
    const char *header, *test;
    std::function<std::string(int)> row, text;
    std::vector<std::string> labels;
  };
  const Layout layouts[] = {
      // Quotation marks and blanks at the end are the official files' own.
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
    const Own own;
    write_glue(own.folder, layout.header, layout.row, layout.test);
    const Said said = own.prepare(own.folder.path() / "glue");
    REQUIRE(said.error.empty());
    CHECK(said.warnings.empty());
    CHECK(own.split("train").size() == 38);
    CHECK(own.split("dev").size() == 2);
    const std::vector<std::string> tested = own.texts("test");
    REQUIRE(tested.size() == 10);
    for (int i = 0; i < 10; ++i) CHECK(tested[static_cast<std::size_t>(i)] == layout.text(40 + i));
    // Of train every example is in one of the two splits.
    std::vector<std::string> all = own.texts("train"), wanted;
    const std::vector<std::string> dev = own.texts("dev");
    all.insert(all.end(), dev.begin(), dev.end());
    for (int i = 0; i < 40; ++i) wanted.push_back(layout.text(i));
    std::sort(all.begin(), all.end());
    std::sort(wanted.begin(), wanted.end());
    CHECK(all == wanted);
    const Json provenance = parse_json(own.provenance());
    CHECK(provenance["labels"] == Json(layout.labels));
    CHECK(contains(provenance.at("splits").get<std::string>(), "dev.tsv"));
    for (int i = 0; i < 10; ++i) {
      const std::string& label =
          layout.labels[static_cast<std::size_t>(own.split("test").label(i))];
      CHECK(contains("\t" + layout.row(40 + i) + "\t", "\t" + label + "\t"));
    }
  }
}

TEST_CASE("the texts of a pair are one sequence with the end of a text between them") {
  if (!knows_unicode()) {
    MESSAGE("skipped: built without utf8proc");
    return;
  }
  const Own own;
  own.folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhow\nwhy\nmany\n");
  write_glue(
      own.folder, "index\tquestion\tsentence\tlabel",
      [](int i) { return std::to_string(i) + "\thow many\twhy\t" + std::to_string(i % 2); }, "");
  PrepareOptions options;
  options.tokens = "wordpiece:" + (own.folder.path() / "vocab.txt").string();
  REQUIRE(own.prepare(own.folder.path() / "glue", options).error.empty());
  const Dataset train = own.split("train");
  const auto tokens = train.wide_tokens(0);
  CHECK(std::vector<int>(tokens.begin(), tokens.end()) == std::vector<int>{5, 7, 3, 6});
}

TEST_CASE("rows of GLUE's files with other columns are named, but for those of the official QQP") {
  const Own own;
  const auto prepare = [&](const std::string& header, const std::string& odd, auto row) {
    write_glue(own.folder, header, row, "");
    std::ofstream(own.folder.path() / "glue/dev.tsv", std::ios::app) << odd << "\n";
    return own.prepare(own.folder.path() / "glue");
  };
  const auto single = [](int i) { return "a film\t" + std::to_string(i % 2); };
  CHECK(contains(prepare("sentence\tlabel", "a\tb\t1", single).error, "dev.tsv:12: 3 columns"));
  CHECK(contains(prepare("sentence\tlabel", "\t1", single).error, "dev.tsv:12: an empty column"));
  const auto pair = [](int i) { return "1\t2\t3\tHow?\tWhy?\t" + std::to_string(i % 2); };
  const Said said =
      prepare("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "7\t1\t2\tHow", pair);
  CHECK(said.error.empty());
  CHECK(contains(said.warnings, "1 rows without all columns are left out"));
  CHECK(own.split("test").size() == 10);
  fs::remove(own.folder.path() / "glue/dev.tsv");
  CHECK(contains(own.prepare(own.folder.path() / "glue").error, "no dev.tsv"));
}
