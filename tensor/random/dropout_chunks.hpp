// Kernels walk through dropout's elements by these chunks: 128 element numbers that share Philox
// counters. Included by kernel files only.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tensor/launch/launch.hpp"
#include "tensor/random/dropout_plan.hpp"
#include "tensor/random/philox.hpp"
#ifdef __CUDACC__
#include "tensor/random/dropout_fours.hpp"
#endif

namespace skytape::tensor {

static_assert(kDropoutChunk == philox::kChunk);

// Internal, as in kernel files: both builds define these under one name and with other loops.
namespace {

/// Calls f(position, factor), f = entry.at(base), for every entry base + position of the plan's
/// memory. A rate of zero draws nothing.
template <class T, class Entry> struct Chunks {
  DropoutPlan plan;
  std::int64_t per_range;  // chunks that one range may touch
  Entry entry;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const std::int64_t range = row / per_range;
    const std::int64_t first = plan.first + range * plan.range_stride;  // element number
    const std::int64_t chunk = first / philox::kChunk + row % per_range;
    const std::int64_t begin = first - chunk * philox::kChunk;  // the range begins and ends at
    const std::int64_t end = begin + plan.range_size;           // these positions of the chunk
    const auto f = entry.at(range * plan.range_size - begin);
    if (begin <= 0 && philox::kChunk <= end) {
      walk(team, chunk, f);
    } else {
      walk(team, chunk, [=](std::int64_t position, T factor) {
        if (begin <= position && position < end) f(position, factor);
      });
    }
  }

  template <class Team, class F>
  HD void walk(const Team& team, std::int64_t chunk, const F& f) const {
    const std::uint32_t threshold = plan.threshold;
    const T scale = static_cast<T>(plan.scale);
    if (threshold == 0) {
      team.each(philox::kChunk, [=](std::int64_t position) { f(position, T(1)); });
    } else {
      philox::each_bits(team, plan.key, philox::step_of(plan.step), chunk,
                        [=](std::int64_t position, std::uint32_t bits) {
                          f(position, bits >= threshold ? scale : T(0));
                        });
    }
  }
};

/// Returns a run of entries: to[i] = f(factor, from[i]...), or as much of four entries from i on where
/// it is called with a Four of factors.
template <class To, class F, class... From>
HD auto run_of_entries(To* to, const F& f, const From*... from) {
  return [=](std::int64_t i, const auto& factor) {
#ifdef __CUDACC__
    if constexpr (std::is_class_v<std::remove_cvref_t<decltype(factor)>>) {
      return store_entries(i, factor, to, f, from...);
    } else
#endif
    {
      to[i] = f(factor, from[i]...);
    }
  };
}

/// `in_fours`: where a GPU has chunks that allow it, f is called with a Four of factors.
template <class T, class Entry> void each_entry(const DropoutPlan& plan, const Entry& entry,
                                                [[maybe_unused]] bool in_fours = true) {
  if (plan.ranges * plan.range_size == 0) return;
#ifdef __CUDACC__
  if (in_fours && has_fours(plan)) return each_four<T>(plan, entry);
#endif
  // A range of s elements that starts anywhere in a chunk touches at most this many.
  const std::int64_t per_range = (plan.range_size + 2 * (philox::kChunk - 1)) / philox::kChunk;
  rows(plan.ranges * per_range, philox::kChunk, Chunks<T, Entry>{plan, per_range, entry});
}

}  // namespace

}  // namespace skytape::tensor
