#include <set>

#include "data/custom/imdb.hpp"
#include "data/files/source.hpp"
#include "tests/data/real_data.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/data/tasks/official_files.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::data;
using namespace skytape::data::synthetic;

namespace {

std::string preparing(const TaskInfo& task, const std::filesystem::path& from,
                      const std::filesystem::path& root) {
  PrepareOptions options;
  options.from = from;
  options.force = true;
  return error_of([&] { prepare(task, root, options); });
}

std::string prints(const TaskInfo& task, const std::filesystem::path& root) {
  return open(task, root, "train").fingerprint() + open(task, root, "test").fingerprint();
}

}  // namespace

TEST_CASE("reviews read from a folder and from an archive in another order are the same set") {
  Folder folder;
  const TaskInfo& task = find_task("text");
  auto files = review_files(20);
  for (const auto& [name, bytes] : files) folder.write("tree/" + name, bytes);
  std::reverse(files.begin(), files.end());
  write_tar(folder.path() / "reviews.tar.gz", files);
  CHECK(preparing(task, folder.path() / "tree", folder.path() / "a").empty());
  CHECK(preparing(task, folder.path() / "reviews.tar.gz", folder.path() / "b").empty());
  CHECK(prints(task, folder.path() / "a") == prints(task, folder.path() / "b"));
  std::filesystem::create_directories(folder.path() / "downloads");
  std::filesystem::rename(folder.path() / "reviews.tar.gz",
                          folder.path() / "downloads/aclImdb_v1.tar.gz");
  CHECK(preparing(task, folder.path() / "downloads", folder.path() / "c").empty());
  CHECK(prints(task, folder.path() / "a") == prints(task, folder.path() / "c"));
}

TEST_CASE("the held-out dev set is disjoint from train, test-as-dev is the test set") {
  Folder folder;
  const TaskInfo& task = find_task("text");
  for (const auto& [name, bytes] : review_files(20)) folder.write("tree/" + name, bytes);
  REQUIRE(preparing(task, folder.path() / "tree", folder.path()).empty());
  const Dataset train = open(task, folder.path(), "train"), dev = open(task, folder.path(), "dev");
  CHECK(train.size() == 18);
  CHECK(dev.size() == 2);
  std::set<std::string> texts;
  for (const Dataset& part : {train, dev}) {
    for (int64_t i = 0; i < part.size(); ++i) {
      const auto bytes = part.tokens(i);
      const std::string text(bytes.begin(), bytes.end());
      texts.insert(text);
      const int number = std::stoi(text.substr(20));
      CHECK(part.label(i) == number % 2);
    }
  }
  CHECK(texts.size() == 20);
  CHECK(train.token_offset() == 1);
  CHECK(open(task, folder.path(), "train", DevRule::test).size() == 20);
  CHECK(open(task, folder.path(), "dev", DevRule::test).fingerprint() ==
        open(task, folder.path(), "test").fingerprint());
}

TEST_CASE("review names are understood and contradictions refused") {
  ReviewName name;
  CHECK(parse_review_name("x/aclImdb/train/pos/12_7.txt", name));
  CHECK(name.train);
  CHECK(name.label == 1);
  CHECK(name.id == 12);
  CHECK(name.rating == 7);
  for (const char* path : {"train/unsup/0_0.txt", "train/pos/x_7.txt", "train/pos/7.txt",
                           "pos/1_7.txt", "train/pos/1_7.txt.bak", "", "/", "train/pos/_.txt"}) {
    CAPTURE(path);
    CHECK_FALSE(parse_review_name(path, name));
  }
  CHECK(error_of<DataError>([&] { (void)parse_review_name("test/neg/3_9.txt", name); }) ==
        "test/neg/3_9.txt: rating 9 in folder neg, expected 1..4");
}

TEST_CASE("broken or hostile archives are refused by name") {
  Folder folder;
  const TaskInfo& task = find_task("text");
  write_tar(folder.path() / "good.tar.gz", review_files(20));
  const std::string good = read_file(folder.path() / "good.tar.gz");
  const auto root = folder.path() / "root";
  const auto text_of = [&](std::string_view bytes) {
    return preparing(task, folder.write("x.tar.gz", bytes), root);
  };
  CHECK(text_of(good.substr(0, good.size() / 2)).find("x.tar.gz") != std::string::npos);
  CHECK(text_of("no archive").find("x.tar.gz") != std::string::npos);
  write_tar(folder.path() / "evil.tar.gz", {{"aclImdb/../../train/pos/1_8.txt", "x"}});
  CHECK(preparing(task, folder.path() / "evil.tar.gz", root).find("points outside") !=
        std::string::npos);
  write_tar(folder.path() / "empty.tar.gz", {{"aclImdb/readme", "x"}});
  CHECK(preparing(task, folder.path() / "empty.tar.gz", root).find("none of 1 files is a review") !=
        std::string::npos);
  CHECK_FALSE(is_prepared(task, root));
  CHECK(preparing(task, folder.path() / "nothing", root).find("does not exist") !=
        std::string::npos);
  CHECK(preparing(task, {}, root).find("make data TASK=text FROM=") != std::string::npos);
}

TEST_CASE("the real reviews have the published counts and the known first tokens") {
  const auto data = real_data_or_skip("imdb");
  if (!data) return;
  Folder folder;
  const TaskInfo& task = find_task("text");
  REQUIRE(preparing(task, *data, folder.path()).empty());
  const Dataset train = open(task, folder.path(), "train", DevRule::test);
  CHECK(train.size() == 25000);
  CHECK(train.provenance().find("\"official\":false") == std::string_view::npos);
  const std::vector<int> start = {67, 115, 112, 110, 120, 102, 109, 109, 33, 73, 106, 104};
  int found = 0;
  for (int64_t i = 0; i < train.size(); ++i) {
    const auto bytes = train.tokens(i);
    found += bytes.size() == 806 && train.label(i) == 1 &&
             std::equal(start.begin(), start.end(), bytes.begin(),
                        [](int id, int byte) { return id == byte + 1; });
  }
  CHECK(found == 1);  // train/pos/0_9.txt
  const Dataset test = open(task, folder.path(), "test");
  CHECK(test.size() == 25000);
  for (const auto& [split, bytes, longest, shortest] :
       {std::tuple(&train, 33132823, 13704, 52), std::tuple(&test, 32350685, 12988, 32)}) {
    int64_t total = 0, most = 0, least = 1 << 20, positive = 0;
    for (int64_t i = 0; i < split->size(); ++i) {
      total += split->length(i);
      most = std::max(most, split->length(i));
      least = std::min(least, split->length(i));
      positive += split->label(i);
    }
    CHECK(total == bytes);
    CHECK(most == longest);
    CHECK(least == shortest);
    CHECK(positive == 12500);
  }
}
