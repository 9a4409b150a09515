#include "train/run/time_left.hpp"

#include <algorithm>
#include <map>

#include "tensor/core/error.hpp"

namespace skytape::train {
namespace {

/// Returns the mean number of tokens read per example, at most `most` of each.
double mean_length(const data::Dataset& split, std::int64_t most) {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < split.size(); ++i) {
    for (int sequence = 0; sequence < split.sequences(); ++sequence) {
      sum += std::min(split.length(i, sequence), most);
    }
  }
  return static_cast<double>(sum) / static_cast<double>(split.size());
}

}  // namespace

TimeLeft::TimeLeft(const data::Dataset& train, const data::BatchOptions& batches,
                   std::int64_t steps)
    : steps_(steps) {
  std::map<std::int64_t, double> mean;  // key: the length that sequences are cut to
  const std::int64_t read = batches.max_length > 0 ? batches.max_length : batches.nominal_length;
  const auto work_of = [&](std::int64_t step) {
    // A method that reads its padding computes all positions in every step.
    const std::int64_t most = batches.trim ? std::min(read, data::grown_length(batches, step)) : 0;
    const auto all = static_cast<double>(batches.nominal_length * train.sequences());
    const auto [known, is_new] = mean.try_emplace(most, all);
    if (is_new && batches.trim) known->second = mean_length(train, most);
    return known->second;
  };
  const std::int64_t growing = std::min(steps, batches.grow_steps);
  for (std::int64_t step = 0; step < growing; ++step) {
    growing_.push_back(growing_.back() + work_of(step));
  }
  if (steps > growing) grown_ = work_of(growing);
}

double TimeLeft::before(std::int64_t step) const {
  const std::int64_t growing = std::ssize(growing_) - 1;
  return growing_[std::min(step, growing)] +
         grown_ * static_cast<double>(std::max<std::int64_t>(step - growing, 0));
}

double TimeLeft::after(double seconds, std::int64_t from, std::int64_t to) const {
  ENSURE(0 <= from && from < to && to <= steps_, "TimeLeft: steps ", from, " to ", to, " of ",
         steps_);
  return seconds * (tokens() - before(to)) / (before(to) - before(from));
}

}  // namespace skytape::train
