#include "train/run/class_weights.hpp"

#include <fmt/format.h>

#include "tensor/core/error.hpp"
#include "train/config/keys.hpp"

namespace skytape::train {

std::vector<double> class_weights(const std::string& setting, const data::Dataset& train) {
  if (setting == "none") return {};
  std::vector<double> weights = parse_class_weights(setting);
  const auto classes = static_cast<std::size_t>(train.classes());
  std::vector<double> examples(classes);  // of each class
  for (std::int64_t i = 0; i < train.size(); ++i) {
    ++examples.at(static_cast<std::size_t>(train.label(i)));
  }
  if (setting == "balanced") {
    for (const double count : examples) weights.push_back(count > 0 ? 1 / count : 0);
  } else if (weights.size() != classes) {
    throw UsageError(fmt::format("class_weights: expected {} numbers, one for each class, got {}",
                                 classes, setting));
  }
  double sum = 0;  // over the examples
  for (std::size_t c = 0; c < classes; ++c) sum += weights[c] * examples[c];
  if (sum == 0) {
    throw UsageError(
        fmt::format("class_weights: {} leaves no training example that counts", setting));
  }
  for (double& weight : weights) weight *= static_cast<double>(train.size()) / sum;
  return weights;
}

}  // namespace skytape::train
