#include "data/batches.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "data/random.hpp"
#include "data/tasks/listops.hpp"
#include "data/tokenise.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::data;
using namespace skytape::data::synthetic;

namespace {

BatchOptions options_of(int64_t batch, int64_t nominal) {
  BatchOptions options;
  options.batch = batch;
  options.nominal_length = nominal;
  options.round_to = 8;
  return options;
}

/// Lengths 1..count in a scattered order, so that a length identifies its example.
Dataset distinct_lengths(const Folder& folder, int count) {
  std::vector<int> lengths(count);
  for (int i = 0; i < count; ++i) lengths[i] = 1 + (i * 7) % count;
  return split_of(folder, sequences_of(lengths));
}

bool same(const Batch& a, const Batch& b) {
  return a.size == b.size && a.width == b.width && a.ids == b.ids && a.mask == b.mask &&
         a.lengths == b.lengths && a.unmasked == b.unmasked && a.labels == b.labels &&
         a.real_tokens == b.real_tokens && a.after == b.after;
}

}  // namespace

TEST_CASE("the keyed permutation visits every position once and depends on its key") {
  for (const uint64_t size : {1, 2, 3, 5, 64, 1000, 4097}) {
    std::set<uint64_t> seen;
    const Permutation order(size, 42, 0);
    for (uint64_t i = 0; i < size; ++i) seen.insert(order(i));
    CHECK(seen.size() == size);
    CHECK(*seen.rbegin() == size - 1);
  }
  const Permutation a(1000, 42, 0), b(1000, 42, 1), c(1000, 43, 0);
  int equal_b = 0, equal_c = 0, fixed = 0;
  double displacement = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    equal_b += a(i) == b(i), equal_c += a(i) == c(i), fixed += a(i) == i;
    displacement += std::abs(static_cast<double>(a(i)) - static_cast<double>(i)) / 1000;
  }
  CHECK(equal_b < 10);  // one is expected
  CHECK(equal_c < 10);
  CHECK(fixed < 10);
  CHECK(displacement == doctest::Approx(333).epsilon(0.1));
}

TEST_CASE("a batch is padded to its longest sequence, rounded up") {
  Folder folder;
  const Dataset data = split_of(folder, sequences_of({5, 9, 3}), 1);
  Batch batch;
  collate(data, {1, 1, 1}, options_of(3, 64), batch);  // what a batch held before must go
  collate(data, {0, 1, 2}, options_of(3, 64), batch);
  CHECK(batch.width == 16);
  CHECK(batch.nominal_length == 64);
  CHECK(batch.lengths[0] == std::vector<int32_t>{5, 9, 3});
  CHECK(batch.unmasked[0] == batch.lengths[0]);
  CHECK(batch.labels == std::vector<int32_t>{0, 1, 0});
  CHECK(batch.real_tokens == 17);
  for (int64_t b = 0; b < 3; ++b) {
    const auto tokens = data.tokens(b);
    for (int64_t j = 0; j < batch.width; ++j) {
      const bool real = j < batch.lengths[0][b];
      CHECK(batch.ids[0][b * 16 + j] == (real ? tokens[j] + 1 : 0));
      CHECK(batch.mask[0][b * 16 + j] == (real ? 1.0f : 0.0f));
    }
  }
  BatchOptions whole = options_of(3, 64);
  whole.trim = false;
  collate(data, {0, 1, 2}, whole, batch);
  CHECK(batch.width == 64);
  CHECK(batch.real_tokens == 17);
}

TEST_CASE("cutting keeps the front, and the nominal length bounds the width") {
  Folder folder;
  const Dataset data = split_of(folder, sequences_of({30, 2}));
  BatchOptions options = options_of(2, 20);
  Batch batch;
  collate(data, {0, 1}, options, batch);
  CHECK(batch.width == 20);
  CHECK(batch.lengths[0] == std::vector<int32_t>{20, 2});
  options.max_length = 10;
  collate(data, {0, 1}, options, batch);
  CHECK(batch.lengths[0] == std::vector<int32_t>{10, 2});
  CHECK(batch.width == 16);
  CHECK(std::equal(batch.ids[0].begin(), batch.ids[0].begin() + 10, data.tokens(0).begin()));
  CHECK(batch.ids[0][10] == 0);
}

