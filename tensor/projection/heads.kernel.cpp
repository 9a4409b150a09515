// Rearranges the operands of the gradient of projections by head: gradients side by side with their
// sums, in one pass, and weights one below the other. Also makes biases of rows that are sums of
// others.
#include "tensor/projection/heads.hpp"

#include "tensor/launch/columns.hpp"
#include "tensor/launch/narrow_rows.hpp"
#include "tensor/projection/heads_plan.hpp"

namespace skytape::tensor {
namespace {

/// Entry (i, j) of the gathered matrix, stored as it is summed: columns() asks for each one once.
template <class T> struct GatheredEntry {
  HeadsPlan plan;
  OfEach<const T> parts;  // [B, H, N, D]
  T* rows;                // [B N, P H D]
  HD T operator()(int, std::int64_t, std::int64_t i, std::int64_t j) const {
    const std::int64_t p = plan.part_of(j);
    const T* const from = parts.at(p);
    const T value = from == nullptr
                        ? T(0)
                        : from[plan.place_of_row(i) + plan.place_in_part(j - p * plan.out())];
    rows[i * plan.columns() + j] = value;
    return value;
  }
  HD T operator()(int k, std::int64_t o, std::int64_t i) const { return (*this)(k, o, i, 0); }
};

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

void gather_heads_on(Backend, const HeadsPlan& plan, std::span<const Tensor> parts,
                     GatheredHeads& g) {
  dispatch_float(g.rows.dtype(), [&]<class T>() {
    columns<1, T>(1, g.rows.size(0), g.rows.size(1),
                  GatheredEntry<T>{plan, of_each<const T>(parts), g.rows.data<T>()},
                  g.sums.data<T>());
  });
}

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
