// Custom data from outside: data, train, eval and predict, as a person would type them.
#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/unicode.hpp"
#include "tests/train/cli/program.hpp"
#include "tests/train/cli/shop.hpp"
#include "tests/train/cli/workshop.hpp"

using namespace skytape;
using namespace skytape::test;
using data::synthetic::read_file;

namespace fs = std::filesystem;

TEST_CASE("a text is too long for a run by what the run reads of it, without what it drops") {
  if (!program_or_skip()) return;
  const Workshop w;
  const Finished trained = w.finish(w.train("run", 3, {"--set", "drop_close=1"}));
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  /// A list of so many lists of two: 4 n + 2 tokens, 3 n + 1 without the closing ones.
  const auto lists = [](int count) {
    std::string text = "( [MAX";
    for (int i = 0; i < count; ++i) text += " ( [MIN 4 7 ] )";
    return text + " ] )\n";
  };
  const auto said = [&](const std::string& rows) {
    const Finished f = w.finish({"predict", "--run", w.run("run"), "--from",
                                 w.folder.write("rows.tsv", rows), "--device", "cpu"});
    CAPTURE(f.err);
    CHECK(f.code == 0);
    return f.err;
  };
  CHECK_FALSE(contains(said(lists(17) + lists(21)), "longer than"));  // 70 and 86 tokens
  CHECK(contains(said(lists(17) + lists(22) + lists(21)),
                 "1 of 3 examples are longer than the 64 tokens that the run reads"));
}

