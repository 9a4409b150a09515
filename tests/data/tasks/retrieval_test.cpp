#include "data/tasks/retrieval.hpp"

#include "data/batches.hpp"
#include "data/files/digest.hpp"
#include "data/files/source.hpp"
#include "tests/data/real_data.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::data;
using namespace skytape::data::synthetic;

namespace {

std::string reading(const std::string& text, bool with_texts) {
  const auto stream = open_memory(as_bytes(text));
  return error_of<DataError>(
      [&] { read_pairs(*stream, "pairs.tsv", with_texts, [](const RetrievalLine&) {}); });
}

std::string preparing(const std::filesystem::path& from, const std::filesystem::path& root) {
  PrepareOptions options;
  options.from = from;
  options.force = true;
  return error_of([&] { prepare(find_task("retrieval"), root, options); });
}

std::string prints(const std::filesystem::path& root) {
  std::string all;
  for (const char* split : {"train", "dev", "test"}) {
    all += open(find_task("retrieval"), root, split).fingerprint();
  }
  return all;
}

}  // namespace

TEST_CASE("a pair line has five columns, quotes are ordinary, further tabs belong to the text") {
  const std::string text = "1.0\tA\tB\tsay \"hi\ttwo\tparts\r\n0\tC\tD\t\tx\n";
  const auto stream = open_memory(as_bytes(text));
  std::vector<std::string> seen;
  read_pairs(*stream, "x", true, [&](const RetrievalLine& line) {
    seen.push_back(std::to_string(line.label) + "|" + std::string(line.id1) + "|" +
                   std::string(line.text1) + "|" + std::string(line.text2));
  });
  CHECK(seen == std::vector<std::string>{"1|A|say \"hi|two\tparts", "0|C||x"});
}

TEST_CASE("a broken pair line is refused with file, line and reason") {
  CHECK(reading("1.0\ta\tb\tx\n", true) ==
        "pairs.tsv:1: 4 columns, expected 5: label, id1, id2, text1, text2");
  CHECK(reading("1.0\ta\n", false) == "pairs.tsv:1: 2 columns, expected 3: label, id1, id2");
  for (const char* label : {"2.0", "0.5", "", "1.0x", "nan", "-1"}) {
    CAPTURE(label);
    CHECK(reading("1\ta\tb\n" + std::string(label) + "\ta\tb\n", false)
              .starts_with("pairs.tsv:2: label '"));
  }
}

TEST_CASE("five columns and ids with a document table give the same set, each text stored once") {
  Folder folder;
  const std::string a(300, 'a'), b(12000, 'b'), c = "c \"quoted\"";
  const auto five = [&](const std::string& split, const std::string& lines) {
    folder.write("five/tsv_data/new_aan_pairs." + split + ".tsv", lines);
  };
  five("train", "1.0\tA\tB\t" + a + "\t" + b + "\n0.0\tB\tC\t" + b + "\t" + c + "\n1.0\tB\tA\t" +
                    b + "\t" + a + "\n");
  five("eval", "0.0\tA\tC\t" + a + "\t" + c + "\n");
  five("test", "1.0\tC\tB\t" + c + "\t" + b + "\n");
  folder.write("ids/new_aan_pairs.train.only_ids.tsv", "1.0\tA\tB\n0.0\tB\tC\n1.0\tB\tA\n");
  folder.write("ids/new_aan_pairs.eval.only_ids.tsv", "0.0\tA\tC\r\n");
  folder.write("ids/new_aan_pairs.test.only_ids.tsv", "1.0\tC\tB\n");
  folder.write("ids/documents.tsv", "A\t" + a + "\nB\t" + b + "\nC\t" + c + "\n");
  REQUIRE(preparing(folder.path() / "five", folder.path() / "x").empty());
  REQUIRE(preparing(folder.path() / "ids", folder.path() / "y").empty());
  CHECK(prints(folder.path() / "x") == prints(folder.path() / "y"));
  const Dataset train = open(find_task("retrieval"), folder.path() / "x", "train");
  CHECK(train.name() == "retrieval-substitute");
  CHECK(train.sequences() == 2);
  CHECK(train.length(0, 0) == 300);
  CHECK(train.length(0, 1) == 10000);  // the front of a long text
  CHECK(train.tokens(0, 1).data() == train.tokens(1, 0).data());

  BatchOptions options;
  options.batch = 3;
  options.nominal_length = 4096;
  options.max_length = 4000;
  Batch batch;
  collate(train, {0, 1, 2}, options, batch);
  CHECK(batch.sequences == 2);
  CHECK(batch.width == 4032);
  CHECK(batch.lengths[0] == std::vector<int32_t>{300, 4000, 4000});
  CHECK(batch.lengths[1] == std::vector<int32_t>{4000, 10, 300});
  CHECK(batch.ids[0][0] == 'a' + 1);
  CHECK(batch.real_tokens == 300 + 4000 + 4000 + 4000 + 10 + 300);
}

TEST_CASE("unknown, repeated and missing documents are refused") {
  Folder folder;
  for (const char* split : {"train", "eval", "test"}) {
    folder.write("new_aan_pairs." + std::string(split) + ".only_ids.tsv", "1.0\tA\tB\n");
  }
  const auto root = folder.path() / "root";
  CHECK(preparing(folder.path(), root).find("documents.tsv missing") != std::string::npos);
  folder.write("documents.tsv", "A\tx\n");
  CHECK(preparing(folder.path(), root).find("only_ids.tsv:1: document 'B' is not in") !=
        std::string::npos);
  folder.write("documents.tsv", "A\tx\nA\ty\n");
  CHECK(preparing(folder.path(), root).find("documents.tsv:2: document 'A' a second time") !=
        std::string::npos);
  folder.write("documents.tsv", "A x\n");
  CHECK(preparing(folder.path(), root).find("documents.tsv:1: 'A x', expected id<TAB>text") !=
        std::string::npos);
  CHECK_FALSE(is_prepared(find_task("retrieval"), root));
}

TEST_CASE("the real substitute has its 4406 pairs and its own name") {
  const auto data = real_data_or_skip("aan-substitute");
  if (!data) return;
  Folder folder;
  REQUIRE(preparing(*data, folder.path()).empty());
  const Description facts = describe(find_task("retrieval"), folder.path());
  CHECK(facts.name == "retrieval-substitute");
  CHECK(facts.splits[0].label_counts == std::vector<int64_t>{1812, 1812});
  CHECK(facts.splits[1].examples == 320);
  CHECK(facts.splits[2].examples == 462);
}
