// IMDb's reviews as custom data: which review becomes what, and what is said about wrong layouts.
#include "data/custom/imdb.hpp"

#include <algorithm>
#include <set>

#include "data/files/json.hpp"
#include "data/tokenisers/sentencepiece.hpp"
#include "data/tokenisers/vocabulary.hpp"
#include "tests/data/real_data.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/data/tasks/official_files.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/unicode.hpp"

using namespace skytape;
using namespace skytape::data;
using namespace skytape::data::synthetic;
using test::contains;
using test::unicode_or_skip;

namespace {

namespace fs = std::filesystem;

/// Without the warning that the set is not the official one, which no test has.
struct Imdb {
  Folder folder;
  const TaskInfo& task = find_task("tsv");
  mutable std::string warnings = {};

  /// The error of preparing `from` below `root`; "" if there is none.
  [[nodiscard]] std::string prepare(const fs::path& from, PrepareOptions options = {},
                                    const char* root = "root") const {
    warnings.clear();
    options.from = from;
    options.force = true;
    options.warn = [&](std::string_view text) {
      if (!contains(std::string(text), "the official set has")) warnings += text;
    };
    return error_of([&] { data::prepare(task, folder.path() / root, options); });
  }
  [[nodiscard]] Dataset split(const char* name, const char* root = "root") const {
    return open(task, folder.path() / root, name);
  }
  /// The files as a tree of their own; with `change`, as it leaves them.
  template <class F>
  [[nodiscard]] fs::path tree(const char* name, int per_split, F&& change) const {
    Files files = review_files(per_split);
    change(files);
    write_files(folder.path() / name, files);
    return folder.path() / name / "aclImdb";
  }
  [[nodiscard]] fs::path tree(const char* name, int per_split) const {
    return tree(name, per_split, [](Files&) {});
  }
};

void leave_out(Files& files, const std::string& part) {
  std::erase_if(files, [&](const auto& file) { return contains(file.first, part); });
}

}  // namespace

TEST_CASE("IMDb: folders, and an archive of any order, make the same set of custom data") {
  const Imdb imdb;
  const fs::path tree = imdb.tree("tree", 60);
  Files files = review_files(60);
  std::reverse(files.begin(), files.end());
  const fs::path archive = imdb.folder.path() / "reviews.tar.gz";
  write_tar(archive, files);
  fs::create_directories(imdb.folder.path() / "downloads");
  write_tar(imdb.folder.path() / "downloads/aclImdb_v1.tar.gz", files);
  for (const char* tokens : {"bytes", "words"}) {
    CAPTURE(tokens);
    PrepareOptions options;
    options.tokens = tokens;
    REQUIRE(imdb.prepare(tree, options, "a").empty());
    for (const fs::path& from : {tree.parent_path(), archive, imdb.folder.path() / "downloads"}) {
      CAPTURE(from);
      REQUIRE(imdb.prepare(from, options, "b").empty());
      for (const char* split : {"train", "dev", "test"}) {
        CHECK(imdb.split(split, "a").fingerprint() == imdb.split(split, "b").fingerprint());
        CHECK(imdb.split(split, "a").provenance() == imdb.split(split, "b").provenance());
      }
    }
  }
  const std::string before = imdb.split("dev", "b").fingerprint();
  PrepareOptions options;
  options.tokens = "words";
  options.data_seed = 2;
  REQUIRE(imdb.prepare(tree, options, "b").empty());
  CHECK(imdb.split("dev", "b").fingerprint() != before);
}

