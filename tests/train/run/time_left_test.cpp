#include "train/run/time_left.hpp"

#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "train/run/budget.hpp"

using namespace skytape;
using namespace skytape::data::synthetic;
using train::TimeLeft;

TEST_CASE("steps of sequences that grow take as long as their tokens are more") {
  const Folder folder;
  const data::Dataset split = split_of(folder, sequences_of({2, 4, 6, 8}));  // 5 on average
  data::BatchOptions batches;
  batches.batch = 4;
  batches.nominal_length = 8;
  batches.round_to = 1;
  const TimeLeft even(split, batches, 10);
  CHECK(even.after(6.0, 0, 2) == doctest::Approx(24));
  CHECK(even.after(6.0, 8, 10) == 0);
  CHECK(even.tokens() == doctest::Approx(50));
  CHECK(TimeLeft(split, batches, 1'000'000'000).tokens() == doctest::Approx(5e9));  // at once

  batches.grow_start = 4;  // then steps of 2 + 4 + 4 + 4 tokens for 4 examples: 3.5 on average
  batches.grow_steps = batches.grow_hold = 6;
  const TimeLeft grown(split, batches, 10);
  CHECK(grown.after(7.0, 0, 2) == doctest::Approx(7.0 / 7 * (4 * 3.5 + 4 * 5)));
  CHECK(grown.after(10.0, 7, 9) == doctest::Approx(5));
  CHECK(grown.tokens() == doctest::Approx(6 * 3.5 + 4 * 5));
  batches.trim = false;  // what reads its padding takes as long for any length
  CHECK(TimeLeft(split, batches, 10).after(7.0, 0, 2) == doctest::Approx(28));
  CHECK(TimeLeft(split, batches, 10).tokens() == 80);
  CHECK_THROWS_AS((void)grown.after(1.0, 3, 3), Error);
}

TEST_CASE("the tokens that steps are timed by are those that a schedule is reckoned by") {
  const Folder folder;
  std::vector<std::vector<std::uint8_t>> sequences = sequences_of({2, 4, 6, 8, 1, 40});
  sequences[2] = {0, 3, 0, 0, 5, 0};
  const data::Dataset split = split_of(folder, sequences);
  data::BatchOptions plain;
  plain.batch = 2;
  plain.nominal_length = 16;
  std::vector<data::BatchOptions> all(7, plain);
  all[1].max_length = 5;
  all[2].trim = false;
  all[3].trim = false;
  all[3].max_length = 5;
  all[4].mask = data::MaskRule::nonzero;  // hides zeros, which are computed nevertheless
  all[5].drop_token = 3;
  all[6].first_token = 99;
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    data::BatchStream stream(split, all[i]);
    data::Batch batch;
    double tokens = 0;
    for (int step = 0; step < 3; ++step) {  // an epoch
      stream.next(batch);
      tokens += train::computed_tokens(batch);
    }
    CHECK(tokens == doctest::Approx(2 * TimeLeft(split, all[i], 3).tokens()));
  }
}
