// Selects the weights of a run that are kept to be tested.
#pragma once

namespace skytape::train {

struct Evaluation;
struct RunConfig;
struct RunState;

/// Counts an evaluation of step `state.step`: whether its weights are the best so far, by accuracy
/// or loss on dev as `config.select` says; of equals the earlier. Evaluations before
/// `config.select_after` count only while there is no later one.
bool select(const RunConfig& config, const Evaluation& dev, RunState& state);

/// Returns whether so many evaluations that count have passed without a better one that the run
/// ends (patience).
[[nodiscard]] bool is_stale(const RunConfig& config, const RunState& state);

}  // namespace skytape::train
