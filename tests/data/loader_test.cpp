#include "data/loader.hpp"

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::data;
using namespace skytape::data::synthetic;

namespace {

BatchOptions options_of(int64_t batch) {
  BatchOptions options;
  options.batch = batch;
  options.nominal_length = 64;
  return options;
}

/// Memory of this process that no file stands behind, in bytes.
int64_t own_memory() {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;) {
    int64_t kilobytes = 0;
    if (word == "RssAnon:" && in >> kilobytes) return 1024 * kilobytes;
  }
  return -1;
}

}  // namespace

TEST_CASE("the loader hands out what direct iteration gives, with the same cursors") {
  Folder folder;
  const Dataset data = split_of(folder, sequences_of({5, 9, 3, 40, 22, 1, 60}));
  for (const int ahead : {1, 2, 5}) {
    BatchStream direct(data, options_of(3));
    Loader loader(
        [stream = BatchStream(data, options_of(3))](Batch& batch) mutable {
          stream.next(batch);
          return true;
        },
        ahead);
    Batch expected;
    for (int i = 0; i < 30; ++i) {
      direct.next(expected);
      const Batch* batch = loader.next();
      REQUIRE(batch);
      CHECK(batch->ids == expected.ids);
      CHECK(batch->labels == expected.labels);
      CHECK(batch->after == expected.after);
    }
    CHECK(loader.waited_seconds() > 0);
  }
}

TEST_CASE("the loader ends with the pass and stays ended") {
  Folder folder;
  const Dataset data = split_of(folder, sequences_of({5, 9, 3}));
  Loader loader(BatchPass(data, options_of(2)));
  CHECK(loader.next()->size == 2);
  CHECK(loader.next()->size == 1);
  CHECK(loader.next() == nullptr);
  CHECK(loader.next() == nullptr);
}

TEST_CASE("the seconds that the consumer waited add up over the batches") {
  constexpr int kBatches = 6;
  static constexpr auto kEach = std::chrono::milliseconds(15);
  using Clock = std::chrono::steady_clock;
  Loader loader(
      [](Batch& batch) {
        std::this_thread::sleep_for(kEach);
        batch.size = 1;
        return true;
      },
      1);
  const auto start = Clock::now();
  double before = 0;
  for (int i = 0; i < kBatches; ++i) {
    REQUIRE(loader.next());
    CHECK(loader.waited_seconds() > before);
    before = loader.waited_seconds();
  }
  const double all = std::chrono::duration<double>(Clock::now() - start).count();
  CHECK(loader.waited_seconds() <= all);
  CHECK(loader.waited_seconds() >= 0.8 * kBatches * std::chrono::duration<double>(kEach).count());
}

TEST_CASE("an exception of the producer reaches the consumer after the good batches") {
  int made = 0;
  Loader loader([&made](Batch& batch) {
    if (made == 2) throw DataError("broken");
    batch.size = ++made;
    return true;
  });
  CHECK(loader.next()->size == 1);
  CHECK(loader.next()->size == 2);
  CHECK_THROWS_AS((void)loader.next(), DataError);
  CHECK_THROWS_AS((void)loader.next(), DataError);
}

TEST_CASE("the loader never runs further ahead than asked, and stops when it is dropped") {
  std::atomic<int> made = 0;
  {
    Loader loader(
        [&made](Batch&) {
          ++made;
          return true;
        },
        2);
    for (int taken = 1; taken <= 20; ++taken) {
      REQUIRE(loader.next());
      CHECK(made.load() <= taken + 2);
    }
  }
  const int after = made;
  CHECK(after <= 22);
}

TEST_CASE("a batch in the consumer's hands is not overwritten") {
  int made = 0;
  Loader loader(
      [&made](Batch& batch) {
        batch.size = ++made;
        return true;
      },
      1);
  for (int i = 1; i <= 50; ++i) {
    const Batch* batch = loader.next();
    std::this_thread::yield();
    CHECK(batch->size == i);
  }
}

TEST_CASE("reading a set takes no memory that grows with it") {
  constexpr int kExamples = 40, kLength = 1 << 20;
  Folder folder;
  std::vector<uint8_t> tokens(kLength, 7);
  {
    CacheSet set("synthetic", folder.path(), 1, 0);
    set.classes = 1;
    for (int i = 0; i < kExamples; ++i) set.split("train").add(0, tokens);
    set.commit();
  }
  const auto path = cache_path(folder.path(), "train");
  const int64_t before = own_memory();
  REQUIRE(before > 0);
  const Dataset data(CacheFile::open(path));
  int64_t seen = 0;
  Loader loader(BatchPass(data, options_of(2)));
  while (const Batch* batch = loader.next()) seen += batch->size;
  CHECK(seen == kExamples);
  CHECK(own_memory() - before < kExamples * kLength / 8);
}
