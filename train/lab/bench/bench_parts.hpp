// The parts of a training step's time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "autograd/observers.hpp"
#include "data/files/json_fwd.hpp"

namespace skytape::train {

/// Milliseconds of one step, forward and backward together.
struct StepParts {
  double attention = 0;  // the method itself, without the projections around it
  double products = 0;   // projections, MLP with its norm and GELU, head with the loss
  double rest = 0;       // embedding, norm before attention, pooling
  double optimiser = 0;  // clipping and AdamW
  double data = 0;       // copying the batch
  [[nodiscard]] double total() const { return attention + products + rest + optimiser + data; }
};

/// Sorts the times of `steps` training steps (Trainer::time_ops) by op name.
[[nodiscard]] StepParts step_parts(const OpSeconds& seconds, std::int64_t steps);

/// Share of f's time in which one OpenMP thread works alone, from the processor time of each
/// thread: (most - mean) / most * t / (t - 1) for t threads; waking the others counts, too. It
/// needs no t cores: more threads than cores show what a larger machine would wait for. Nothing for
/// one thread, or where waiting threads spin (OMP_WAIT_POLICY is not "passive") and their time
/// would count as work.
[[nodiscard]] std::optional<double> serial_share(const std::function<void()>& f);

/// {"attention": ms, …}.
[[nodiscard]] data::Json to_json(const StepParts& parts);

}  // namespace skytape::train
