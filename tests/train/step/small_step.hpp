// A model and a batch for tests of one training step.
#pragma once

#include <string>

#include "data/batch.hpp"
#include "nn/config/model_config.hpp"

namespace skytape::test {

/// A model of width 16 for two classes and sequences of up to 32 ids below 17.
[[nodiscard]] nn::ModelConfig small_model(const std::string& attention);

/// Examples of 5 to 32 ids below 16, of both classes.
[[nodiscard]] data::Batch seven_examples(int sequences);

}  // namespace skytape::test
