// Custom data: the tokens that texts are cut into, and the vocabulary that the set keeps.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "data/files/json.hpp"
#include "data/prepare.hpp"
#include "data/tokenise.hpp"
#include "data/tokenisers/sentencepiece.hpp"
#include "data/tokenisers/units.hpp"
#include "data/unicode/unicode.hpp"
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
  const CustomFolder custom;
  std::string train;
  for (int i = 0; i < 400; ++i) {
    train += std::to_string(i % 2) + "\t" + std::to_string(1000 + i) + " 5\n";
  }
  custom.folder.write("mine/train.tsv", train);
  custom.folder.write("mine/dev.tsv", "0\t5 1000 77\n1\t1399\n");
  custom.folder.write("mine/test.tsv", "0\t5\n");
  PrepareOptions options;
  options.tokens = "integers";
  REQUIRE(custom.prepare(custom.folder.path() / "mine", options).error.empty());
  const Dataset dev = custom.split("dev");
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
  CHECK(contains(to_text(describe(custom.task, custom.folder.path())), "401 different ones"));
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

  const auto exported = custom.folder.path() / "exported";
  export_official(custom.task, custom.folder.path(), exported);
  CHECK(read_file(exported / "dev.tsv") == "0\t5 1000 <unknown>\n1\t1399\n");
  const std::string before = dev.fingerprint();
  REQUIRE(custom.prepare(exported, options).error.empty());
  CHECK(custom.split("dev").fingerprint() == before);

  custom.folder.write("mine/test.tsv", "0\t5 five\n");
  CHECK(contains(custom.prepare(custom.folder.path() / "mine", options).error, "test.tsv:1"));
}

TEST_CASE("subword tokens: the set keeps its vocabulary, and texts come back from it") {
  if (!unicode_or_skip()) return;
  const CustomFolder custom;
  const auto vocabulary =
      custom.folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nriver\n##s\n!\ndeep\n");
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += (i % 2 ? "a\t" : "b\t") + std::string("Rivers, DEEP!\n");
  PrepareOptions options;
  options.tokens = "wordpiece:" + vocabulary.string();
  REQUIRE(custom.prepare(custom.folder.write("custom.tsv", lines), options).error.empty());
  std::filesystem::remove(vocabulary);  // the set needs it no longer
  const Dataset train = custom.split("train");
  const auto tokens = train.wide_tokens(0);
  CHECK(std::vector<int>(tokens.begin(), tokens.end()) == std::vector<int>{5, 6, 1, 8, 7});
  CHECK(contains(to_text(describe(custom.task, custom.folder.path())),
                 "wordpiece as tokens: 9 different ones\n"));
  const auto exported = custom.folder.path() / "exported";
  export_official(custom.task, custom.folder.path(), exported);
  CHECK(contains(read_file(exported / "dev.tsv"), "\trivers [UNK] deep !\n"));

  custom.folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n");
  const auto odd = custom.folder.write("odd.tsv", lines + "a\t\u200b\n");
  CHECK(contains(custom.prepare(odd, options).error, "odd.tsv:21: no token of wordpiece"));
  const auto broken = custom.folder.write("broken.tsv", lines + "a\tcaf\xE9\n");
  CHECK(contains(custom.prepare(broken, options).error, "broken.tsv:21: byte 4"));
  std::string many = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (int i = 0; i < 65'536; ++i) many += std::to_string(i) + "\n";
  custom.folder.write("vocab.txt", many);
  CHECK(contains(custom.prepare(custom.folder.path() / "custom.tsv", options).error,
                 "65541 tokens, but a set stores at most 65536"));
}

TEST_CASE("pairs are exported as two texts, and prepared again are the same set") {
  if (!unicode_or_skip()) return;
  const CustomFolder custom;
  const auto vocabulary =
      custom.folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n");
  std::string lines = "label\tsentence1\tsentence2\n";
  for (int i = 0; i < 20; ++i) lines += i % 2 ? "x\ta b\tb\n" : "y\tb\ta\n";
  const auto file = custom.folder.write("custom.tsv", lines);
  const auto exported = custom.folder.path() / "exported";
  PrepareOptions options;
  const auto again = [&] {
    REQUIRE(custom.prepare(file, options).error.empty());
    const std::string before = custom.split("train").fingerprint();
    std::filesystem::remove_all(exported);
    export_official(custom.task, custom.folder.path(), exported);
    CHECK(custom.prepare(exported, options).error.empty());
    CHECK(custom.split("train").fingerprint() == before);
  };
  again();  // bytes
  options.tokens = "wordpiece:" + vocabulary.string();
  again();
  CHECK(contains(read_file(exported / "train.jsonl"), R"({"label":"x","text":"a b","text2":"b"})"));
  options.tokens = "words";
  REQUIRE(custom.prepare(file, options).error.empty());
  CHECK(contains(
      error_of([&] { export_official(custom.task, custom.folder.path(), exported / "w"); }),
      "pairs of words are stored without an end between them"));
}

TEST_CASE("words that train shows once are exported as the unknown one, and read back as it") {
  const CustomFolder custom;
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    lines += (i % 2 ? "a\tRed, red" : "b\tblue <!") + std::to_string(i) + "word> blue\n";
  }
  PrepareOptions options;
  options.tokens = "words";
  REQUIRE(custom.prepare(custom.folder.write("custom.tsv", lines), options).error.empty());
  const auto exported = custom.folder.path() / "exported";
  export_official(custom.task, custom.folder.path(), exported);
  CHECK(contains(read_file(exported / "train.tsv"), "a\tred , <unknown> > blue\n"));
  std::vector<std::string> before;
  for (const char* split : {"train", "dev", "test"}) {
    before.push_back(custom.split(split).fingerprint());
  }
  REQUIRE(custom.prepare(exported, options).error.empty());
  for (const char* split : {"test", "dev", "train"}) {
    CHECK(custom.split(split).fingerprint() == before.back());
    before.pop_back();
  }
}