TEST_CASE("the nonzero rule hides zero ids inside a sequence, the length rule does not") {
  Folder folder;
  const Dataset data = split_of(folder, {{0, 3, 0, 5}, {1, 1, 1, 1}});
  BatchOptions options = options_of(2, 8);
  Batch batch;
  collate(data, {0, 1}, options, batch);
  CHECK(batch.unmasked[0] == std::vector<int32_t>{4, 4});
  options.mask = MaskRule::nonzero;
  collate(data, {0, 1}, options, batch);
  CHECK(batch.unmasked[0] == std::vector<int32_t>{2, 4});
  CHECK(batch.lengths[0] == std::vector<int32_t>{4, 4});
  CHECK(batch.real_tokens == 6);
  CHECK(batch.mask[0][0] == 0.0f);
  CHECK(batch.mask[0][1] == 1.0f);
}

TEST_CASE("dropping the close bracket happens before cutting") {
  Folder folder;
  const Dataset data = split_of(folder, {{15, 1, 15, 2, 3, 15, 4}});
  BatchOptions options = options_of(1, 8);
  options.drop_token = kListOpsClose;
  options.max_length = 3;
  Batch batch;
  collate(data, {0}, options, batch);
  CHECK(batch.lengths[0][0] == 3);
  CHECK(std::vector<int32_t>(batch.ids[0].begin(), batch.ids[0].begin() + 4) ==
        std::vector<int32_t>{1, 2, 3, 0});
}

TEST_CASE("an epoch of the stream covers each example once, grouped by length or not") {
  Folder folder;
  constexpr int kMany = 103;
  const Dataset data = distinct_lengths(folder, kMany);
  for (const bool grouped : {false, true}) {
    for (const int64_t window : {1, 3, 1000}) {
      BatchOptions options = options_of(8, 128);
      options.group_by_length = grouped;
      options.window = window;
      BatchStream stream(data, options);
      Batch batch;
      std::vector<int> order;
      while (order.size() < 5 * kMany) {
        stream.next(batch);
        CHECK(batch.size == 8);
        order.insert(order.end(), batch.lengths[0].begin(), batch.lengths[0].end());
      }
      for (int epoch = 0; epoch < 5; ++epoch) {
        const std::set<int> seen(order.begin() + epoch * kMany,
                                 order.begin() + (epoch + 1) * kMany);
        CHECK(seen.size() == kMany);
      }
      CHECK_FALSE(std::equal(order.begin(), order.begin() + kMany, order.begin() + kMany));
    }
  }
}

TEST_CASE("batches of alike lengths come in another order in each epoch") {
  Folder folder;
  constexpr int kBatches = 13;  // whole ones, so that every epoch groups the same examples
  const Dataset data = distinct_lengths(folder, 8 * kBatches);
  BatchOptions options = options_of(8, 128);
  options.group_by_length = true;
  options.window = 1000;
  BatchStream stream(data, options);
  Batch batch;
  std::set<std::vector<int64_t>> orders;
  for (int epoch = 0; epoch < 4; ++epoch) {
    std::vector<int64_t> longest;  // of each batch
    for (int i = 0; i < kBatches; ++i) {
      stream.next(batch);
      longest.push_back(*std::max_element(batch.lengths[0].begin(), batch.lengths[0].end()));
    }
    orders.insert(longest);
    std::sort(longest.begin(), longest.end());
    CHECK(longest[0] + 8 == longest[1]);
  }
  CHECK(orders.size() == 4);
}

