// Picking rows by index: gather_rows and embedding.
#include "tensor/movement/gather.hpp"

#include "tensor/launch/narrow_rows.hpp"

namespace skytape::tensor {
namespace {

template <class T> struct PickRow {
  GatherPlan plan;
  const T* x;                 // [groups, rows, width]
  const std::int32_t* index;  // [groups / sharing, picks]
  T* y;                       // [groups, picks, width]

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const std::int64_t group = row / plan.picks, pick = row % plan.picks;
    const std::int64_t source = index[group / plan.sharing * plan.picks + pick];
    T* const to = y + row * plan.width;
    if (source < 0 || source >= plan.rows) {  // checked on the CPU; shows on a GPU as NaN
      team.each(plan.width, [&](std::int64_t c) { to[c] = std::numeric_limits<T>::quiet_NaN(); });
      return;
    }
    const T* const from = x + (group * plan.rows + source) * plan.width;
    assign(
        team, plan.width, to, [](T value) { return value; }, from);
  }
};

}  // namespace

void gather_rows_on(Backend, const GatherPlan& plan, const Tensor& x, const Tensor& index,
                    Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    narrow_rows(plan.groups * plan.picks, plan.width,
                PickRow<T>{plan, x.data<T>(), index.data<std::int32_t>(), y.data<T>()});
  });
}

}  // namespace skytape::tensor
