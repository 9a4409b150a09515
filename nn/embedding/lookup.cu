// CUDA half of look_up.
#include "nn/embedding/lookup.hpp"

#include "tensor/core/tensor.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/random/dropout_chunks.hpp"

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

  HD auto at(std::int64_t base) const {
    return [*this, base](std::int64_t i, T factor) {
      const auto entry = static_cast<std::uint32_t>(base + i);
      const std::uint32_t row = entry / e, column = entry - row * e;
      T sum = table[std::int64_t{ids[row]} * e + column];
      if (second != nullptr) {
        const std::int64_t place =
            places != nullptr ? std::int64_t{places[row]} : std::int64_t{row % n};
        sum += second[place * e + column];
      }
      x[entry] = sum * factor;
    };
  }
};

/// A warp owns 128 neighbouring numbers of a sequence: it drops out those of every example and adds them
/// in order.
template <class T> struct DropAndSum {
  DropoutPlan plan;
  const T* dx;                          // [B, N, E]
  T* d;                                 // [B, N, E]; null: nothing is dropped
  T* sum;                               // [S, E]
  std::int64_t batch, size, rows_size;  // B, N E, S E
  std::int64_t numbers;                 // element numbers from one example to the next

  __device__ void operator()(std::int64_t chunk, const cuda::Warp& warp) const {
    constexpr int kOwn = philox::kChunk / cuda::kWarp;
    const std::int64_t begin = chunk * philox::kChunk;
    T total[kOwn] = {};
#pragma unroll 4
    for (std::int64_t b = 0; b < batch && begin < size; ++b) {
      const T* const from = dx + b * size;
      T* const to = d == nullptr ? nullptr : d + b * size;
      const auto add = [&](std::int64_t i, T factor) {
        const std::int64_t at = begin + i;
        if (at >= size) return;
        const T value = from[at] * factor;
        total[i / cuda::kWarp] += value;
        if (to != nullptr) to[at] = value;
      };
      if (plan.threshold == 0) {
#pragma unroll
        for (int k = 0; k < kOwn; ++k) add(k * cuda::kWarp + warp.lane, T(1));
        continue;
      }
      const T scale = static_cast<T>(plan.scale);
      philox::each_bits(warp, plan.key, philox::step_of(plan.step),
                        (plan.first + b * numbers) / philox::kChunk + chunk,
                        [&](std::int64_t i, std::uint32_t bits) {
                          add(i, bits >= plan.threshold ? scale : T(0));
                        });
    }
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      const std::int64_t at = begin + k * cuda::kWarp + warp.lane;
      if (at < rows_size) sum[at] = total[k];
    }
  }
};

}  // namespace

void look_up_on(Cuda, const DropoutPlan& plan, const Tensor& table, const Tensor& second,
                const LookUp& options, Tensor& x) {
  dispatch_float(x.dtype(), [&]<class T>() {
    tensor::each_entry<T>(
        plan, RowsAdded<T>{table.data<T>(), second.defined() ? second.data<T>() : nullptr,
                           options.ids.data<std::int32_t>(),
                           options.places.defined() ? options.places.data<std::int32_t>() : nullptr,
                           x.data<T>(), static_cast<std::uint32_t>(x.size(1)),
                           static_cast<std::uint32_t>(x.size(2))});
  });
}

void look_up_backward_on(Cuda, const DropoutPlan& plan, const Tensor& dx, Tensor& d,
                         Tensor& dsecond) {
  dispatch_float(dx.dtype(), [&]<class T>() {
    const std::int64_t rows_size = dsecond.numel();
    // Where nothing is trimmed, the plan has one range for all examples.
    const std::int64_t size = dx.numel() / dx.size(0);
    const std::int64_t numbers = plan.ranges == 1 ? size : plan.range_stride;
    cuda::warp_rows(ceil_div(rows_size, philox::kChunk),
                    DropAndSum<T>{plan, dx.data<T>(), plan.threshold == 0 ? nullptr : d.data<T>(),
                                  dsecond.data<T>(), dx.size(0), size, rows_size, numbers});
  });
}

}  // namespace skytape::nn
