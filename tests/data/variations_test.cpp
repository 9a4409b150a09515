// Mirrored and moved pictures: which pixel goes where, what follows, and that no batch depends on
// more than seed, epoch and example.
#include "data/variations.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::data;
using namespace skytape::data::synthetic;

namespace {

constexpr std::int64_t kColumns = 5, kRows = 5, kPixels = kColumns * kRows;

constexpr std::int32_t kBlack = 41;

/// `count` pictures of `length` pixels as 30 1 2 3 4 / 5 6 7 …: place j shows j, but the first 30.
Batch pictures(std::int64_t count, std::int64_t length = kPixels) {
  Batch batch;
  batch.size = count;
  batch.width = batch.nominal_length = kPixels;
  batch.ids[0].assign(static_cast<std::size_t>(count * kPixels), 0);
  batch.mask[0].assign(batch.ids[0].size(), 0.0f);
  batch.lengths[0].assign(static_cast<std::size_t>(count), static_cast<std::int32_t>(length));
  batch.unmasked[0] = batch.lengths[0];
  batch.real_tokens = count * length;
  for (std::int64_t b = 0; b < count; ++b) {
    for (std::int64_t j = 0; j < length; ++j) {
      const auto at = static_cast<std::size_t>(b * kPixels + j);
      batch.ids[0][at] = static_cast<std::int32_t>(j == 0 ? 30 : j);
      batch.mask[0][at] = 1;
    }
    batch.visits.push_back(static_cast<std::uint64_t>(b));
  }
  return batch;
}

BatchOptions options_of(bool mirror, std::int64_t shift) {
  BatchOptions options;
  options.nominal_length = kPixels;
  options.variations = {kColumns, mirror, shift, kBlack};
  return options;
}

std::vector<std::int32_t> picture(const Batch& batch, std::int64_t b) {
  const auto* first = batch.ids[0].data() + b * kPixels;
  return {first, first + kPixels};
}

/// The picture of `pictures()` mirrored, then moved; written down without the program's loop.
std::vector<std::int32_t> expected(bool mirrored, std::int64_t right, std::int64_t down) {
  std::vector<std::int32_t> shown(kPixels, kBlack);
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t column = 0; column < kColumns; ++column) {
      const std::int64_t x = (mirrored ? kColumns - 1 - column : column) + right, y = row + down;
      if (x < 0 || x >= kColumns || y < 0 || y >= kRows) continue;
      const std::int64_t grey = row * kColumns + column;
      shown[static_cast<std::size_t>(y * kColumns + x)] =
          static_cast<std::int32_t>(grey == 0 ? 30 : grey);
    }
  }
  return shown;
}

}  // namespace

TEST_CASE("mirrored and moved pictures are all views there are, and no others") {
  const std::int64_t count = 400, shift = 1;
  Batch batch = pictures(count);
  vary_pictures(options_of(true, shift), batch);
  std::set<std::vector<std::int32_t>> shown, possible;
  for (std::int64_t b = 0; b < count; ++b) shown.insert(picture(batch, b));
  for (const bool mirrored : {false, true}) {
    for (std::int64_t right = -shift; right <= shift; ++right) {
      for (std::int64_t down = -shift; down <= shift; ++down) {
        possible.insert(expected(mirrored, right, down));
      }
    }
  }
  CHECK(possible.size() == 18);
  CHECK(shown == possible);
  CHECK(batch.real_tokens == count * kPixels);  // black pixels are pixels by the rule `length`
  CHECK(std::count(batch.mask[0].begin(), batch.mask[0].end(), 1.0f) == count * kPixels);
}

TEST_CASE("mirroring alone takes half of the pictures, moving alone mirrors none") {
  const std::int64_t count = 1000;
  Batch mirrored = pictures(count);
  vary_pictures(options_of(true, 0), mirrored);
  std::int64_t turned = 0;
  for (std::int64_t b = 0; b < count; ++b) turned += picture(mirrored, b) == expected(true, 0, 0);
  CHECK(std::abs(turned - count / 2) < 80);  // five standard deviations
  Batch moved = pictures(count);
  vary_pictures(options_of(false, 2), moved);
  for (std::int64_t b = 0; b < count; ++b) {
    const std::vector<std::int32_t> shown = picture(moved, b);
    // The pixel that stood at place 12, column 2 of line 2, is always in sight.
    const std::int64_t place = std::find(shown.begin(), shown.end(), 12) - shown.begin();
    REQUIRE(place < kPixels);
    CHECK(shown == expected(false, place % kColumns - 2, place / kColumns - 2));
  }
}

TEST_CASE("what a moved picture leaves free is hidden where black pixels are") {
  BatchOptions options = options_of(false, 2);
  options.mask = MaskRule::nonzero;
  options.variations.black = 0;
  Batch batch = pictures(50);
  vary_pictures(options, batch);
  std::int64_t ones = 0;
  for (std::size_t at = 0; at < batch.ids[0].size(); ++at) {
    REQUIRE(batch.mask[0][at] == (batch.ids[0][at] != 0 ? 1.0f : 0.0f));
    ones += batch.ids[0][at] != 0;
  }
  CHECK(ones < 50 * kPixels);
  CHECK(batch.real_tokens == ones);
}

TEST_CASE("a picture that is cut stays as long, black where its end would have gone") {
  const std::int64_t length = 13;  // two lines and a half
  Batch batch = pictures(40, length);
  vary_pictures(options_of(true, 0), batch);
  const std::vector<std::int32_t> same = {30, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::vector<std::int32_t> turned = {4, 3, 2, 1, 30, 9, 8, 7, 6, 5, kBlack, kBlack, 12};
  std::set<std::vector<std::int32_t>> shown;
  for (std::int64_t b = 0; b < 40; ++b) {
    std::vector<std::int32_t> all = picture(batch, b);
    CHECK(std::all_of(all.begin() + length, all.end(), [](auto id) { return id == 0; }));
    all.resize(static_cast<std::size_t>(length));
    shown.insert(all);
  }
  CHECK(shown == std::set<std::vector<std::int32_t>>{same, turned});
}

TEST_CASE("a training stream varies pictures anew in each epoch, an evaluation never") {
  const Folder folder;
  const Dataset data = split_of(folder, sequences_of(std::vector<int>(6, kPixels)));
  BatchOptions options = options_of(true, 2);
  options.batch = 6;
  options.seed = 3;
  Batch first, second, again;
  BatchStream stream(data, options);
  stream.next(first);
  const Cursor between = stream.cursor();
  stream.next(second);
  BatchStream resumed(data, options, between);
  resumed.next(again);
  CHECK(again.ids == second.ids);
  std::set<std::vector<std::int32_t>> one, other;
  for (std::int64_t b = 0; b < 6; ++b) {
    one.insert(picture(first, b));
    other.insert(picture(second, b));
  }
  CHECK(one != other);
  Batch plain, varied;
  BatchOptions never = options;
  never.variations = {};
  CHECK(BatchPass(data, options).next(varied));
  CHECK(BatchPass(data, never).next(plain));
  CHECK(varied.ids == plain.ids);
}