TEST_CASE(
    "predict answers with the labels' names, scores, and the accuracy where there are labels") {
  if (!program_or_skip()) return;
  const Shop shop;
  const Finished trained = shop.trained();

  SUBCASE("names, blank lines, a byte order mark") {
    const Finished f =
        shop.predict_rows("\xEF\xBB\xBFnasty nasty nasty\n\ngreen green green\n \n\n");
    CAPTURE(f.err);
    CHECK(f.code == 0);
    CHECK(lines_of(f.out) == Lines{"spam", "ham"});
    CHECK_FALSE(contains(f.err, "accuracy"));
  }
  SUBCASE("scores are probabilities, a column for each class") {
    const Finished f = shop.predict_rows("green green green\nnasty nasty nasty\n", {"--scores"});
    CHECK(f.code == 0);
    const Lines lines = lines_of(f.out);
    REQUIRE(lines.size() == 3);
    CHECK(lines[0] == "label\tham\tspam");
    std::istringstream row(lines[1]);
    std::string label;
    double ham = 0, spam = 0;
    row >> label >> ham >> spam;
    CHECK(label == "ham");
    CHECK(ham > 0.5);
    CHECK(std::abs(ham + spam - 1) < 1e-5);
  }
  SUBCASE("labels beside the texts") {
    const Finished f =
        shop.predict_rows("spam\tnasty nasty nasty\nham\tgreen green\nham\tnasty nasty\n\n");
    CHECK(f.code == 0);
    CHECK(lines_of(f.out).size() == 3);
    CHECK(contains(f.err, "accuracy 66.67 %: 2 of 3 examples"));
    const Finished header = shop.predict_rows("label\ttext\nham\tgreen green\n", {"--header"});
    CHECK(header.code == 0);
    CHECK(contains(header.err, "accuracy 100.00 %"));
    // Names of columns are known, in any order, or said.
    CHECK(shop.predict_rows("text\tid\tlabel\ngreen green\t1\tham\n").out == "ham\n");
    const Lines columns = {"--text-column", "words", "--label-column", "kind"};
    CHECK(shop.predict_rows("words\tkind\nnasty nasty\tspam\n", columns).out == "spam\n");
    const auto divided = shop.folder.write("rows.csv", "text;id;label\ngreen, green;1;ham\n");
    CHECK(shop.predict(divided).out == "ham\n");
    const Finished beside = shop.predict_rows("ham\tgreen green\n", {"--with-input"});
    CHECK(beside.out == "ham\tgreen green\n");
    const auto json = shop.folder.write("rows.jsonl", "{\"text\": \"green\\ngreen\"}\n");
    CHECK(shop.predict(json, {"--with-input"}).out == "ham\tgreen green\n");
    CHECK(shop.predict(json).out == "ham\n");
    const auto ends = shop.folder.write("ends.jsonl", "{\"text\": \"green\\r\\ngreen\\rgreen\"}\n");
    CHECK(shop.predict(ends, {"--with-input"}).out == "ham\tgreen  green green\n");
  }
  SUBCASE("classes have their own scores, beside the share of the largest class") {
    const data::Json result = data::parse_json(read_file(fs::path(shop.run) / "result.json"));
    const data::Json& test = result["test_scores"];
    REQUIRE(test.is_object());
    CHECK(result["trivial_floor"] == test["majority_share"]);
    CHECK(test["classes"][0]["name"] == data::Json("ham"));
    CHECK(test["classes"][0]["f1"] == data::Json(1));
    CHECK(contains(trained.out, "(the largest class alone "));
    const Finished eval = shop.finish({"eval", "--run", shop.run, "--confusion"});
    CHECK(contains(eval.out, "the largest class alone: "));
    CHECK(contains(eval.out, "macro average"));
    CHECK(contains(eval.out, "rows: the label, columns: the answer"));
    const Finished plain = shop.finish({"eval", "--run", shop.run});
    CHECK(contains(plain.out, "macro average"));  // of custom data without asking
    CHECK_FALSE(contains(plain.out, "rows: the label"));
  }
  SUBCASE("what is no label is refused, and the answers before stay") {
    const Finished f = shop.predict_rows("ham\tgreen green\nspam\tnasty nasty\neggs\tgreen\n");
    CHECK(f.code == 3);
    CHECK(lines_of(f.out) == Lines{"ham", "spam"});
    CHECK(
        contains(f.err, "rows.tsv:3: the label 'eggs' is none of the run's: ham, spam; expected"));
    CHECK(contains(shop.predict_rows("kind\twords\nham\tgreen\n").err, "--header"));
    const Finished mixed = shop.predict_rows("green green\nham\tgreen\n");
    CHECK(mixed.code == 3);
    CHECK(mixed.out == "ham\n");
    CHECK(contains(mixed.err, "rows.tsv:2: has a label, unlike the rows before"));
  }
  SUBCASE("folders, missing and empty files are errors") {
    CHECK(shop.predict(shop.folder.path()).code == 3);
    CHECK(contains(shop.predict(shop.folder.path()).err, "a folder; expected a file"));
    CHECK(shop.predict(shop.folder.path() / "nowhere").code == 3);
    CHECK(shop.predict_rows("\n \n").code == 3);
    CHECK(contains(shop.predict_rows("").err, "no example"));
  }
  SUBCASE("cut texts are counted") {
    const Finished f =  // one of them is just as long as the run reads
        shop.predict_rows("green\n" + std::string(33, 'x') + "\n" + std::string(32, 'x') + "\n");
    CHECK(f.code == 0);
    CHECK(contains(f.err, "1 of 3 examples are longer than the 32 tokens"));
  }
  SUBCASE("- is standard input") {
    const Finished file = shop.predict_rows("green green\nnasty nasty\n");
    const Finished piped = shop.predict_piped("cat rows.tsv");
    CHECK(piped.code == 0);
    CHECK(piped.out == file.out);
    CHECK(lines_of(file.out).size() == 2);
  }
}

TEST_CASE("packed standard input is unpacked, in several members, too") {
  if (!program_or_skip()) return;
  const Shop shop;
  shop.trained();
  shop.folder.write("a", "green green\n");
  shop.folder.write("b", "nasty nasty\n");
  const Finished both = shop.predict_piped("gzip a b && cat a.gz b.gz");
  CHECK(both.code == 0);
  CHECK(both.out == "ham\nspam\n");
  const Finished half = shop.predict_piped("head -c 20 a.gz");
  CHECK(half.code == 3);
  CHECK(contains(half.err, "standard input: truncated gzip data"));
}

