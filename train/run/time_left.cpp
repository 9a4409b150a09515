#include "train/run/time_left.hpp"

#include <algorithm>
#include <map>

#include "tensor/core/error.hpp"

namespace skytape::train {
namespace {

/// Returns the places of each sequence of each example in a batch, if training did not cut it.
std::vector<std::int64_t> lengths_of(const data::Dataset& split,
                                     const data::BatchOptions& batches) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < split.size(); ++i) {
    for (int sequence = 0; sequence < split.sequences(); ++sequence) {
      lengths.push_back(data::shown_length(split, i, sequence, batches));
    }
  }
  return lengths;
}

}  // namespace

TimeLeft::TimeLeft(const data::Dataset& train, const data::BatchOptions& batches,
                   std::int64_t steps)
    : steps_(steps) {
  // A method that reads its padding computes all positions in every step.
  const auto all = static_cast<double>(batches.nominal_length * train.sequences());
  const std::vector<std::int64_t> lengths =
      batches.trim ? lengths_of(train, batches) : std::vector<std::int64_t>();
  std::map<std::int64_t, double> mean;  // key: the length that sequences are cut to
  const auto work_of = [&](std::int64_t step) {
    if (!batches.trim) return all;
    const std::int64_t most = data::grown_length(batches, step);
    const auto [known, is_new] = mean.try_emplace(most, 0);
    if (is_new) {
      for (const std::int64_t length : lengths) {
        known->second += static_cast<double>(std::min(length, most));
      }
      known->second /= static_cast<double>(train.size());
    }
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