TEST_CASE("IMDb: no test review enters train or dev, which share none, nor the vocabulary") {
  const Imdb imdb;
  const fs::path tree = imdb.tree("tree", 100);
  REQUIRE(imdb.prepare(tree).empty());
  CHECK(imdb.warnings == "1 reviews without a label (train/unsup) are left out");
  std::set<std::string> texts;
  for (const auto& [name, size] : {std::pair("train", 95), {"dev", 5}, {"test", 100}}) {
    const Dataset data = imdb.split(name);
    CHECK(data.size() == size);
    const std::string start = std::string(name) == "test" ? "test" : "train";
    for (std::int64_t i = 0; i < data.size(); ++i) {
      const std::string text(data.tokens(i).begin(), data.tokens(i).end());
      REQUIRE(text.starts_with(start + " review number "));
      texts.insert(text);
      CHECK(data.label(i) == std::stoi(text.substr(start.size() + 15)) % 2);
    }
  }
  CHECK(texts.size() == 200);
  const Json facts = parse_json(imdb.split("test").provenance());
  CHECK(facts.at("labels") == Json(std::vector<std::string>{"neg", "pos"}));
  CHECK(contains(facts.at("splits").get<std::string>(), "a twentieth of its train split"));
  CHECK(facts.at("sources").size() == 2);
  CHECK(facts.at("sources")[0].at("sha256") != facts.at("sources")[1].at("sha256"));

  PrepareOptions options;
  options.tokens = "words";
  REQUIRE(imdb.prepare(tree, options).empty());
  const auto words = vocabulary_in(parse_json(imdb.split("test").provenance()));
  const auto id_of = [&](const char* word) { return words->encode(word, "x"); };
  CHECK(id_of("train") != id_of("test"));
  CHECK(id_of("test") == id_of("strange"));  // test's own word is as unknown as any other
}

TEST_CASE("IMDb: ratings of 1 to 4 are negative, of 7 to 10 positive, and others are refused") {
  for (int rating = 0; rating <= 12; ++rating) {
    CAPTURE(rating);
    for (const bool positive : {false, true}) {
      const char* const folder = positive ? "pos" : "neg";
      const std::string file = join("aclImdb/test/", folder, "/31_", rating, ".txt");
      ReviewName name;
      const auto parse = [&] { (void)parse_review_name(file, name); };
      const std::string error = error_of<DataError>(parse);
      const bool right = positive ? 7 <= rating && rating <= 10 : 1 <= rating && rating <= 4;
      CHECK(error.empty() == right);
      if (!right) CHECK(contains(error, positive ? "expected 7..10" : "expected 1..4"));
      if (right) CHECK(name.rating == rating);
      if (right) CHECK(name.label == positive);
    }
  }
}

TEST_CASE("IMDb: what lacks, breaks or repeats reviews is refused with its place") {
  const Imdb imdb;
  const std::string expected = "expected {train,test}/{neg,pos}/<id>_<rating>.txt";
  const auto without = [&](const char* name, const char* part) {
    return imdb.prepare(imdb.tree(name, 40, [&](Files& files) { leave_out(files, part); }));
  };
  const std::string one = without("a", "test/pos");
  CHECK(contains(one, "aclImdb: no reviews in test/pos; " + expected));
  fs::create_directories(imdb.folder.path() / "a/aclImdb/test/pos");
  CHECK(imdb.prepare(imdb.folder.path() / "a/aclImdb") == one);
  CHECK(contains(without("b", "train/neg"), "no reviews in train/neg;"));
  CHECK(contains(without("c", "aclImdb/test"), "no reviews in test/neg, test/pos;"));
  CHECK(contains(imdb.prepare(imdb.tree("d", 40, [](Files& f) { leave_out(f, "_"); })),
                 "no train.tsv (or .csv, .jsonl); expected a file, or a folder with train.tsv, "
                 "dev.tsv and test.tsv, or IMDb's"));
  CHECK(contains(imdb.prepare(imdb.tree("e", 18)), "18 examples in train, expected at least 20"));

  const auto added = [&](const char* name, const std::string& path, const std::string& text) {
    return imdb.prepare(imdb.tree(name, 40, [&](Files& files) { files.emplace_back(path, text); }));
  };
  CHECK(contains(added("f", "aclImdb/train/pos/7_2.txt", "x"), "rating 2 in folder pos"));
  const std::string twice = added("g", "aclImdb/copy/train/pos/7_8.txt", "x");
  CHECK(contains(twice, "copy/train/pos/7_8.txt and "));
  CHECK(contains(twice, "g/aclImdb/train/pos/7_8.txt: one review twice"));
  CHECK(added("h", "aclImdb/train/pos/700_8.txt", "").empty());
  CHECK(contains(imdb.warnings, "train/pos/700_8.txt: empty review, skipped"));
  CHECK(added("i", "aclImdb/test/neg/._3_2.txt", "x").empty());
  CHECK(contains(imdb.warnings, "1 files next to the reviews are left out"));
  CHECK(contains(imdb.warnings, "test/neg/._3_2.txt"));
  PrepareOptions options;
  options.header = true;
  CHECK(contains(imdb.prepare(imdb.folder.path() / "i/aclImdb", options), "--header: IMDb's"));
}

