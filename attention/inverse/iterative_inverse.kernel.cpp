// Entrywise kernels of the iterative inverse.
#include "attention/inverse/iterative_inverse_plan.hpp"
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

template <class T> struct ScaleStart {
  const T* largest;  // [G / scope]
  T* c;              // as largest
  T* start;          // [G, L, L]
  std::int64_t size;
  std::int64_t scope;  // matrices with one coefficient

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const std::int64_t at = row / (size * scope);
    const T factor = T(1) / largest[at];
    T* const to = start + row * size;
    team.each(size, [&](std::int64_t j) { to[j] *= factor; });
    if (row == at * size * scope && team.leader()) c[at] = factor;
  }
};

template <class T> struct StartBackward {
  const T *m, *dstart_t;  // [G, L, L]
  const T* c;             // [G / scope]
  T* dm;                  // [G, L, L]
  T* dc;                  // [G, L]
  std::int64_t size, scope;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T factor = c[row / (size * scope)];
    const T* const from = dstart_t + row * size;
    const T* const matrix = m + row * size;
    T* const to = dm + row * size;
    const T share = team.sum(size, [&](std::int64_t j) { return from[j] * matrix[j]; });
    team.each(size, [&](std::int64_t j) { to[j] += factor * from[j]; });
    if (team.leader()) dc[row] = share;
  }
};

template <class T> struct AddToColumns {
  const T* c;                  // [G / scope]
  const std::int32_t* argmax;  // [G / scope]
  const T* dc;                 // [G, L] or, of scopes of several, [G / scope]
  T* dm;                       // [G, L, L]
  std::int64_t size, scope;

  template <class Team> HD void operator()(std::int64_t g, const Team& team) const {
    const std::int64_t at = g / scope;
    const std::int64_t column = argmax[at] - g % scope * size;
    if (column < 0 || column >= size) return;
    const T factor = c[at];
    const T* const shares = dc + g * size;
    const T sum = scope > 1 ? dc[at] : team.sum(size, [&](std::int64_t i) { return shares[i]; });
    T* const to = dm + g * size * size + column;
    team.each(size, [&](std::int64_t i) { to[i * size] -= factor * factor * sum; });
  }
};

/// Returns how many matrices have one coefficient.
std::int64_t scope_of(const Tensor& c, const Tensor& matrices) {
  return matrices.size(0) / c.numel();
}

}  // namespace

void shifted_identity_on(Backend, const Tensor& x, double scale, double shift, Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    rows(x.rows(), x.cols(),
         ShiftedIdentity<T>{x.data<T>(), y.data<T>(), x.cols(), static_cast<T>(scale),
                            static_cast<T>(shift)});
  });
}

void scale_start_on(Backend, const Tensor& largest, Tensor& c, Tensor& start) {
  dispatch_float(start.dtype(), [&]<class T>() {
    rows(start.rows(), start.cols(),
         ScaleStart<T>{largest.data<T>(), c.data<T>(), start.data<T>(), start.cols(),
                       scope_of(c, start)});
  });
}

void start_backward_on(Backend, const Tensor& m, const Tensor& dstart_t, const Tensor& c,
                       Tensor& dm, Tensor& dc) {
  dispatch_float(m.dtype(), [&]<class T>() {
    rows(m.rows(), m.cols(),
         StartBackward<T>{m.data<T>(), dstart_t.data<T>(), c.data<T>(), dm.data<T>(), dc.data<T>(),
                          m.cols(), scope_of(c, m)});
  });
}

void add_to_columns_on(Backend, const Tensor& c, const Tensor& argmax, const Tensor& dc,
                       Tensor& dm) {
  dispatch_float(dm.dtype(), [&]<class T>() {
    rows(dm.size(0), dm.cols(),
         AddToColumns<T>{c.data<T>(), argmax.data<std::int32_t>(), dc.data<T>(), dm.data<T>(),
                         dm.cols(), scope_of(c, dm)});
  });
}

}  // namespace skytape::attention