TEST_CASE(
    "predict reads what training read, by --format, ending or content, and asks if it cannot "
    "tell") {
  if (!program_or_skip()) return;
  const Shop shop;
  shop.trained();
  const std::string lines =
      "{\"label\": \"ham\", \"text\": \"green green\"}\n{\"label\": \"spam\", \"text\": \"nasty "
      "nasty\"}\n";
  const auto piped = [&](const std::string& text, const std::string& more = "") {
    shop.folder.write("piped", text);
    return shop.predict_piped("cat piped", more);
  };
  for (const char* name : {"rows.jsonl", "rows.json", "rows.txt", "rows"}) {
    CAPTURE(name);
    CHECK(shop.predict(shop.folder.write(name, lines)).out == "ham\nspam\n");
  }
  CHECK(piped(lines).out == "ham\nspam\n");
  CHECK(contains(piped(lines).err, "accuracy 100.00 %"));
  const Finished other =
      shop.predict(shop.folder.write("other.jsonl", "{\"id\": 4, \"content\": \"green\"}\n"));
  CHECK(other.out == "ham\n");
  CHECK(contains(other.err, "other.jsonl: its members are known by name, text 'content'\n"));
  // Training read TSV: what begins like CSV is asked about.
  const std::string csv = "ham,\"green, green\"\nspam,nasty nasty\n";
  CHECK(piped(csv).code == 2);
  CHECK(contains(piped(csv).err, "--format tsv, csv or jsonl"));
  CHECK(piped(csv, "--format csv").out == "ham\nspam\n");
  CHECK(contains(piped(csv, "--format csv").err, "accuracy 100.00 %"));
  CHECK(piped(csv, "--format tsv").code == 0);
  CHECK(piped("green, green\n").code == 0);
  CHECK(piped(csv, "--format xml").code == 2);

  // A set from a file whose content or flag says the format keeps it, and predict goes by it.
  std::string rows;
  for (int i = 0; i < 60; ++i) {
    rows += i % 2 ? "ham,\"green green, green\"\n" : "spam,\"nasty nasty, nasty\"\n";
  }
  const auto own = shop.folder.write("own.txt", rows);
  CHECK(shop.prepare_from(own, {"--force"}).code != 0);
  const Finished said = shop.prepare_from(own, {"--force", "--format", "csv"});
  CAPTURE(said.err);
  REQUIRE(said.code == 0);
  REQUIRE(shop.train().code == 0);
  CHECK(piped(csv).out == "ham\nspam\n");
  CHECK(piped("green green\nnasty, nasty\n").out == "ham\nspam\n");
  CHECK(piped("green, green\n").code == 2);
}

