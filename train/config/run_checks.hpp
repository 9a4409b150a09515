// Settings that are legal one by one, and what they mean together.
#pragma once

#include "train/config/run_config.hpp"

namespace skytape::train {

/// UsageError for values that have no meaning together.
void check_together(const RunConfig& config);

/// UsageError for a choice of the user's that another value leaves without effect.
void check_effects(const Choices& choices, const RunConfig& config);

/// UsageError for a choice of a user of `pretrain` that only training on the task reads.
void check_pretraining(const Choices& choices);

/// UsageError if the user wants the two texts of a pair told apart, and there is nothing to tell:
/// `separated` says whether something stands between them.
void check_token_types(const RunConfig& config, bool separated);

}  // namespace skytape::train
