// The time of a training step on several ranks: measured on those that run, and modelled for more.
#pragma once

#include <cstdint>

#include "train/formats/table.hpp"
#include "train/lab/bench/bench.hpp"
#include "train/ranks/ranks.hpp"

namespace skytape::train {

/// Seconds of a step, by rank, and what they were spent on.
struct RankTimes {
  struct One {
    double step = 0, compute = 0, exchange = 0, optimiser = 0, data = 0;
  };
  std::vector<One> ranks;
  std::int64_t microbatches = 0;   // of a batch
  std::int64_t parameters = 0;     // numbers that are exchanged
  double microbatch_seconds = 0;   // of one on rank 0, forward and backward
  double short_round_seconds = 0;  // of a number from each rank to all
};

/// Times training steps of the case's model on these ranks, each batch cut as training cuts it. All
/// ranks call it and know the result.
[[nodiscard]] RankTimes measure_ranks(const BenchCase& c, const Ranks& ranks);
[[nodiscard]] Table measured_table(const RankTimes& times);

/// A network as the model knows it.
struct Network {
  const char* name;
  double latency;           // seconds of a message
  double bytes_per_second;  // in each direction
};

/// Seconds of the exchange of a step: bytes over the network's rate, and rounds, each as deep as a
/// tree over the ranks.
[[nodiscard]] double modelled_exchange(const Network& network, Reduce reduce, std::int64_t ranks,
                                       std::int64_t microbatches, double parameters);

/// Step times on 1 to 1,024 ranks of a model of so many parameters, whose compute grows with them:
/// for a batch of 1,024 microbatches, and for the measured batch on each rank.
[[nodiscard]] Table modelled_table(const RankTimes& times, double parameters, Reduce reduce);

}  // namespace skytape::train