TEST_CASE("predict says which column it took for the text, and whether a first row named it") {
  if (!program_or_skip()) return;
  const Shop shop;
  std::string rows = "mood,review\n";
  for (int i = 0; i < 60; ++i) {
    rows += i % 2 ? "ham,green green green\n" : "spam,nasty nasty nasty\n";
  }
  REQUIRE(shop.prepare_from(shop.folder.write("own.csv", rows),
                            {"--label-column", "mood", "--text-column", "review"})
              .code == 0);
  REQUIRE(shop.train().code == 0);
  // A name that training did not read is a text as any other: each row is answered, and it is said.
  for (const char* name : {"ids.csv", "ids.tsv", "ids.txt"}) {
    CAPTURE(name);
    const Finished ids = shop.predict(shop.folder.write(name, "comment_id\n17\n18\n"));
    CAPTURE(ids.err);
    CHECK(ids.code == 0);
    CHECK(lines_of(ids.out).size() == 3);
    CHECK(contains(ids.err, std::string(name) + ": every row is read as a text, the first one, "
                                                "'comment_id', too; if that names the column, "));
    CHECK(contains(ids.err, "add --header --text-column NAME"));
  }
  const auto ids = shop.folder.write("ids.csv", "comment_id\ngreen green\nnasty nasty\n");
  const Finished named = shop.predict(ids, {"--header", "--text-column", "comment_id"});
  CAPTURE(named.err);
  CHECK(named.out == "ham\nspam\n");
  CHECK_FALSE(contains(named.err, "each row is a text"));
  CHECK(contains(shop.predict(ids, {"--header"}).err, "no column 'review' in comment_id"));
  CHECK(contains(shop.predict_piped("cat ids.csv").err,
                 "standard input: every row is read as a text"));
  // A name that it did read.
  const Finished known = shop.predict(shop.folder.write("known.csv", "review\ngreen green\n"));
  CHECK(known.out == "ham\n");
  CHECK(contains(known.err, "known.csv: its first row names the columns, text 'review'\n"));
  const Finished both =
      shop.predict(shop.folder.write("both.csv", "id,review,mood\n7,nasty nasty,spam\n"));
  CHECK(both.out == "spam\n");
  CHECK(contains(both.err, "names the columns, text 'review', label 'mood'\n"));
  const Finished json =
      shop.predict(shop.folder.write("other.jsonl", "{\"id\": 4, \"content\": \"green\"}\n"));
  CHECK(json.code == 3);
  CHECK(contains(json.err, "no JSON object with a text in"));
  // A wrong label is not said to stand beside a tab where there is none.
  const Finished wrong = shop.predict(shop.folder.write("wrong.csv", "eggs,green green\n"));
  CHECK(wrong.code == 3);
  CHECK(contains(wrong.err, "wrong.csv: row 1: the label 'eggs' is none of the run's: ham, spam"));
  CHECK_FALSE(contains(wrong.err, "tab"));
  CHECK_FALSE(contains(shop.predict_rows("ham\tgreen green\n").err, "each row is a text"));
}

TEST_CASE("a run on single texts reads the text of a file of pairs, and says what it leaves") {
  if (!program_or_skip()) return;
  const Shop shop;
  (void)shop.trained();
  for (const auto& [name, text] :
       {std::pair("pairs.csv", "label,text,text2\nham,green green,nasty nasty nasty nasty nasty\n"),
        {"pairs.jsonl", R"({"text": "green green", "text2": "nasty nasty nasty nasty nasty"})"}}) {
    const Finished f = shop.predict(shop.folder.write(name, text), {"--with-input"});
    CAPTURE(f.err);
    CHECK(f.out == "ham\tgreen green\n");
    CHECK(contains(f.err, std::string(name) +
                              ": 'text2' is not read, as the run was trained on single texts"));
  }
  std::string pairs = "label,text,text2\n";
  for (int i = 0; i < 60; ++i) pairs += i % 2 ? "ham,green,red\n" : "spam,nasty,mean\n";
  const Finished paired = shop.prepare_from(shop.folder.write("pairs.csv", pairs), {"--force"});
  CHECK(contains(paired.err, "each example is a pair of texts (--text-column 'text' reads single"));
}

TEST_CASE("a model of words keeps its vocabulary: trained, resumed, evaluated, asked") {
  if (!program_or_skip()) return;
  const Shop shop;
  const Finished prepared = shop.prepare({"--tokens", "words"});
  CAPTURE(prepared.err);
  REQUIRE(prepared.code == 0);
  CHECK(contains(prepared.out, "words as tokens: 2 different ones"));
  const Finished trained = shop.train();
  CAPTURE(trained.err);
  REQUIRE(trained.code == 0);
  const auto config = data::parse_json(read_file(fs::path(shop.run) / "config.json"));
  CHECK(config.at("data_provenance").at("vocabulary").size() == 2);

  const Finished eval = shop.finish({"eval", "--run", shop.run, "--device", "cpu"});
  CAPTURE(eval.err);
  CHECK(eval.code == 0);
  CHECK(contains(eval.out, "accuracy 100.00 %"));
  fs::remove_all(shop.data);  // predict needs the run alone
  const Finished f = shop.predict_rows("GREEN unheard-of green\nnasty\n");
  CAPTURE(f.err);
  CHECK(f.code == 0);
  CHECK(lines_of(f.out) == Lines{"ham", "spam"});
}

