// A batch is cut into microbatches, and a step is told the fewest tokens of its examples.
#include "train/step/microbatches.hpp"

#include "tensor/core/storage.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/step/small_step.hpp"
#include "train/step/step_inputs.hpp"

using namespace skytape;
using namespace skytape::train;

TEST_CASE("the positions of a microbatch are those of both sequences") {
  for (const int sequences : {1, 2}) {
    const data::Batch batch = test::seven_examples(sequences);
    std::size_t rows = 0;
    for (const Microbatch& m : microbatches_of(batch, {1, 96})) {
      rows += m.rows.size();
      const auto positions = static_cast<std::int64_t>(m.rows.size()) * m.width * sequences;
      if (m.rows.size() > 1) CHECK(positions <= 96);
    }
    CHECK(rows == 7);
  }
}

TEST_CASE("the fewest tokens of a batch are those of an example that has some") {
  data::Batch batch = test::seven_examples(1);
  batch.unmasked[0].back() = 0;
  CHECK(upload(batch, Device::cpu).fewest_tokens[0].to_vector() == std::vector<double>{5});
}

TEST_CASE("a step's inputs have room for the widest batch, not for the longest sequence allowed") {
  data::Batch batch = test::seven_examples(1);
  batch.nominal_length = 1 << 18;
  reset_peak_bytes(Device::cpu);
  const std::int64_t before = memory_stats(Device::cpu).live_bytes;
  StepInputs inputs(Device::cpu);
  inputs.upload(batch, microbatches_of(batch, {1, 0}), {});
  CHECK(memory_stats(Device::cpu).peak_bytes - before < 8192);
}