TEST_CASE("a model of SentencePiece is learnt from the training split alone, once") {
  if (!has_sentencepiece() || !knows_unicode()) {
    MESSAGE("skipped: built without SentencePiece or utf8proc");
    return;
  }
  const CustomFolder custom;
  std::string train;
  for (int i = 0; i < 60; ++i) train += (i % 2 ? "a\tred " : "b\tblue ") + std::to_string(i) + "\n";
  custom.folder.write("mine/train.tsv", train);
  custom.folder.write("mine/dev.tsv", "a\t\u6f22 red\n");
  custom.folder.write("mine/test.tsv", "b\tblue\n");
  const auto model = custom.folder.path() / "custom.model";
  PrepareOptions options;
  options.from = custom.folder.path() / "mine";
  options.tokens = "sentencepiece:" + model.string();
  options.learn_tokens = "unigram:32";
  const auto prepare = [&] {
    return error_of([&] { data::prepare(custom.task, custom.folder.path(), options); });
  };
  custom.folder.write("mine/test.tsv", "b\t \n");
  CHECK(contains(prepare(), "test.tsv:1: no token of sentencepiece in ' '"));
  CHECK_FALSE(std::filesystem::exists(model));  // nothing of a set that is refused stays
  custom.folder.write("mine/test.tsv", "b\tblue\n");
  REQUIRE(prepare().empty());
  const auto learnt = read_sentencepiece(model);
  const auto stored = vocabulary_in(parse_json(custom.split("dev").provenance()));
  CHECK(stored->encode("blue red", "x") == learnt->encode("blue red", "x"));
  const Dataset split = custom.split("dev");
  const auto dev = split.wide_tokens(0);
  CHECK(std::count(dev.begin(), dev.end(), 0) == 1);  // what only dev shows is unknown

  CHECK(contains(prepare(), "custom.model is there already"));
  options.learn_tokens.clear();
  CHECK(prepare().empty());
  options.learn_tokens = "bpe:32";
  options.force = true;
  CHECK(prepare().empty());
  options.tokens = "words";
  CHECK(contains(prepare(), "expected with --tokens sentencepiece:FILE, got --tokens words"));
}

TEST_CASE("kinds of tokens that do not exist are refused with those that do") {
  const CustomFolder custom;
  const auto file = custom.folder.write("custom.tsv", rows(40));
  for (const char* kind : {"word", "sentences:m.model", ""}) {
    PrepareOptions options;
    options.tokens = kind;
    const std::string error = custom.prepare(file, options).error;
    CAPTURE(kind);
    CHECK(error.empty() == std::string(kind).empty());
    if (!error.empty()) {
      for (const char* known : {"bytes", "words", "integers"}) CHECK(contains(error, known));
    }
  }
  for (const char* missing : {"sentencepiece:none/m", "wordpiece:none/v.txt", "bpe:none"}) {
    PrepareOptions options;
    options.tokens = missing;
    CHECK(contains(custom.prepare(file, options).error, "none"));
  }
  PrepareOptions options;
  options.header = true;
  CHECK(contains(error_of<UsageError>(
                     [&] { data::prepare(find_task("listops"), custom.folder.path(), options); }),
                 "--header has no effect on listops"));
}

