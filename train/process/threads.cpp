#include "train/process/threads.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"

namespace skytape::train {
namespace {

constexpr int kMostThreads = 4096;  // OpenMP has their records on its stack

}  // namespace

void check_threads() {
  const char* const asked = std::getenv("OMP_NUM_THREADS");
  if (asked == nullptr || *asked == '\0') return;
  // A list has a number for each level of nesting. OpenMP ignores what it cannot read.
  std::string_view first(asked);
  first = first.substr(0, first.find(','));
  first.remove_prefix(std::min(first.find_first_not_of(' '), first.size()));
  first = first.substr(0, first.find_last_not_of(' ') + 1);
  const auto threads = number_in<std::int64_t>(first);
  if (threads && *threads >= 1 && *threads <= kMostThreads) return;
  throw UsageError(fmt::format("OMP_NUM_THREADS: expected 1..{}, got {}", kMostThreads, asked));
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
