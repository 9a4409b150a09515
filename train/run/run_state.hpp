// The state of a run: the part of a checkpoint that is not tensors.
#pragma once

#include <cstdint>

#include "data/batch.hpp"
#include "train/run/time_to_accuracy.hpp"

namespace skytape::train {

/// The state of a run, apart from its tensors.
struct RunState {
  std::int64_t step = 0;        // optimiser steps done
  data::Cursor cursor;          // of the training stream
  std::int64_t evaluated = 0;   // step of the last finished evaluation
  double best_metric = 0;       // accuracy or loss, as the selection says
  std::int64_t best_step = -1;  // -1: nothing selected yet
  std::int64_t stale = 0;       // evaluations since the best one
  bool selecting = false;       // an evaluation after `select_after` has counted
  std::int64_t tokens = 0;      // real tokens trained on
  double train_seconds = 0;     // without evaluations
  double waited_seconds = 0;    // for the loader
  std::int64_t peak_bytes = 0;  // of the allocator while training, in any process of the run
  TimeToAccuracy reached;
};

}  // namespace skytape::train
