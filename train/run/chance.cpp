#include "train/run/chance.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace skytape::train {
namespace {

// Share of the entropy: a loss that is lower by more than this has learnt something.
constexpr double kMargin = 0.005;
constexpr std::int64_t kFewest = 30;  // steps of a mean that says something

}  // namespace

double label_entropy(const data::Dataset& train, const nn::ModelConfig& model) {
  std::vector<double> share(static_cast<std::size_t>(train.classes()));  // [C]
  double all = 0;
  for (std::int64_t i = 0; i < train.size(); ++i) {
    const auto label = static_cast<std::size_t>(train.label(i));
    const double weight = model.class_weights.empty() ? 1 : model.class_weights.at(label);
    share.at(label) += weight;
    all += weight;
  }
  double entropy = 0;
  for (const double counted : share) {
    const double target = (1 - model.label_smoothing) * counted / all +
                          model.label_smoothing / static_cast<double>(share.size());
    if (target > 0) entropy -= target * std::log(target);
  }
  return entropy;
}

ChanceWatch::ChanceWatch(double entropy, std::int64_t warmup, std::int64_t steps)
    : entropy_(entropy), warmup_(warmup), steps_(steps), tenth_(std::max(steps / 10, kFewest)) {}

double ChanceWatch::mean_loss() const {
  double sum = 0;
  for (const LogPoint& point : latest_) sum += static_cast<double>(point.steps) * point.loss;
  return sum / static_cast<double>(mean_steps());
}

std::int64_t ChanceWatch::mean_steps() const {
  std::int64_t steps = 0;
  for (const LogPoint& point : latest_) steps += point.steps;
  return steps;
}

bool ChanceWatch::stands_at_chance(std::int64_t step, double loss) {
  const std::int64_t before = std::exchange(logged_, step);
  if (before < warmup_) return false;
  latest_.push_back({step - before, loss});
  while (mean_steps() - latest_.front().steps >= tenth_) latest_.pop_front();
  if (mean_steps() < kFewest || step < warmup_ + steps_ / 10 || step >= steps_) return false;
  const double below = (1 - kMargin) * entropy_;
  return loss >= below && mean_loss() >= below;
}

}  // namespace skytape::train
