// Masked-token prediction: how many tokens are hidden, which, and what takes their place.
#include "data/masking.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "tensor/core/error.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using data::Batch;
using data::hide_tokens;
using data::MaskingOptions;

namespace {

/// Sequences of these lengths; the token at position j of sequence b is 1 + (7 b + j) mod 20.
Batch batch_of(const std::vector<std::int32_t>& lengths, std::int64_t width) {
  Batch batch;
  batch.size = static_cast<std::int64_t>(lengths.size());
  batch.width = batch.nominal_length = width;
  batch.lengths[0] = batch.unmasked[0] = lengths;
  batch.ids[0].assign(lengths.size() * static_cast<std::size_t>(width), 0);
  batch.mask[0].assign(batch.ids[0].size(), 0.0f);
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    for (std::int32_t j = 0; j < lengths[b]; ++j) {
      const std::size_t cell = b * static_cast<std::size_t>(width) + static_cast<std::size_t>(j);
      batch.ids[0][cell] = 1 + (7 * static_cast<std::int32_t>(b) + j) % 20;
      batch.mask[0][cell] = 1;
    }
    batch.visits.push_back(b);
  }
  return batch;
}

MaskingOptions options_of(double rate) {
  MaskingOptions options;
  options.rate = rate;
  options.mask_id = 31;
  options.first_id = 1;
  options.end_id = 21;
  return options;
}

}  // namespace

TEST_CASE("masking hides its share of every sequence and remembers what stood there") {
  const Batch whole = batch_of({40, 7, 1, 0}, 40);
  Batch batch = whole;
  hide_tokens(batch, options_of(0.25));
  REQUIRE(batch.targets == 10);
  const std::vector<int> counts = {10, 1, 1, 0};
  float sum = 0;
  for (std::size_t b = 0; b < 4; ++b) {
    std::set<std::int32_t> places;
    int count = 0;
    for (std::size_t i = 0; i < 10; ++i) {
      const float weight = batch.target_weight[0][b * 10 + i];
      sum += weight;
      if (weight == 0) continue;
      ++count;
      const auto at = static_cast<std::size_t>(batch.target_at[0][b * 10 + i]);
      places.insert(static_cast<std::int32_t>(at));
      CHECK(weight == doctest::Approx(1.0 / 12));
      CHECK(batch.ids[0][b * 40 + at] == 31);
      CHECK(batch.target_ids[0][b * 10 + i] == whole.ids[0][b * 40 + at]);
    }
    CHECK(count == counts[b]);
    CHECK(static_cast<int>(places.size()) == count);  // no place twice
    int changed = 0;
    for (std::size_t j = 0; j < 40; ++j) {
      changed += batch.ids[0][b * 40 + j] != whole.ids[0][b * 40 + j];
    }
    CHECK(changed == count);
  }
  CHECK(sum == doctest::Approx(1));
}

TEST_CASE("masking is a function of seed and visit: an example's is the same in every batch") {
  const auto hidden = [](std::uint64_t seed, std::vector<std::uint64_t> visits,
                         std::int64_t width) {
    Batch batch = batch_of(std::vector<std::int32_t>(visits.size(), 64), width);
    batch.visits = visits;
    MaskingOptions options = options_of(0.2);
    options.keep = options.random = 0.3;
    options.seed = seed;
    hide_tokens(batch, options);
    std::vector<std::vector<std::int32_t>>
        of_examples;  // places of the targets, then what is shown
    for (std::size_t b = 0; b < visits.size(); ++b) {
      const auto* const at =
          batch.target_at[0].data() + static_cast<std::int64_t>(b) * batch.targets;
      of_examples.emplace_back(at, at + 12);
      for (int i = 0; i < 12; ++i) {
        const std::int32_t shown =
            batch.ids[0][b * static_cast<std::size_t>(width) + static_cast<std::size_t>(at[i])];
        of_examples.back().push_back(shown == 31 || visits.size() == 1 ? shown : -1);
      }
    }
    return of_examples;
  };
  CHECK(hidden(1, {5, 6}, 64) == hidden(1, {5, 6}, 64));
  CHECK(hidden(1, {5}, 64) == hidden(1, {5}, 128));  // whatever the batch is trimmed to
  CHECK(hidden(1, {5}, 64) != hidden(1, {6}, 64));
  CHECK(hidden(1, {5}, 64) != hidden(2, {5}, 64));
  const auto both = hidden(1, {5, 6}, 64), turned = hidden(1, {6, 5}, 64);
  CHECK(both[0] == turned[1]);
  CHECK(both[1] == turned[0]);
}

TEST_CASE("the two sequences of an example hide other places") {
  Batch batch = batch_of({64}, 64);
  batch.sequences = 2;
  batch.ids[1] = batch.ids[0];
  batch.mask[1] = batch.mask[0];
  batch.lengths[1] = batch.unmasked[1] = batch.lengths[0];
  hide_tokens(batch, options_of(0.5));
  CHECK(batch.target_at[0] != batch.target_at[1]);
}

