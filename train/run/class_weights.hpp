// The weights of examples' losses, by class.
#pragma once

#include <string>
#include <vector>

#include "data/cache/dataset.hpp"

namespace skytape::train {

/// The weights [C] that the setting class_weights asks for, scaled so that they are 1 on average
/// over the training examples; empty for "none". Balanced weights are N / (C n_c), n_c of the N
/// examples being of class c. UsageError for another number of weights than classes.
[[nodiscard]] std::vector<double> class_weights(const std::string& setting,
                                                const data::Dataset& train);

}  // namespace skytape::train
