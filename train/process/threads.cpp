#include "train/process/threads.hpp"

#include <fmt/format.h>
#include <omp.h>

#include "tensor/core/error.hpp"

namespace skytape::train {
namespace {

constexpr int kMostThreads = 4096;  // OpenMP has their records on its stack

}  // namespace

void check_threads() {
  if (thread_count() <= kMostThreads) return;
  throw UsageError(
      fmt::format("OMP_NUM_THREADS: expected 1..{}, got {}", kMostThreads, thread_count()));
}

void set_threads(int threads) {
  if (threads < 0 || threads > kMostThreads) {
    throw UsageError(
        fmt::format("--threads: expected 0..{} (0: all cores), got {}", kMostThreads, threads));
  }
  if (threads > 0) omp_set_num_threads(threads);
}

int thread_count() { return omp_get_max_threads(); }

}  // namespace skytape::train
