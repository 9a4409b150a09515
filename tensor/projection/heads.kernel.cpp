// Stacks weights one below the other, for the gradient of projections by head, and makes biases of
// rows that are sums of others.
#include "tensor/projection/heads.hpp"

#include "tensor/launch/columns.hpp"
#include "tensor/launch/narrow_rows.hpp"
#include "tensor/projection/heads_plan.hpp"

namespace skytape::tensor {
namespace {

/// Entry (row, column) of dy as a matrix [B N, P H D].
template <class T> struct Gradient {
  HeadsPlan plan;
  OfEach<const T> dy;    // [B, H, N, D]
  OfEach<const T> bias;  // [H D]

  /// Calls f(entry, bias of its column).
  template <class F> HD T with_bias(std::int64_t row, std::int64_t column, const F& f) const {
    const std::int64_t p = plan.part_of(column), own = column - p * plan.out();
    const T* const from = dy.at(p);
    if (from == nullptr) return T(0);
    return f(from[plan.place_of_row(row) + plan.place_in_part(own)], bias.at(p)[own]);
  }
};

template <class T> struct AddBias {
  HeadsPlan plan;
  const T* sums;         // [B, N]
  OfEach<const T> bias;  // [H D]
  T* y;                  // [P, B, H, N, D]
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const std::int64_t n = row % plan.n, h = row / plan.n % plan.heads;
    const std::int64_t example = row / (plan.n * plan.heads);  // of a part
    const T factor = sums[example % plan.batch * plan.n + n];
    const T* const own = bias.at(example / plan.batch) + h * plan.d;
    T* const to = y + row * plan.d;
    const auto sum = [=](T value, T b) { return value + factor * b; };
    assign(team, plan.d, to, sum, static_cast<const T*>(to), own);
  }
};

template <class T> struct SumGradient {
  Gradient<T> gradient;
  T* dsums;  // [B, N]
  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const T sum = team.sum(gradient.plan.columns(), [&](std::int64_t column) {
      return gradient.with_bias(row, column, [](T dy, T bias) { return dy * bias; });
    });
    if (team.leader()) dsums[row] = sum;
  }
};

template <class T> struct BiasGradientEntry {
  Gradient<T> gradient;
  const T* sums;  // [B, N]
  HD T operator()(int, std::int64_t, std::int64_t i, std::int64_t j) const {
    const T factor = sums[i];
    return gradient.with_bias(i, j, [=](T dy, T) { return factor * dy; });
  }
  HD T operator()(int k, std::int64_t o, std::int64_t i) const { return (*this)(k, o, i, 0); }
};

template <class T> struct StackedEntry {
  OfEach<const T> weights;  // [H D, E]
  T* stacked;               // [P H D, E]
  std::int64_t size;        // H D E
  HD void operator()(std::int64_t i) const {
    const std::int64_t p = i < size ? 0 : i < 2 * size ? 1 : 2;
    stacked[i] = weights.at(p)[i - p * size];
  }
};

}  // namespace

void add_biases_on(Backend, const HeadsPlan& plan, const Tensor& sums,
                   std::span<const Tensor> biases, Tensor& y) {
  dispatch_float(y.dtype(), [&]<class T>() {
    narrow_rows(y.rows(), y.cols(),
                AddBias<T>{plan, sums.data<T>(), of_each<const T>(biases), y.data<T>()});
  });
}

void add_biases_backward_on(Backend, const HeadsPlan& plan, const Tensor& sums,
                            std::span<const Tensor> biases, std::span<const Tensor> dy,
                            AddedBiasGradients& d) {
  dispatch_float(sums.dtype(), [&]<class T>() {
    const Gradient<T> gradient{plan, of_each<const T>(dy), of_each<const T>(biases)};
    const std::int64_t count = sums.numel(), width = d.dbiases.numel();  // B N, P H D
    rows(count, width, SumGradient<T>{gradient, d.dsums.data<T>()});
    columns<1, T>(1, count, width, BiasGradientEntry<T>{gradient, sums.data<T>()},
                  d.dbiases.data<T>());
  });
}

void stack_weights_on(Backend, std::span<const Tensor> weights, Tensor& stacked) {
  dispatch_float(stacked.dtype(), [&]<class T>() {
    map(stacked.numel(),
        StackedEntry<T>{of_each<const T>(weights), stacked.data<T>(), weights[0].numel()});
  });
}

}  // namespace skytape::tensor
