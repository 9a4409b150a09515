// Masked-token prediction: how many tokens are hidden, which, and what takes their place.
#include "data/masking.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

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
  batch.lengths[0] = lengths;
  batch.ids[0].assign(lengths.size() * static_cast<std::size_t>(width), 0);
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    for (std::int32_t j = 0; j < lengths[b]; ++j) {
      batch.ids[0][b * static_cast<std::size_t>(width) + static_cast<std::size_t>(j)] =
          1 + (7 * static_cast<std::int32_t>(b) + j) % 20;
    }
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
  hide_tokens(batch, 3, options_of(0.25));
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

TEST_CASE("masking is a function of seed, step and place") {
  const Batch whole = batch_of({64, 64}, 64);
  const auto hidden = [&](std::uint64_t seed, std::int64_t step) {
    Batch batch = whole;
    MaskingOptions options = options_of(0.2);
    options.seed = seed;
    hide_tokens(batch, step, options);
    return batch.target_at[0];
  };
  CHECK(hidden(1, 5) == hidden(1, 5));
  CHECK(hidden(1, 5) != hidden(1, 6));
  CHECK(hidden(1, 5) != hidden(2, 5));
  const std::vector<std::int32_t> both = hidden(1, 5);
  const auto half = both.begin() + static_cast<std::ptrdiff_t>(both.size() / 2);
  CHECK(std::vector(both.begin(), half) != std::vector(half, both.end()));
}

TEST_CASE("masking in spans hides runs of neighbours") {
  Batch batch = batch_of({1000}, 1000);
  MaskingOptions options = options_of(0.2);
  options.span = 10;
  hide_tokens(batch, 0, options);
  int starts = 0;
  for (std::size_t j = 0; j < 1000; ++j) {
    const bool hidden = batch.ids[0][j] == 31;
    starts += hidden && (j == 0 || batch.ids[0][j - 1] != 31);
  }
  CHECK(starts <= 22);  // 200 targets in 20 cells, or 21 with a cut one
  CHECK(starts >= 8);   // some cells touch
  CHECK(std::count(batch.ids[0].begin(), batch.ids[0].end(), 31) == 200);
}

TEST_CASE("masking keeps and replaces the shares of targets that it is told to") {
  const Batch whole = batch_of(std::vector<std::int32_t>(20, 1000), 1000);
  Batch batch = whole;
  MaskingOptions options = options_of(0.5);
  options.keep = 0.1;
  options.random = 0.2;
  hide_tokens(batch, 0, options);
  int masked = 0, kept = 0, replaced = 0;
  for (std::size_t b = 0; b < 20; ++b) {
    for (std::size_t i = 0; i < 500; ++i) {
      const auto at = static_cast<std::size_t>(batch.target_at[0][b * 500 + i]);
      const std::int32_t id = batch.ids[0][b * 1000 + at];
      masked += id == 31;
      kept += id == whole.ids[0][b * 1000 + at];
      replaced += id != 31 && id != whole.ids[0][b * 1000 + at];
      if (id != 31) {
        CHECK(id >= 1);
        CHECK(id < 21);
      }
    }
  }
  // 10,000 targets; a replacement is the token itself in one of twenty cases.
  CHECK(masked == doctest::Approx(7000).epsilon(0.03));
  CHECK(kept == doctest::Approx(1100).epsilon(0.1));
  CHECK(replaced == doctest::Approx(1900).epsilon(0.1));
}

TEST_CASE("the id of hidden tokens is no task's token") {
  CHECK(data::mask_id(data::find_task("listops")) == 31);
  CHECK(data::mask_id(data::find_task("text")) == 257);
  CHECK(data::mask_id(data::find_task("image")) == 256);
}