TEST_CASE("every place is hidden equally often over the epochs, alone and in spans") {
  constexpr std::int64_t kWidth = 50, kEpochs = 4000;
  for (const std::int64_t span : {1, 5}) {
    CAPTURE(span);
    MaskingOptions options = options_of(0.2);
    options.span = span;
    std::vector<int> hidden(kWidth);
    int pairs = 0;  // neighbours that are hidden together
    for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      Batch batch = batch_of({kWidth}, kWidth);
      batch.visits = {epoch};
      hide_tokens(batch, options);
      for (std::size_t j = 0; j < kWidth; ++j) {
        hidden[j] += batch.ids[0][j] == 31;
        pairs += j > 0 && batch.ids[0][j] == 31 && batch.ids[0][j - 1] == 31;
      }
    }
    // 800 of 4,000 are expected; a fifth more or less is six standard deviations. A span that is
    // cut off at the end of a sequence leaves the first and last places a little behind.
    for (std::size_t j = 0; j < kWidth; ++j) CHECK(hidden[j] == doctest::Approx(800).epsilon(0.2));
    // If 10 targets are single, 9 places in 49 have a hidden neighbour to the left; in spans most
    // have.
    const double share = pairs / (10.0 * kEpochs);
    CHECK(share > (span == 1 ? 0.15 : 0.7));
    CHECK(share < (span == 1 ? 0.21 : 0.85));
  }
}

TEST_CASE("masking hides no token that attention may not read, and none of the first") {
  Batch batch = batch_of({40}, 40);
  for (std::size_t j = 0; j < 40; j += 2) batch.mask[0][j] = 0;
  batch.unmasked[0] = {20};
  MaskingOptions options = options_of(0.5);
  options.first = 4;
  hide_tokens(batch, options);
  int count = 0;
  for (std::size_t j = 0; j < 40; ++j) {
    if (batch.ids[0][j] != 31) continue;
    ++count;
    CHECK(j % 2 == 1);
    CHECK(j >= 4);
  }
  CHECK(count == 9);  // of 18
}

TEST_CASE("a batch that does not say which examples it holds is refused") {
  Batch batch = batch_of({8}, 8);
  batch.visits.clear();
  CHECK_THROWS_WITH_AS(hide_tokens(batch, options_of(0.5)), doctest::Contains("which they are"),
                       Error);
}

TEST_CASE("masking in spans hides runs of neighbours") {
  Batch batch = batch_of({1000}, 1000);
  MaskingOptions options = options_of(0.2);
  options.span = 10;
  hide_tokens(batch, options);
  int starts = 0;
  for (std::size_t j = 0; j < 1000; ++j) {
    const bool hidden = batch.ids[0][j] == 31;
    starts += hidden && (j == 0 || batch.ids[0][j - 1] != 31);
  }
  CHECK(starts <= 22);  // 200 targets in 20 cells, or 21 with a cut one
  CHECK(starts >= 8);   // some cells touch
  CHECK(std::count(batch.ids[0].begin(), batch.ids[0].end(), 31) == 200);
}

TEST_CASE("spans begin at every place of a sequence, so that no boundary between them stays") {
  Batch batch = batch_of({40}, 40);
  MaskingOptions options = options_of(0.3);
  options.span = 4;
  std::set<std::int32_t> begins;  // places of targets behind one that is none, modulo the span
  for (std::uint64_t visit = 0; visit < 64; ++visit) {
    batch = batch_of({40}, 40);
    batch.visits = {visit};
    hide_tokens(batch, options);
    const std::vector<std::int32_t>& at = batch.target_at[0];
    const std::set<std::int32_t> places(at.begin(), at.end());
    for (const std::int32_t place : places) {
      if (place > 0 && !places.contains(place - 1)) begins.insert(place % 4);
    }
  }
  CHECK(begins == std::set<std::int32_t>{0, 1, 2, 3});
}

TEST_CASE("masking keeps and replaces the shares of targets that it is told to") {
  const Batch whole = batch_of(std::vector<std::int32_t>(20, 1000), 1000);
  Batch batch = whole;
  MaskingOptions options = options_of(0.5);
  options.keep = 0.1;
  options.random = 0.2;
  hide_tokens(batch, options);
  int masked = 0, kept = 0, replaced = 0;
  std::set<std::int32_t> others;  // that stand for a target
  for (std::size_t b = 0; b < 20; ++b) {
    for (std::size_t i = 0; i < 500; ++i) {
      const auto at = static_cast<std::size_t>(batch.target_at[0][b * 500 + i]);
      const std::int32_t id = batch.ids[0][b * 1000 + at];
      masked += id == 31;
      kept += id == whole.ids[0][b * 1000 + at];
      replaced += id != 31 && id != whole.ids[0][b * 1000 + at];
      if (id != 31 && id != whole.ids[0][b * 1000 + at]) others.insert(id);
    }
  }
  CHECK(others.size() == 20);  // each id is among them
  CHECK(*others.begin() == 1);
  CHECK(*others.rbegin() == 20);
  // 10,000 targets; a replacement is the token itself in one of twenty cases.
  CHECK(masked == doctest::Approx(7000).epsilon(0.03));
  CHECK(kept == doctest::Approx(1100).epsilon(0.1));
  CHECK(replaced == doctest::Approx(1900).epsilon(0.1));
}

TEST_CASE("all targets may be kept or replaced, but not more than all") {
  MaskingOptions options = options_of(0.5);
  options.keep = options.random = 0.5;
  const Batch whole = batch_of({1000}, 1000);
  Batch batch = whole;
  hide_tokens(batch, options);
  CHECK(std::count(batch.ids[0].begin(), batch.ids[0].end(), 31) == 0);
  CHECK(batch.ids[0] != whole.ids[0]);
  options.random = 0.51;
  CHECK_THROWS_WITH_AS(hide_tokens(batch, options), doctest::Contains("at most 1"), Error);
}

TEST_CASE("the id of hidden tokens is no task's token") {
  CHECK(data::mask_id(data::find_task("listops")) == 31);
  CHECK(data::mask_id(data::find_task("text")) == 257);
  CHECK(data::mask_id(data::find_task("image")) == 256);
}
