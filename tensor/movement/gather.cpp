#include "tensor/movement/gather.hpp"

#include <algorithm>

#include "tensor/core/on_device.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::tensor {
namespace {

/// Checks x: [..., n, p] against index: [..., d].
GatherPlan plan_of(const char* op, const Tensor& x, const Tensor& index) {
  require_index(op, x, index);
  ENSURE(x.rank() >= 2 && index.rank() >= 1 && index.rank() <= x.rank() - 1, op,
         ": expected x [..., n, p] and index [..., d], got x ", x, ", index ", index);
  const Shape lead = x.shape().first(x.rank() - 2);
  const Shape index_lead = index.shape().first(index.rank() - 1);
  ENSURE(index_lead == lead.first(index_lead.rank()), op, ": leading axes of index ", index,
         " are not those of x ", x);
  GatherPlan p;
  p.groups = lead.numel();
  p.rows = x.size(-2);
  p.picks = index.size(-1);
  p.width = x.size(-1);
  p.sharing = index_lead.numel() == 0 ? 1 : p.groups / index_lead.numel();
  require_in_range(op, index, p.rows);
  return p;
}

/// Rows are added in the order of the picks, whichever thread owns them.
template <class T>
void scatter_rows(const GatherPlan& p, T* x, const std::int32_t* index, const T* y) {
  // A column block is a cache line or more; groups alone may be too few for the threads.
  constexpr std::int64_t kColumns = 64;
  const std::int64_t blocks = ceil_div(p.width, kColumns);
#pragma omp parallel for schedule(static) if (p.groups * p.picks * p.width > cpu::kParallelWork)
  for (std::int64_t task = 0; task < p.groups * blocks; ++task) {
    const std::int64_t g = task / blocks, begin = task % blocks * kColumns;
    const std::int64_t count = std::min(kColumns, p.width - begin);
    const std::int32_t* const picks = index + g / p.sharing * p.picks;  // [d]
    const T* source = y + g * p.picks * p.width + begin;
    for (std::int64_t i = 0; i < p.picks; ++i, source += p.width) {
      T* const target = x + (g * p.rows + picks[i]) * p.width + begin;
#pragma omp simd
      for (std::int64_t c = 0; c < count; ++c) target[c] += source[c];
    }
  }
}

void scatter_add_rows_on(Cpu, const GatherPlan& plan, Tensor& x, const Tensor& index,
                         const Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    scatter_rows(plan, x.data<T>(), index.data<std::int32_t>(), y.data<T>());
  });
}

}  // namespace

void require_index(const char* op, const Tensor& x, const Tensor& index) {
  ENSURE(x.defined() && index.defined(), op, ": an operand is undefined");
  ENSURE(x.dtype() != DType::i32, op, ": expected rows of f32 or f64, got ", x);
  ENSURE(index.dtype() == DType::i32 && index.device() == x.device(), op,
         ": expected an index i32@", name(x.device()), ", got ", index);
}

void require_in_range(const char* op, const Tensor& index, std::int64_t n) {
  if (index.device() != Device::cpu) return;
  const std::int32_t* values = index.data<std::int32_t>();
  const std::int64_t count = index.numel();
  bool good = true;
#pragma omp simd reduction(&& : good)
  for (std::int64_t i = 0; i < count; ++i) good = good && values[i] >= 0 && values[i] < n;
  if (good) return;
  const std::int32_t* bad =
      std::find_if(values, values + count, [&](std::int32_t v) { return v < 0 || v >= n; });
  throw Error(join(op, ": index ", *bad, " at position ", bad - values, " of ", index,
                   " is outside [0, ", n, ")"));
}

Tensor gather_rows(const Tensor& x, const Tensor& index) {
  const GatherPlan p = plan_of("gather_rows", x, index);
  const Shape lead = x.shape().first(x.rank() - 2);
  Tensor y = empty_like(x, lead.append(p.picks).append(p.width));
  if (y.numel() == 0) return y;  // [..., d, p]
  on_device(x.device(), [&](auto tag) { gather_rows_on(tag, p, x, index, y); });
  return y;
}

void scatter_add_rows(Tensor& x, const Tensor& index, const Tensor& y) {
  const GatherPlan p = plan_of("scatter_add_rows", x, index);
  require_same_kind("scatter_add_rows", {&x, &y});
  const Shape lead = x.shape().first(x.rank() - 2);
  ENSURE(y.shape() == lead.append(p.picks).append(p.width), "scatter_add_rows: x ", x,
         " and index ", index, " need rows of shape ", lead.append(p.picks).append(p.width),
         ", got y ", y);
  if (y.numel() == 0) return;
  on_device(x.device(), [&](auto tag) { scatter_add_rows_on(tag, p, x, index, y); });
}

}  // namespace skytape::tensor