TEST_CASE("a model of subwords keeps its vocabulary, whatever becomes of its files") {
  if (!program_or_skip()) return;
  if (!unicode_or_skip()) return;
  const Shop shop;
  const auto vocabulary =
      shop.folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngreen\nnas\n##ty\n");
  const Finished prepared = shop.prepare({"--tokens", "wordpiece:" + vocabulary.string()});
  CAPTURE(prepared.err);
  REQUIRE(prepared.code == 0);
  CHECK(contains(prepared.out, "wordpiece as tokens: 8 different ones"));
  REQUIRE(shop.train().code == 0);
  fs::remove_all(shop.data);
  fs::remove(vocabulary);
  const Finished f = shop.predict_rows("GREEN unheard-of Gréén\nnasty\n");
  CAPTURE(f.err);
  CHECK(f.code == 0);
  CHECK(lines_of(f.out) == Lines{"ham", "spam"});
}

TEST_CASE("a model of pairs is asked about pairs, with the end of a text between the two") {
  if (!program_or_skip()) return;
  if (!unicode_or_skip()) return;
  const Shop shop;
  const auto vocabulary =
      shop.folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngreen\nnasty\n");
  // Only where the first text ends tells the two classes apart.
  const std::string pairs[] = {"green\tnasty nasty", "green nasty\tnasty"};
  for (const char* split : {"train", "dev"}) {
    std::string rows = "index\tquestion\tsentence\tlabel\n";
    for (int i = 0; i < 60; ++i) {
      rows += std::to_string(i) + "\t" + pairs[i % 2] + (i % 2 ? "\tham\n" : "\tspam\n");
    }
    shop.folder.write(std::string("glue/") + split + ".tsv", rows);
  }
  REQUIRE(shop.prepare_from(shop.folder.path() / "glue",
                            {"--tokens", "wordpiece:" + vocabulary.string()})
              .code == 0);
  const Finished trained = shop.train({"ngrams=2"});
  CAPTURE(trained.err);
  REQUIRE(trained.code == 0);
  CHECK(contains(trained.out, "test accuracy 100.00 %"));
  const Finished f = shop.predict_rows(pairs[0] + "\n" + pairs[1] + "\n");
  CAPTURE(f.err);
  CHECK(f.code == 0);
  CHECK(lines_of(f.out) == Lines{"spam", "ham"});
  const Finished labelled = shop.predict_rows("spam\t" + pairs[0] + "\nspam\t" + pairs[1] + "\n");
  CHECK(contains(labelled.err, "accuracy 50.00 %: 1 of 2 examples"));
  const auto json = shop.folder.write("rows.jsonl", R"({"text": "green nasty\tnasty"})");
  CHECK(shop.predict(json).out == "ham\n");
  // A tab within the first of two texts is a blank, as in training.
  const auto tab = shop.folder.write("tab.jsonl", R"({"text": "green\tnasty", "text2": "nasty"})");
  CHECK(shop.predict(tab).out == "ham\n");
  // Without places or n-grams the types of the tokens are what tells the classes apart.
  const auto train_unordered = [&](const char* types) {
    return shop.train({"ngrams=0", "positions=none", "pooling=mean", types}, "100");
  };
  CHECK(contains(train_unordered("token_types=0").out, "test accuracy 50.00 %"));
  const Finished typed = train_unordered("token_types=1");
  CAPTURE(typed.err);
  CHECK(contains(typed.out, "test accuracy 100.00 %"));
  CHECK(lines_of(shop.predict_rows(pairs[0] + "\n" + pairs[1] + "\n").out) == Lines{"spam", "ham"});
  for (const char* row : {"green nasty\n", "green\t\n", "\tgreen\n"}) {
    CAPTURE(row);
    const Finished alone = shop.predict_rows(row);
    CHECK(alone.code == 3);
    CHECK(contains(alone.err, "rows.tsv:1: expected two texts with a tab between"));
  }
}

