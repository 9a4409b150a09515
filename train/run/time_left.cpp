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
    : work_(static_cast<std::size_t>(steps) + 1) {
  std::map<std::int64_t, double> mean;  // key: the length that sequences are cut to
  const std::int64_t read = batches.max_length > 0 ? batches.max_length : batches.nominal_length;
  for (std::int64_t step = 0; step < steps; ++step) {
    // A method that reads its padding computes all positions in every step.
    const std::int64_t most = batches.trim ? std::min(read, data::grown_length(batches, step)) : 0;
    const auto all = static_cast<double>(batches.nominal_length * train.sequences());
    const auto [known, is_new] = mean.try_emplace(most, all);
    if (is_new && batches.trim) known->second = mean_length(train, most);
    work_[step + 1] = work_[step] + known->second;
  }
}

double TimeLeft::after(double seconds, std::int64_t from, std::int64_t to) const {
  const auto end = static_cast<std::int64_t>(work_.size()) - 1;
  ENSURE(0 <= from && from < to && to <= end, "TimeLeft: steps ", from, " to ", to, " of ", end);
  return seconds * (work_[end] - work_[to]) / (work_[to] - work_[from]);
}

}  // namespace skytape::train
