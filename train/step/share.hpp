// The part of the work that falls to this process where several train one model (train/ranks/). By
// default it is all of it.
#pragma once

#include <cstdint>
#include <functional>

#include "tensor/core/tensor.hpp"

namespace skytape::train {

/// Of things numbered from 0 those whose number is `part` modulo `parts`.
struct Share {
  std::int64_t part = 0, parts = 1;

  [[nodiscard]] bool whole() const { return parts == 1; }
  /// Returns how many of `count` things are in it.
  [[nodiscard]] std::int64_t of(std::int64_t count) const {
    return (count + parts - 1 - part) / parts;
  }
};

/// The places from `begin` to before `end` of a step's sum, which are exchanged together.
struct Bucket {
  std::int64_t begin = 0, end = 0;
};

/// The share of a training step's microbatches, and the sum with those of the other processes.
struct StepShare {
  Share share = {};
  bool in_order = false;  // the sum is made in the order of all microbatches: it needs each of them
  std::int64_t bucket_size = 0;  // numbers of a bucket, at least; 0: one bucket holds the whole sum
  /// Begins to make a bucket of `total` f32[n] the sum over all processes, which begin the same
  /// buckets in the same order. If in_order, `rows` f32[m, n] has a row of each microbatch of this
  /// process. Otherwise `total` holds this process's sum before, and rows are not read. Only the
  /// bucket's places are read, and until finish() nothing else may touch those of `total`.
  /// `microbatches`: of the whole batch. Not called where the share is whole.
  std::function<void(const Tensor& rows, std::int64_t microbatches, const Tensor& total,
                     Bucket bucket)>
      begin = {};
  /// Waits until each sum that has begun is there.
  std::function<void()> finish = {};
};

}  // namespace skytape::train
