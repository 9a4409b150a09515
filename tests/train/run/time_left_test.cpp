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
  const data::Dataset split = split_of(folder, sequences_of({2, 4, 6, 8, 1, 40}));
  for (const auto& [trim, most] :  // tokens that are read of a sequence; 0: as many as fit
       {std::pair(true, 0), std::pair(true, 5), std::pair(false, 0), std::pair(false, 5)}) {
    CAPTURE(trim);
    CAPTURE(most);
    data::BatchOptions batches;
    batches.batch = 2;
    batches.nominal_length = 16;
    batches.max_length = most;
    batches.trim = trim;
    data::BatchStream stream(split, batches);
    data::Batch batch;
    double tokens = 0;
    for (int i = 0; i < 3; ++i) {  // an epoch
      stream.next(batch);
      tokens += train::computed_tokens(batch);
    }
    CHECK(tokens == doctest::Approx(2 * TimeLeft(split, batches, 3).tokens()));
  }
}
