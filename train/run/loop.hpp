// The training loop: steps, log points, evaluations, checkpoints, selection, and the result.
#pragma once

namespace skytape::train {

struct RunConfig;
struct TrainOptions;

/// Trains one phase of a run, pre-training or the task as the model's objective says, to its end,
/// to `stop_after` or to a signal, and writes its folder. Returns the exit code: 0, or 129, 130
/// and 143 after SIGHUP, SIGINT and SIGTERM. A finished run is not resumed, its result is printed
/// again; one that has lost a checkpoint is a DataError before the first step. Throws
/// NonFiniteError at the first log point whose loss is not finite. Of several ranks all call this
/// with the same arguments, and all return the same.
int run_phase(const RunConfig& config, const TrainOptions& options);

}  // namespace skytape::train