TEST_CASE("every row has an answer, whatever blanks and tabs its texts have") {
  if (!program_or_skip()) return;
  const Shop shop;
  shop.trained();
  const auto rows = shop.folder.write(
      "blank.jsonl", "{\"text\": \"green\"}\n{\"text\": \"  \"}\n\n{\"text\": \"nasty\"}\n");
  const Finished one = shop.predict(rows);
  CHECK(lines_of(one.out).size() == 3);
  CHECK(contains(one.err, "blank.jsonl: 1 blank line was skipped\n"));
  CHECK(lines_of(shop.predict_rows("ham\t \n \t\n\nham\tgreen\n").out).size() == 2);
}

TEST_CASE("predict reads the files of GLUE by their columns, as data does") {
  if (!program_or_skip()) return;
  const Shop shop;
  const auto rows = [&](bool cola) {
    std::string text = cola ? "" : "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n";
    for (int i = 0; i < 60; ++i) {
      const char* const word = i % 2 ? "green green" : "nasty nasty";
      text += cola ? (i % 2 ? "ab01\t1\t\t" : "cd02\t0\t*\t") + std::string(word) + "\n"
                   : std::to_string(i % 2) + "\t7\t8\t" + word + "\t" + word + "\n";
    }
    return text;
  };
  bool cola = true;
  SUBCASE("CoLA: source, label, star, sentence, and no header") {}
  SUBCASE("MRPC: a separate header, ids, two sentences") { cola = false; }
  for (const char* split : {"train", "dev"}) {
    shop.folder.write(std::string("glue/") + split + ".tsv", rows(cola));
  }
  REQUIRE(shop.prepare_from(shop.folder.path() / "glue").code == 0);
  REQUIRE(shop.train().code == 0);
  const Finished f = shop.predict(shop.folder.path() / "glue/dev.tsv");
  CAPTURE(f.err);
  CHECK(f.code == 0);
  CHECK(lines_of(f.out).size() == 60);
  CHECK(contains(f.err, "accuracy 100.00 %: 60 of 60 examples"));
}

TEST_CASE("flags of custom data that do nothing, and tokens that do not exist, exit with 2") {
  if (!program_or_skip()) return;
  const Shop shop;
  const Finished letters = shop.prepare({"--tokens", "letters"});
  CAPTURE(letters.err);
  CHECK(letters.code == 2);
  CHECK(contains(letters.err, "bytes, words, integers"));
  for (const Lines& flags :
       {Lines{"--header"}, Lines{"--tokens", "words"}, Lines{"--learn-tokens", "unigram:100"}}) {
    const Finished f = shop.finish({"data", "--task", "tsv", "--data", shop.data}, flags);
    CHECK(f.code == 2);
    CHECK(contains(f.err, "no effect without --from"));
  }
}

TEST_CASE("a run says how many of its training texts are cut") {
  if (!program_or_skip()) return;
  const Shop shop;
  std::string rows;
  for (int i = 0; i < 20; ++i)
    rows += (i % 2 ? "a\t" : "b\t") + std::string(i < 18 ? 32 : 31, 'x') + "\n";
  REQUIRE(shop.prepare_from(shop.folder.write("x.tsv", rows)).code == 0);
  const Finished whole = shop.train();
  CAPTURE(whole.err);
  CHECK(whole.code == 0);
  CHECK_FALSE(contains(whole.err, "are not read"));

  // The token of pooling=cls takes one of the 32 places.
  const Finished cls = shop.train({"ngrams=0", "pooling=cls"});
  CAPTURE(cls.err);
  CHECK(cls.code == 0);
  CHECK(contains(cls.err,
                 "training examples are longer than 31 tokens: their ends are not read "
                 "(max_length = 32)"));
  const Finished f = shop.predict_rows(rows);
  CAPTURE(f.err);
  CHECK(contains(f.err, "18 of 20 examples are longer than the 31 tokens that the run reads"));
}
