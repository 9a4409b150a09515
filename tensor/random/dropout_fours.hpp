// Dropout's elements in fours, CUDA only: a warp has two chunks, a lane four neighbouring numbers of
// each, so that a lane draws one counter for eight of them and moves up to 16 bytes at once.
#pragma once

#include <cstdint>

#include "tensor/launch/cuda.hpp"
#include "tensor/launch/four.hpp"
#include "tensor/random/dropout_plan.hpp"
#include "tensor/random/kept_fours.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::tensor {
namespace {

/// Returns whether chunks begin with the plan's ranges, and these consist of fours.
inline bool has_fours(const DropoutPlan& plan) {
  const auto whole = [](std::int64_t numbers) { return numbers % philox::kChunk == 0; };
  const bool aligned =
      plan.threshold == 0 || (whole(plan.first) && (plan.ranges == 1 || whole(plan.range_stride)));
  return aligned && plan.range_size % 4 == 0;
}

/// Calls f(position of the first, Four<T> of factors), f = entry.at(base), for all fours of the plan's
/// memory.
template <class T, class Entry> struct FourChunks {
  DropoutPlan plan;
  std::int64_t per_range;  // pairs of chunks
  Entry entry;

  __device__ void operator()(std::int64_t task, const cuda::Warp& warp) const {
    const std::int64_t range = task / per_range, chunk = task % per_range * 2;
    unsigned kept = ~0u;
    if (plan.threshold != 0) {
      const std::int64_t number = plan.first + range * plan.range_stride;
      const std::int64_t first = number / philox::kChunk + chunk;
      kept = philox::kept_fours(plan.key, philox::step_of(plan.step), first, first + 1,
                                plan.threshold);
    }
    const T scale = static_cast<T>(plan.scale);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const std::int64_t begin = (chunk + c) * philox::kChunk;  // in the range
      if (begin + 4 * warp.lane >= plan.range_size) continue;
      cuda::Four<T> factors{{scale, scale, scale, scale}};
      philox::keep(factors, kept >> (16 * c), T(1));
      entry.at(range * plan.range_size + begin)(4 * warp.lane, factors);
    }
  }
};

template <class T, class Entry> void each_four(const DropoutPlan& plan, const Entry& entry) {
  const std::int64_t per_range = ceil_div(plan.range_size, 2 * philox::kChunk);
  cuda::warp_rows(plan.ranges * per_range, FourChunks<T, Entry>{plan, per_range, entry});
}

/// to[i + u] = f(factors.x[u], from[i + u]...) for u < 4.
template <class T, class To, class F, class... From>
__device__ void store_entries(std::int64_t i, const cuda::Four<T>& factors, To* to, const F& f,
                              const From*... from) {
  const auto store = [&](const cuda::Four<From>&... in) {
    cuda::Four<To> out;
#pragma unroll
    for (int u = 0; u < 4; ++u) out.x[u] = f(factors.x[u], in.x[u]...);
    out.store_global(to + i);
  };
  if (cuda::Four<To>::aligned(to + i) && (... && cuda::Four<From>::aligned(from + i))) {
    return store(cuda::Four<From>::at(from + i)...);
  }
  for (int u = 0; u < 4; ++u) to[i + u] = f(factors.x[u], from[i + u]...);
}

}  // namespace
}  // namespace skytape::tensor