TEST_CASE("IMDb: archives that are cut or hold something else are refused by name") {
  const Imdb imdb;
  const fs::path good = imdb.folder.path() / "good.tar.gz";
  write_tar(good, review_files(40));
  const std::string bytes = read_file(good);
  for (const std::size_t part : {1, 3, 5, 7}) {
    CAPTURE(part);
    const fs::path cut =
        imdb.folder.write("cut.tar.gz", std::string_view(bytes).substr(0, part * bytes.size() / 8));
    CHECK(contains(imdb.prepare(cut), "cut.tar.gz: "));
  }
  CHECK(contains(imdb.prepare(imdb.folder.write("x.tar.gz", "no archive")), "x.tar.gz: "));
  write_tar(imdb.folder.path() / "other.tar.gz",
            {{"own/train.tsv", "a\tb\n"}, {"own/dev.tsv", ""}});
  CHECK(
      contains(imdb.prepare(imdb.folder.path() / "other.tar.gz"),
               "other.tar.gz: none of 2 files in it (own/train.tsv, …) is a review of IMDb; custom "
               "data are read from a file, or from a folder with train.tsv, dev.tsv and test.tsv: "
               "unpack the archive"));
  write_tar(imdb.folder.path() / "rows.tar", {{"rows.csv", "label,text\na,b\n"}});
  CHECK(contains(imdb.prepare(imdb.folder.path() / "rows.tar"),
                 "rows.tar: none of 1 file in it (rows.csv) is a review"));
  PrepareOptions columns;
  columns.columns.text = "text";
  CHECK(contains(imdb.prepare(imdb.folder.path() / "rows.tar", columns), "unpack the archive"));
  CHECK_FALSE(is_prepared(imdb.task, imdb.folder.path() / "root"));
}

TEST_CASE("IMDb: what is no UTF-8 is refused with its place where tokens are pieces") {
  if (!unicode_or_skip()) return;
  const Imdb imdb;
  imdb.folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nreview\nnumber\n");
  PrepareOptions options;
  options.tokens = "wordpiece:" + (imdb.folder.path() / "vocab.txt").string();
  const fs::path fine = imdb.tree("fine", 40);
  REQUIRE(imdb.prepare(fine, options).empty());
  const Dataset dev = imdb.split("dev");
  const auto tokens = dev.wide_tokens(0);
  CHECK(std::count(tokens.begin(), tokens.end(), 5) == 1);

  const fs::path odd = imdb.tree(
      "odd", 40, [](Files& files) { files.emplace_back("aclImdb/train/pos/99_9.txt", "caf\xE9"); });
  CHECK(contains(imdb.prepare(odd, options), "train/pos/99_9.txt: byte 4 of "));
  if (has_sentencepiece()) {
    options.tokens = "sentencepiece:" + (imdb.folder.path() / "own.model").string();
    options.learn_tokens = "unigram:40";
    options.data_seed = 3;  // the odd one is no example of dev
    CHECK(contains(imdb.prepare(odd, options), "train/pos/99_9.txt: byte 4 of "));
    CHECK_FALSE(fs::exists(imdb.folder.path() / "own.model"));
    CHECK(imdb.prepare(fine, options).empty());
  }
  CHECK(imdb.prepare(odd).empty());  // bytes are what they are
}

TEST_CASE("the real reviews as custom data: 23,750 to train on, 1,250 for dev, 25,000 to test") {
  const auto real = real_data_or_skip("imdb");
  if (!real) return;
  const Imdb imdb;
  REQUIRE(imdb.prepare(*real).empty());
  const Description facts = describe(imdb.task, imdb.folder.path() / "root");
  CHECK(facts.splits[0].examples == 23750);
  CHECK(facts.splits[1].examples == 1250);
  CHECK(facts.splits[2].examples == 25000);
  CHECK(facts.splits[2].label_counts == std::vector<std::int64_t>{12500, 12500});
}