TEST_CASE("grouping by length saves padding and shuffles the batches") {
  Folder folder;
  const Dataset data = distinct_lengths(folder, 400);
  BatchOptions options = options_of(8, 512);
  const auto padded = [&](bool grouped, int* rising) {
    options.group_by_length = grouped;
    BatchStream stream(data, options);
    Batch batch;
    int64_t positions = 0, before = 0;
    for (int i = 0; i < 150; ++i) {
      stream.next(batch);
      positions += batch.size * batch.width;
      *rising += batch.width >= before;
      before = batch.width;
    }
    return positions;
  };
  int rising = 0, ignored = 0;
  const int64_t grouped = padded(true, &rising);
  CHECK(grouped < 0.65 * static_cast<double>(padded(false, &ignored)));
  CHECK(grouped < 1.1 * 150 * 8 * 200.5);  // nearly no padding is left
  CHECK(rising > 40);
  CHECK(rising < 110);
}

TEST_CASE("a stream resumed from its cursor gives the batches it would have given") {
  Folder folder;
  const Dataset data = distinct_lengths(folder, 37);
  for (const bool grouped : {false, true}) {
    BatchOptions options = options_of(5, 64);
    options.group_by_length = grouped;
    options.window = 2;
    BatchStream stream(data, options);
    std::vector<Batch> batches(40);
    for (Batch& batch : batches) stream.next(batch);
    for (const int stop : {1, 7, 8, 15, 38}) {
      BatchStream resumed(data, options, batches[stop - 1].after);
      Batch batch;
      resumed.next(batch);
      CHECK(same(batch, batches[stop]));
      CHECK(resumed.cursor() == batch.after);
    }
    CHECK(batches[7].after == Cursor{1, 3});
    BatchOptions other = options;
    other.seed = 7;
    BatchStream differs(data, other);
    Batch batch;
    differs.next(batch);
    CHECK_FALSE(same(batch, batches[0]));
  }
}

TEST_CASE("an evaluation pass visits all examples in order and keeps the last small batch") {
  Folder folder;
  const Dataset data = distinct_lengths(folder, 11);
  BatchPass pass(data, options_of(4, 16));
  Batch batch;
  std::vector<int64_t> sizes, lengths;
  while (pass.next(batch)) {
    sizes.push_back(batch.size);
    lengths.insert(lengths.end(), batch.lengths[0].begin(), batch.lengths[0].end());
  }
  CHECK(sizes == std::vector<int64_t>{4, 4, 3});
  for (int64_t i = 0; i < 11; ++i) CHECK(lengths[i] == data.length(i));
  BatchPass part(data, options_of(4, 16), 6);
  REQUIRE(part.next(batch));
  REQUIRE(part.next(batch));
  CHECK(batch.size == 2);
  CHECK_FALSE(part.next(batch));
}

TEST_CASE("a token before every sequence takes the first place of the nominal length") {
  Folder folder;
  const Dataset data = split_of(folder, sequences_of({5, 9, 30}), 1);
  BatchOptions options = options_of(3, 16);
  options.first_token = 99;
  Batch batch;
  collate(data, {0, 1, 2}, options, batch);
  CHECK(batch.width == 16);
  CHECK(batch.lengths[0] == std::vector<int32_t>{6, 10, 16});
  CHECK(batch.unmasked[0] == batch.lengths[0]);
  CHECK(batch.real_tokens == 5 + 9 + 15);
  for (int64_t b = 0; b < 3; ++b) {
    const auto tokens = data.tokens(b);
    CHECK(batch.ids[0][b * 16] == 99);
    for (int64_t j = 1; j < batch.lengths[0][b]; ++j) {
      CHECK(batch.ids[0][b * 16 + j] == tokens[j - 1] + 1);
    }
  }
}

TEST_CASE("lengths grow in multiples of the rounding from their start to the nominal length") {
  BatchOptions options = options_of(4, 64);
  options.grow_steps = 10;
  options.grow_start = 12;
  std::vector<int64_t> grown;
  for (int64_t step = 0; step < 12; ++step) grown.push_back(grown_length(options, step));
  CHECK(grown == std::vector<int64_t>{12, 16, 16, 24, 32, 32, 40, 48, 48, 56, 64, 64});
  options.grow_hold = 3;
  grown.clear();
  for (int64_t step = 0; step < 11; ++step) grown.push_back(grown_length(options, step));
  CHECK(grown == std::vector<int64_t>{12, 12, 12, 12, 16, 24, 32, 40, 48, 56, 64});
  options.grow_whole = 4;
  grown.clear();
  for (int64_t step = 0; step < 9; ++step) grown.push_back(grown_length(options, step));
  CHECK(grown == std::vector<int64_t>{12, 12, 12, 64, 16, 24, 32, 64, 48});
  options.grow_hold = options.grow_steps = 0;
  CHECK(grown_length(options, 0) == 64);
}

