// The ranks' shares of a run, and the check that all mean the same run.
#pragma once

#include <cstdint>
#include <string>

#include "data/files/json_fwd.hpp"
#include "train/config/run_config.hpp"
#include "train/ranks/ranks.hpp"
#include "train/run/splits.hpp"

namespace skytape::train {

/// Opens all splits of a run, prepared or not, on each host.
[[nodiscard]] Splits open_splits(const RunConfig& config, const data::Json& provenance,
                                 Progress& progress, const Ranks& ranks);

/// Returns how these ranks split a batch. On a CPU as one process does; on a GPU each gets an equal
/// part.
[[nodiscard]] MicrobatchLimits microbatch_limits(const RunConfig& config, const Ranks& ranks);

/// Returns a line on the job and the share of a rank in batches of sequences of up to `longest`
/// tokens; empty of one process.
[[nodiscard]] std::string who_trains(const RunConfig& config, std::int64_t longest,
                                     const Ranks& ranks);

/// UsageError naming both numbers, and the option that forbids to split a batch, where there are
/// more ranks than microbatches.
void refuse_idle_ranks(const RunConfig& config, std::int64_t longest, const Ranks& ranks);

/// AgreedError naming rank, host and both values where a rank has another configuration, other
/// data, another revision of the program or another number of threads than rank 0. `flags`: what
/// else all must have said alike.
void agree(const RunConfig& config, const Splits& splits, const data::Json& flags,
           const Ranks& ranks);

}  // namespace skytape::train
