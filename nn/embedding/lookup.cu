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

}  // namespace skytape::nn
