// CUDA half of look_up.
#include "nn/embedding/lookup.hpp"

#include <cstdint>
#include <limits>
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
  std::int64_t table_rows, second_rows;  // V, S

  /// Row i of rows [count, E]; null: there is none.
  HD const T* row_of(const T* rows, std::int64_t count, std::int64_t i) const {
    return 0 <= i && i < count ? rows + i * e : nullptr;
  }
  HD std::int64_t place(std::uint32_t row) const {
    return places != nullptr ? std::int64_t{places[row]} : std::int64_t{row % n};
  }
  HD auto at(std::int64_t base) const {
    return [*this, base](std::int64_t i, const auto& factor) {
      const auto entry = static_cast<std::uint32_t>(base + i);
      const std::uint32_t row = entry / e, column = entry - row * e;
      const T* const token = row_of(table, table_rows, ids[row]);
      const T* const other = second == nullptr ? nullptr : row_of(second, second_rows, place(row));
      // An id out of range, which nobody waits for a GPU to find, shows as NaN.
      const bool found = token != nullptr && (second == nullptr || other != nullptr);
      const T one = found ? T(1) : std::numeric_limits<T>::quiet_NaN();
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(factor)>, T>) {
        x[entry] = (number(token, column) + number(other, column)) * (factor * one);
      } else {
        store(entry, static_cast<int>(column), token, other, factor, one);
      }
    };
  }
  HD static T number(const T* row, std::uint32_t column) {
    return row == nullptr ? T(0) : row[column];
  }
  /// Four numbers of a row.
  __device__ void store(std::uint32_t entry, int column, const T* token, const T* other,
                        const cuda::Four<T>& factors, T one) const {
    auto sum = cuda::load_four(token, column, e);
    const auto added = cuda::load_four(other, column, e);
#pragma unroll
    for (int u = 0; u < 4; ++u) sum.x[u] = (sum.x[u] + added.x[u]) * (factors.x[u] * one);
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
                          static_cast<std::uint32_t>(x.size(2)),
                          table.size(0),
                          second.defined() ? second.size(0) : 0};
    tensor::each_entry<T>(plan, in, x.size(2) % 4 == 0);
  });
}

}  // namespace skytape::nn
