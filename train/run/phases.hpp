// A run's phases: pre-training, if it has one, and the task.
#pragma once

namespace skytape::train {

struct RunConfig;
struct TrainOptions;

/// Trains a run to its end, to `stop_after` or to a signal, and writes its folder. Returns and
/// throws as run_phase.
///
/// With pretrain_steps the run has two phases: masked-token prediction, in the folder `pretraining`
/// inside the run's, and then the task, from the weights of the first. `stop_after` counts steps of
/// both. Whichever phase was stopped is resumed; once the second has begun, the first one's folder
/// is not needed any more.
int train(const RunConfig& config, const TrainOptions& options);

/// The first phase alone, as a separate run that others start from with `init`. UsageError if
/// pretrain_steps is 0.
int pretrain(const RunConfig& config, const TrainOptions& options);

}  // namespace skytape::train
