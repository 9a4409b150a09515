// Entrywise kernels of the iterative inverse.
#include "attention/inverse/iterative_inverse_steps.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

template <class T> struct ShiftedIdentity {
  const T* x;  // [G, L, L]
  T* y;        // [G, L, L]
  std::int64_t size;
  T scale, shift;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T* const from = x + row * size;
    T* const to = y + row * size;
    const std::int64_t diagonal = row % size;
    team.each(size, [&](std::int64_t c) {
      const T scaled = scale == T(0) ? T(0) : scale * from[c];
      to[c] = c == diagonal ? scaled + shift : scaled;
    });
  }
};

template <class T> struct AddToColumns {
  T* dm;                       // [G, L, L]
  const std::int32_t* argmax;  // [G] or [1]
  const T* value;              // [G] or [1]
  std::int64_t size;
  bool shared;  // one argmax for the whole batch

  HD void operator()(std::int64_t row) const {
    const std::int64_t g = row / size;
    const std::int64_t column = shared ? argmax[0] - g * size : argmax[g];
    if (column < 0 || column >= size) return;
    dm[row * size + column] += value[shared ? 0 : g];
  }
};

}  // namespace

void shifted_identity_on(Backend, const Tensor& x, double scale, double shift, Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(x.rows(), x.cols(),
         ShiftedIdentity<T>{x.data<T>(), y.data<T>(), x.cols(), static_cast<T>(scale),
                            static_cast<T>(shift)});
  });
}

void add_to_columns_on(Backend, Tensor& dm, const Tensor& argmax, const Tensor& value) {
  dispatch_float(dm.dtype(), [&]<class T>() {
    const bool shared = argmax.numel() == 1 && dm.size(0) > 1;
    map(dm.rows(), AddToColumns<T>{dm.data<T>(), argmax.data<std::int32_t>(), value.data<T>(),
                                   dm.cols(), shared});
  });
}

}  // namespace skytape::attention
