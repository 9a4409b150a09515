// CUDA half of look_up.
#include "nn/embedding/lookup.hpp"

#include "tensor/core/tensor.hpp"
#include "tensor/launch/four.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/random/dropout_chunks.hpp"
#include "tensor/random/kept_fours.hpp"

namespace skytape::nn {
namespace {

using tensor::DropoutPlan;

template <class T> struct RowsAdded {
  const T* table;              // [V, E]
  const T* second;             // [S, E] or null
  const std::int32_t* ids;     // [B, N]
  const std::int32_t* places;  // [B, N]; null: n
  T* x;                        // [B, N, E]
  std::uint32_t n, e;

  HD std::int64_t place(std::uint32_t row) const {
    return places != nullptr ? std::int64_t{places[row]} : std::int64_t{row % n};
  }
  HD auto at(std::int64_t base) const {
    return [*this, base](std::int64_t i, T factor) {
      const auto entry = static_cast<std::uint32_t>(base + i);
      const std::uint32_t row = entry / e, column = entry - row * e;
      T sum = table[std::int64_t{ids[row]} * e + column];
      if (second != nullptr) {
        sum += second[place(row) * e + column];
      }
      x[entry] = sum * factor;
    };
  }
};

/// The same where chunks begin with ranges and E is a multiple of 4: a warp has two chunks, a lane
/// four neighbouring numbers of each.
template <class T> struct FourAdded {
  DropoutPlan plan;
  RowsAdded<T> in;
  std::int64_t per_range;  // pairs of chunks

  __device__ void operator()(std::int64_t task, const cuda::Warp& warp) const {
    const std::int64_t range = task / per_range, chunk = task % per_range * 2;
    const std::int64_t number = plan.first + range * plan.range_stride;
    unsigned kept = ~0u;
    if (plan.threshold != 0) {
      const std::int64_t first = number / philox::kChunk + chunk;
      kept = philox::kept_fours(plan.key, philox::step_of(plan.step), first, first + 1,
                                plan.threshold);
    }
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const std::int64_t at = (chunk + c) * philox::kChunk + 4 * warp.lane;  // in the range
      if (at >= plan.range_size) continue;
      const auto entry = static_cast<std::uint32_t>(range * plan.range_size + at);
      const std::uint32_t row = entry / in.e;
      const int column = static_cast<int>(entry - row * in.e);
      auto sum = cuda::load_four(in.table + std::int64_t{in.ids[row]} * in.e, column, in.e);
      if (in.second != nullptr) {
        const auto second = cuda::load_four(in.second + in.place(row) * in.e, column, in.e);
#pragma unroll
        for (int u = 0; u < 4; ++u) sum.x[u] += second.x[u];
      }
      philox::keep(sum, kept >> (16 * c), static_cast<T>(plan.scale));
      sum.store(in.x + entry);
    }
  }
};

}  // namespace

void look_up_on(Cuda, const DropoutPlan& plan, const Tensor& table, const Tensor& second,
                const LookUp& options, Tensor& x) {
  const auto whole = [](std::int64_t numbers) { return numbers % philox::kChunk == 0; };
  const bool aligned =
      plan.threshold == 0 || (whole(plan.first) && (plan.ranges == 1 || whole(plan.range_stride)));
  const bool fours = x.size(2) % 4 == 0 && aligned;
  dispatch_float(x.dtype(), [&]<class T>() {
    const RowsAdded<T> in{table.data<T>(),
                          second.data_or_null<T>(),
                          options.ids.data<std::int32_t>(),
                          options.places.data_or_null<std::int32_t>(),
                          x.data<T>(),
                          static_cast<std::uint32_t>(x.size(1)),
                          static_cast<std::uint32_t>(x.size(2))};
    if (!fours) return tensor::each_entry<T>(plan, in);
    const std::int64_t per_range = ceil_div(plan.range_size, 2 * philox::kChunk);
    cuda::warp_rows(plan.ranges * per_range, FourAdded<T>{plan, in, per_range});
  });
}

}  // namespace skytape::nn