TEST_CASE("lengths grow by the same factor in each step where growth is geometric") {
  BatchOptions options = options_of(4, 64);
  options.grow_steps = 4;
  options.grow_start = 4;
  options.round_to = 1;
  options.growth = Growth::geometric;
  std::vector<int64_t> grown;
  for (int64_t step = 0; step < 6; ++step) grown.push_back(grown_length(options, step));
  CHECK(grown == std::vector<int64_t>{4, 8, 16, 32, 64, 64});
}

TEST_CASE("a cut that keeps both ends leaves the front half and the back half") {
  Folder folder;
  const Dataset data = distinct_lengths(folder, 61);
  for (const int first_token : {-1, 200}) {
    for (const int drop : {-1, 3}) {
      BatchOptions options = options_of(5, 64);
      options.grow_steps = 30;
      options.grow_start = 11;
      options.first_token = first_token;
      options.drop_token = drop;
      options.keep = Keep::ends;
      BatchOptions uncut = options;
      uncut.grow_steps = 0;
      BatchStream stream(data, options), whole(data, uncut);
      Batch batch, full;
      int64_t cuts = 0;
      for (int64_t step = 0; step < 32; ++step) {
        stream.next(batch);
        whole.next(full);
        const int64_t before = first_token >= 0 ? 1 : 0;
        for (size_t b = 0; b < 5; ++b) {
          const int64_t length = batch.lengths[0][b], had = full.lengths[0][b];
          CHECK(length == std::min(had, grown_length(options, step)));
          cuts += length < had ? 1 : 0;
          const int64_t front = before + (length - before + 1) / 2;
          for (int64_t j = 0; j < length; ++j) {
            const int64_t from = j < front ? j : j + had - length;
            CHECK(batch.ids[0][b * batch.width + j] == full.ids[0][b * full.width + from]);
          }
        }
      }
      CHECK(cuts > 20);
    }
  }
}

TEST_CASE(
    "a training stream cuts the sequences of each step, resumed or not, and counts what is left") {
  Folder folder;
  const Dataset data = distinct_lengths(folder, 61);
  for (const int first_token : {-1, 200}) {
    BatchOptions options = options_of(5, 64);
    options.grow_steps = 30;
    options.grow_start = 10;
    options.first_token = first_token;
    BatchOptions whole = options;
    whole.grow_steps = 0;
    BatchStream stream(data, options), uncut(data, whole);
    std::vector<Batch> batches(40);
    for (size_t step = 0; step < batches.size(); ++step) {
      Batch& batch = batches[step];
      stream.next(batch);
      Batch full;
      uncut.next(full);
      const int64_t most = grown_length(options, static_cast<int64_t>(step));
      int64_t tokens = 0;
      for (size_t b = 0; b < 5; ++b) {
        CHECK(batch.lengths[0][b] == std::min<int64_t>(full.lengths[0][b], most));
        tokens += batch.lengths[0][b] - (first_token >= 0 ? 1 : 0);
        for (int64_t j = 0; j < batch.lengths[0][b]; ++j) {  // the front is kept
          CHECK(batch.ids[0][b * batch.width + j] == full.ids[0][b * full.width + j]);
        }
      }
      CHECK(batch.real_tokens == tokens);
      CHECK(batch.width <= (most + 7) / 8 * 8);
      CHECK(batch.labels == full.labels);
      CHECK(batch.after == full.after);
    }
    for (const int stop : {1, 12, 13, 29, 35}) {
      BatchStream resumed(data, options, batches[stop - 1].after);
      Batch batch;
      resumed.next(batch);
      CHECK(same(batch, batches[stop]));
    }
    BatchPass pass(data, options, 10);
    Batch batch;
    REQUIRE(pass.next(batch));
    CHECK(batch.lengths[0][2] == data.length(2) + (first_token >= 0 ? 1 : 0));  // not cut
  }
}

