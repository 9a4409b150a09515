// Corpora: what is a document, which split it goes to, and how documents lie in sequences.
#include <map>

#include "data/custom/documents.hpp"
#include "data/files/digest.hpp"
#include "data/files/json.hpp"
#include "data/files/source.hpp"
#include "data/tokenisers/sentencepiece.hpp"
#include "data/tokenisers/vocabulary.hpp"
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
using Texts = std::vector<std::string>;

Texts documents_of(std::string_view file) {
  Texts documents;
  read_documents(*open_memory(as_bytes(file)), "f",
                 [&](const std::string& text, const std::string&) { documents.push_back(text); });
  return documents;
}

struct Corpus {
  Folder folder;
  const TaskInfo& task = find_task("corpus");

  [[nodiscard]] std::string prepare(const fs::path& from, PrepareOptions options = {}) const {
    options.from = from;
    options.force = true;
    return error_of([&] { data::prepare(task, folder.path() / "sets", options); });
  }
  [[nodiscard]] Dataset split(const char* name) const {
    return open(task, folder.path() / "sets", name);
  }
  /// The bytes of a split, its sequences one behind the other.
  [[nodiscard]] std::string bytes(const char* name) const {
    std::string all;
    const Dataset data = split(name);
    for (std::int64_t i = 0; i < data.size(); ++i) {
      all.append(data.tokens(i).begin(), data.tokens(i).end());
    }
    return all;
  }
};

/// "document 0", "document 1", …, one a line.
std::string lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "document " + std::to_string(i) + "\n";
  return text;
}

}  // namespace

TEST_CASE("a blank line ends a document; without blank lines, each line is one") {
  CHECK(documents_of("").empty());
  CHECK(documents_of("\n \n\t\n").empty());
  CHECK(documents_of("a\nb\nc") == Texts{"a", "b", "c"});
  CHECK(documents_of("\n\na\nb\n\n") == Texts{"a", "b"});  // blank lines at the ends part nothing
  CHECK(documents_of("a\nb\n\nc\r\nd\r\n\r\n\r\ne\n") == Texts{"a\nb", "c\nd", "e"});
  CHECK(documents_of("a\n \t\v\f\r \nb") == Texts{"a", "b"});
  CHECK(documents_of("\xEF\xBB\xBF"
                     "a\nb") == Texts{"a", "b"});
  // Behind 16 MB it is settled that lines are documents.
  const std::string long_line(9 << 20, 'x');
  CHECK(documents_of(long_line + "\n" + long_line + "\na\n\nb\n").size() == 4);
  std::vector<std::string> places;
  read_documents(*open_memory(as_bytes("a\n\nb\nc\n\n\nd")), "f",
                 [&](const std::string&, const std::string& at) { places.push_back(at); });
  CHECK(places == Texts{"f:1", "f:3", "f:7"});
  const std::string endless = "a\n\n" + std::string(65 << 20, 'x');
  CHECK(contains(error_of<DataError>([&] { (void)documents_of(endless); }), "f:3"));
  std::string many = "a\n\n";
  for (int i = 0; i < 65; ++i) many += std::string(1 << 20, 'y') + "\n";
  CHECK(contains(error_of<DataError>([&] { (void)documents_of(many); }), "expected blank lines"));
}

TEST_CASE("a corpus is packed: every document once, in order, with its end, in one split") {
  const Corpus corpus;
  PrepareOptions options;
  options.length = 37;
  REQUIRE(corpus.prepare(corpus.folder.write("all.text", lines(200)), options).empty());
  std::map<std::string, int> seen;
  for (const auto& [name, count] : {std::pair{"train", 180}, {"dev", 10}, {"test", 10}}) {
    const std::string bytes = corpus.bytes(name);
    int documents = 0, last = -1;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t end = bytes.find('\n', at);
      REQUIRE(end != std::string::npos);
      const std::string document = bytes.substr(at, end - at);
      const int number = std::stoi(document.substr(9));
      CHECK(number > last);
      last = number;
      ++seen[document];
      ++documents;
      at = end + 1;
    }
    CHECK(documents == count);
    const Dataset data = corpus.split(name);
    for (std::int64_t i = 0; i + 1 < data.size(); ++i) CHECK(data.length(i) == 37);
    CHECK(data.classes() == 1);
  }
  CHECK(seen.size() == 200);
  for (const auto& [document, times] : seen) CHECK(times == 1);

  options.length = 1;  // no rest
  REQUIRE(corpus.prepare(corpus.folder.path() / "all.text", options).empty());
  for (const SplitFacts& split : describe(corpus.task, corpus.folder.path() / "sets").splits) {
    CHECK(split.min_length == 1);
  }
  const std::string before = corpus.split("train").fingerprint();
  options.threads = 2;
  REQUIRE(corpus.prepare(corpus.folder.path() / "all.text", options).empty());
  CHECK(corpus.split("train").fingerprint() == before);
  options.data_seed = 2;
  REQUIRE(corpus.prepare(corpus.folder.path() / "all.text", options).empty());
  CHECK(corpus.split("train").fingerprint() != before);
}

