// CUDA half of look_up.
#include "nn/embedding/lookup.hpp"

#include <type_traits>

#include "tensor/core/tensor.hpp"
#include "tensor/launch/four.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/random/dropout_chunks.hpp"

namespace skytape::nn {
namespace {

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
    return [*this, base](std::int64_t i, const auto& factor) {
      const auto entry = static_cast<std::uint32_t>(base + i);
      const std::uint32_t row = entry / e, column = entry - row * e;
      const T* const token = table + std::int64_t{ids[row]} * e;
      const T* const other = second == nullptr ? nullptr : second + place(row) * e;
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(factor)>, T>) {
        x[entry] = (token[column] + (other == nullptr ? T(0) : other[column])) * factor;
      } else {
        store(entry, static_cast<int>(column), token, other, factor);
      }
    };
  }
  /// Four numbers of a row.
  __device__ void store(std::uint32_t entry, int column, const T* token, const T* other,
                        const cuda::Four<T>& factors) const {
    auto sum = cuda::load_four(token, column, e);
    const auto added = cuda::load_four(other, column, e);
#pragma unroll
    for (int u = 0; u < 4; ++u) sum.x[u] = (sum.x[u] + added.x[u]) * factors.x[u];
    sum.store(x + entry);
  }
};

}  // namespace

void look_up_on(Cuda, const tensor::DropoutPlan& plan, const Tensor& table, const Tensor& second,
                const LookUp& options, Tensor& x) {
  dispatch_float(x.dtype(), [&]<class T>() {
    const RowsAdded<T> in{table.data<T>(),
                          second.data_or_null<T>(),
                          options.ids.data<std::int32_t>(),
                          options.places.data_or_null<std::int32_t>(),
                          x.data<T>(),
                          static_cast<std::uint32_t>(x.size(1)),
                          static_cast<std::uint32_t>(x.size(2))};
    tensor::each_entry<T>(plan, in, x.size(2) % 4 == 0);
  });
}

}  // namespace skytape::nn