TEST_CASE("UTF-8 is expected of texts that are cut into pieces, of second ones too") {
  if (!knows_unicode()) return;
  const CustomFolder custom;
  custom.folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nx\n");
  PrepareOptions options;
  options.tokens = "wordpiece:" + (custom.folder.path() / "vocab.txt").string();
  std::string lines = "label\tsentence1\tsentence2\n";
  for (int i = 0; i < 20; ++i) lines += std::to_string(i % 2) + "\tx\tx\n";
  const auto odd = custom.folder.write("custom.tsv", lines + "1\tx\tcaf\xE9\n");
  CHECK(contains(custom.prepare(odd, options).error, "custom.tsv:22: byte 4 of 'caf\\xe9'"));
  const Said bytes = custom.prepare(odd);
  CHECK(bytes.error.empty());
  CHECK(contains(bytes.warnings, "1 of 42 texts are read as bytes, the first"));
  const auto nul =
      custom.folder.write("custom.tsv", lines + "1\tx\t" + std::string("a\0b", 3) + "\n");
  CHECK(contains(custom.prepare(nul).error, "custom.tsv:22: byte 2"));
}

TEST_CASE("labels and words are UTF-8, as what keeps them is; so is what is exported as JSON") {
  const CustomFolder custom;
  std::string lines = "label\ttext\n";
  for (int i = 0; i < 20; ++i) lines += std::to_string(i % 2) + "\tx y x y\n";
  const auto words = custom.folder.write("words.tsv", lines + "1\tcaf\xE9 caf\xE9\n");
  PrepareOptions options;
  options.tokens = "words";
  CHECK(contains(custom.prepare(words, options).error, "words.tsv:22: byte 4 of 'caf\\xe9"));
  CHECK(custom.prepare(words).error.empty());
  const auto label = custom.folder.write("label.tsv", lines + "n\xE9\tx\nn\xE8\tx\n");
  CHECK(contains(custom.prepare(label).error, "label.tsv:22: byte 2 of 'n\\xe9'"));
  options.skip_bad_rows = true;
  CHECK(contains(custom.prepare(label, options).warnings, "2 broken rows are left out"));

  const auto exported = custom.folder.path() / "exported";
  std::string pairs = "label\ttext\ttext2\n";
  for (int i = 0; i < 20; ++i) pairs += std::to_string(i % 2) + "\tcaf\xE9\tx\n";
  REQUIRE(custom.prepare(custom.folder.write("pairs.tsv", pairs)).error.empty());
  const std::string said =
      error_of([&] { export_official(custom.task, custom.folder.path(), exported); });
  CHECK(contains(said, "--export: train: 'caf\\xe9?x' is no UTF-8: expected it, as pairs are"));
  CHECK(fs::is_empty(exported));
}

TEST_CASE("tabs within the first text of a pair of bytes are blanks, in training and afterwards") {
  const CustomFolder custom;
  std::string lines;
  for (int i = 0; i < 20; ++i) {
    lines +=
        json_text({{"label", i % 2}, {"text", "\ta\tb" + std::to_string(i)}, {"text2", "c\td"}}) +
        "\n";
  }
  REQUIRE(custom.prepare(custom.folder.write("pairs.jsonl", lines)).error.empty());
  const std::vector<std::string> texts = custom.texts("test");
  for (const std::string& text : texts) {
    CHECK(text.starts_with(" a b"));
    CHECK(text.ends_with("\tc\td"));
  }
  const auto exported = custom.folder.path() / "exported";
  export_official(custom.task, custom.folder.path(), exported);
  CHECK(contains(read_file(exported / "test.jsonl"), "\"text2\":\"c\\td\""));
  REQUIRE(custom.prepare(exported).error.empty());
  CHECK(custom.texts("test") == texts);
  const std::string row = "\ta\tb\tc\td", stored = " a b\tc\td";
  CHECK(tokenise(custom.task, nullptr, row, "x", true, 4) ==
        tokenise(custom.task, nullptr, stored, "x", true));
}