TEST_CASE("batches allocate nothing once they have grown") {
  Folder folder;
  const Dataset data = distinct_lengths(folder, 60);
  BatchStream stream(data, options_of(4, 64));
  Batch batch;
  stream.next(batch);
  const int32_t* const ids = batch.ids[0].data();
  const float* const mask = batch.mask[0].data();
  for (int i = 0; i < 50; ++i) stream.next(batch);
  CHECK(batch.ids[0].data() == ids);
  CHECK(batch.mask[0].data() == mask);
}

TEST_CASE("memory is reserved for the longest sequence there is, not for the longest allowed") {
  Folder folder;
  const Dataset data = distinct_lengths(folder, 60);
  for (const bool first_token : {false, true}) {
    BatchOptions options = options_of(int64_t{1} << 16, int64_t{1} << 24);
    options.first_token = first_token ? 9 : -1;
    Batch batch;
    BatchStream(data, options).next(batch);
    CHECK(batch.widest == 64);
    CHECK(batch.width == 64);
    CHECK(batch.nominal_length == int64_t{1} << 24);
    BatchPass pass(data.slice(0, 2), options);  // of 1 and 8 tokens
    REQUIRE(pass.next(batch));
    CHECK(batch.widest == (first_token ? 16 : 8));
  }
}

TEST_CASE("impossible batch options and cursors are refused") {
  Folder folder;
  const Dataset data = distinct_lengths(folder, 5);
  CHECK_THROWS_AS(BatchStream(data, options_of(0, 8)), Error);
  CHECK_THROWS_AS(BatchStream(data, options_of(1, 0)), Error);
  CHECK_THROWS_AS(BatchStream(data, options_of(1, 8), {0, 5}), Error);
  CHECK_THROWS_AS(BatchPass(data.slice(0, 0), options_of(1, 8)), Error);
  BatchOptions growing = options_of(1, 8);
  growing.grow_steps = 5;
  growing.grow_start = 9;
  CHECK_THROWS_AS(BatchStream(data, growing), Error);
  growing.grow_start = 1;
  growing.first_token = 7;
  CHECK_THROWS_AS(BatchStream(data, growing), Error);
}

TEST_CASE("examples that a user brings make the batch that a split of them makes") {
  const Folder folder;
  std::vector<std::vector<uint8_t>> sequences = sequences_of({9, 30, 1, 17, 24});
  sequences[1][4] = sequences[3][0] = 0;
  const Dataset split = split_of(folder, sequences);
  std::vector<Tokens> examples;
  std::vector<int64_t> rows;
  for (const std::vector<uint8_t>& sequence : sequences) {
    examples.push_back({std::vector<int32_t>(sequence.begin(), sequence.end())});
    rows.push_back(static_cast<int64_t>(rows.size()));
  }
  BatchOptions plain;
  plain.nominal_length = 64;
  plain.round_to = 8;
  std::vector<BatchOptions> kinds(6, plain);
  kinds[1].drop_token = 3;
  kinds[2].first_token = 40;
  kinds[3].max_length = 11;
  kinds[4].mask = MaskRule::nonzero;
  kinds[5] = {.max_length = 17,
              .nominal_length = 32,
              .mask = MaskRule::nonzero,
              .drop_token = 5,
              .first_token = 41,
              .trim = false};
  for (const BatchOptions& options : kinds) {
    CAPTURE(&options - kinds.data());
    Batch read;
    collate(split, rows, options, read);
    const Batch brought = pad(examples, options);
    CHECK(brought.width == read.width);
    CHECK(brought.round_to == read.round_to);
    CHECK(brought.ids[0] == read.ids[0]);
    CHECK(brought.mask[0] == read.mask[0]);
    CHECK(brought.lengths[0] == read.lengths[0]);
    CHECK(brought.unmasked[0] == read.unmasked[0]);
    CHECK(brought.real_tokens == read.real_tokens);
  }
}
