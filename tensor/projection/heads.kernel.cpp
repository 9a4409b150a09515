// What the gradient of projections by head reads: gradients side by side with their sums, in one
// pass, and weights one below the other.
#include "tensor/projection/heads.hpp"

#include "tensor/launch/columns.hpp"
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

void stack_weights_on(Backend, std::span<const Tensor> weights, Tensor& stacked) {
  dispatch_float(stacked.dtype(), [&]<class T>() {
    map(stacked.numel(),
        StackedEntry<T>{of_each<const T>(weights), stacked.data<T>(), weights[0].numel()});
  });
}

}  // namespace skytape::tensor