TEST_CASE("folders give their text files, and too small a corpus says what a document is") {
  const Corpus corpus;
  corpus.folder.write("in/b/two.txt", lines(15));
  corpus.folder.write("in/a.txt", lines(15));
  corpus.folder.write("in/picture.png", lines(500));
  REQUIRE(corpus.prepare(corpus.folder.path() / "in").empty());
  const auto provenance = parse_json(corpus.split("train").provenance());
  CHECK(provenance.at("files").get<int>() == 2);
  CHECK(provenance.at("documents").get<int>() == 30);

  const std::string few = corpus.prepare(corpus.folder.write("few.txt", lines(19)));
  CHECK(contains(few, "19 documents in 1 files, expected at least 20"));
  CHECK(contains(corpus.prepare(corpus.folder.write("empty.txt", "")), "0 documents in 1 files"));
  fs::create_directories(corpus.folder.path() / "nothing");
  CHECK(contains(corpus.prepare(corpus.folder.path() / "nothing"), "0 documents in 0 files"));
  PrepareOptions options;
  options.tokens = "words";
  CHECK(contains(corpus.prepare(corpus.folder.path() / "in", options), "a corpus has no words"));
  options.tokens.clear();
  options.header = true;
  CHECK(contains(corpus.prepare(corpus.folder.path() / "in", options), "no rows, and no columns"));
}

TEST_CASE("no test review of IMDb's enters a corpus") {
  const Corpus corpus;
  for (int i = 0; i < 30; ++i) {
    const std::string n = std::to_string(i);
    corpus.folder.write("aclImdb/train/pos/" + n + "_9.txt", "fine " + n);
    corpus.folder.write("aclImdb/train/unsup/" + n + "_0.txt", "unrated " + n);
    corpus.folder.write("aclImdb/test/neg/" + n + "_2.txt", "SECRET " + n);
  }
  corpus.folder.write("aclImdb/train/urls_pos.txt", "http://address\n");
  corpus.folder.write("aclImdb/test/urls_pos.txt", "http://address\n");
  std::string said;
  PrepareOptions options;
  options.warn = [&](std::string_view text) { said += text; };
  REQUIRE(corpus.prepare(corpus.folder.path() / "aclImdb", options).empty());
  CHECK(said == "30 of IMDb's test reviews are left out");
  std::string all;
  for (const char* split : {"train", "dev", "test"}) all += corpus.bytes(split);
  CHECK(contains(all, "fine 29\n"));
  CHECK(contains(all, "unrated 0\n"));
  CHECK_FALSE(contains(all, "SECRET"));
  CHECK_FALSE(contains(all, "http"));
}

TEST_CASE("a corpus of pieces: learnt from train, the end of a text a separate piece") {
  if (!has_sentencepiece() || !knows_unicode()) {
    MESSAGE("skipped: built without SentencePiece or utf8proc");
    return;
  }
  const Corpus corpus;
  PrepareOptions options;
  const auto model = corpus.folder.path() / "m.model";
  options.tokens = "sentencepiece:" + model.string();
  options.learn_tokens = "bpe:40";
  options.length = 16;
  const auto file = corpus.folder.write("all.txt", lines(100));
  REQUIRE(corpus.prepare(file, options).empty());
  const Dataset test = corpus.split("test");
  const auto vocabulary = vocabulary_in(parse_json(test.provenance()));
  CHECK(vocabulary->entry(vocabulary->end_of_text()) == "</s>");
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < test.size(); ++i) {
    tokens.insert(tokens.end(), test.wide_tokens(i).begin(), test.wide_tokens(i).end());
  }
  CHECK(std::count(tokens.begin(), tokens.end(), vocabulary->end_of_text()) == 5);
  CHECK(tokens.back() == vocabulary->end_of_text());
  const auto broken = corpus.folder.write("broken.txt", lines(100) + "caf\xE9\n");
  options.learn_tokens.clear();
  CHECK(contains(corpus.prepare(broken, options), "broken.txt:101: byte 4"));
}

TEST_CASE("a corpus' tokeniser is learnt where its file is not there, and the file is left alone") {
  if (!has_sentencepiece() || !knows_unicode()) {
    MESSAGE("skipped: built without SentencePiece or utf8proc");
    return;
  }
  const Corpus corpus;
  const auto model = corpus.folder.path() / "learnt.model";
  const auto file = corpus.folder.write("all.txt", lines(120));
  for (const char* kind : {"unigram:24", "bpe:33"}) {
    CAPTURE(kind);
    fs::remove(model);
    PrepareOptions options;
    options.from = file;
    options.tokens = "sentencepiece:" + model.string();
    options.learn_tokens = kind;
    options.length = 24;
    const auto prepare = [&] {
      return error_of([&] { data::prepare(find_task("corpus"), corpus.folder.path(), options); });
    };
    REQUIRE(prepare().empty());
    REQUIRE(fs::exists(model));
    const std::string learnt = read_file(model);
    CHECK(contains(prepare(), "learnt.model is there already"));
    CHECK(read_file(model) == learnt);
    fs::remove_all(corpus.folder.path() / "corpus");
  }
}
