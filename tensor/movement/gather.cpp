#include "tensor/movement/gather.hpp"

#include <algorithm>
#include <vector>

#include "tensor/core/on_device.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::tensor {
namespace {

void require_index(const char* op, const Tensor& x, const Tensor& index) {
  ENSURE(x.defined() && index.defined(), op, ": an operand is undefined");
  ENSURE(x.dtype() != DType::i32, op, ": expected rows of f32 or f64, got ", x);
  ENSURE(index.dtype() == DType::i32 && index.device() == x.device(), op,
         ": expected an index i32@", name(x.device()), ", got ", index);
}

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

/// Positions of each id, in order: a stable counting sort, cut into segments of equal ids.
struct IdSegments {
  static constexpr std::int64_t kLength = 256;
  struct Segment {
    std::int64_t id, begin, end;  // entries of `order`
    bool first;                   // the first segment of its id writes the table, others add
  };
  std::vector<std::int32_t> order;  // [T] positions
  std::vector<Segment> segments;
  std::vector<std::int64_t> starts;  // [V + 1] into segments

  IdSegments(const std::int32_t* ids, std::int64_t count, std::int64_t vocabulary)
      : order(static_cast<std::size_t>(count)), starts(static_cast<std::size_t>(vocabulary) + 1) {
    std::vector<std::int64_t> next(static_cast<std::size_t>(vocabulary) + 1);
    for (std::int64_t i = 0; i < count; ++i) ++next[static_cast<std::size_t>(ids[i]) + 1];
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      const std::int64_t begin = next[static_cast<std::size_t>(v)];
      const std::int64_t end = next[static_cast<std::size_t>(v) + 1] += begin;
      for (std::int64_t s = begin; s < end; s += kLength) {
        segments.push_back({v, s, std::min(s + kLength, end), s == begin});
      }
      starts[static_cast<std::size_t>(v) + 1] = static_cast<std::int64_t>(segments.size());
    }
    for (std::int64_t i = 0; i < count; ++i) {
      order[static_cast<std::size_t>(next[static_cast<std::size_t>(ids[i])]++)] =
          static_cast<std::int32_t>(i);
    }
  }
};

/// dtable[v] = sum of the rows dy[i] with ids[i] = v: segments of at most 256 rows, added in order.
/// So the work is balanced whatever the ids, and long f32 sums are blockwise.
template <class T> void sum_by_id(const T* dy, const std::int32_t* ids, std::int64_t count,
                                  std::int64_t vocabulary, std::int64_t width, T* dtable) {
  const IdSegments sorted(ids, count, vocabulary);
  const auto n = static_cast<std::int64_t>(sorted.segments.size());
  std::vector<T> sums(static_cast<std::size_t>(n * width));  // [segments, E]
#pragma omp parallel if (count * width > cpu::kParallelWork)
  {
#pragma omp for schedule(static)
    for (std::int64_t s = 0; s < n; ++s) {
      const auto& segment = sorted.segments[static_cast<std::size_t>(s)];
      T* const sum = sums.data() + s * width;
      for (std::int64_t i = segment.begin; i < segment.end; ++i) {
        const T* const row = dy + sorted.order[static_cast<std::size_t>(i)] * width;
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) sum[c] += row[c];
      }
    }
#pragma omp for schedule(static)
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      T* const target = dtable + v * width;
      std::fill(target, target + width, T(0));
      for (std::int64_t s = sorted.starts[static_cast<std::size_t>(v)];
           s < sorted.starts[static_cast<std::size_t>(v) + 1]; ++s) {
        const T* const sum = sums.data() + s * width;
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) target[c] += sum[c];
      }
    }
  }
}

void scatter_add_rows_on(Cpu, const GatherPlan& plan, Tensor& x, const Tensor& index,
                         const Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    scatter_rows(plan, x.data<T>(), index.data<std::int32_t>(), y.data<T>());
  });
}

void embedding_backward_on(Cpu, const GatherPlan& plan, const Tensor& dy, const Tensor& ids,
                           Tensor& dtable) {
  dispatch_float(dy.dtype(), [&]<class T>() {
    sum_by_id(dy.data<T>(), ids.data<std::int32_t>(), plan.picks, plan.rows, plan.width,
              dtable.data<T>());
  });
}

}  // namespace

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

Tensor embedding(const Tensor& table, const Tensor& ids) {
  require_index("embedding", table, ids);
  ENSURE(table.rank() == 2, "embedding: expected a table [V, E], got ", table);
  require_in_range("embedding", ids, table.size(0));
  const GatherPlan p{1, table.size(0), ids.numel(), table.size(1), 1};
  Tensor y = empty_like(table, ids.shape().append(p.width));
  if (y.numel() == 0) return y;  // [..., E]
  on_device(table.device(), [&](auto tag) { gather_rows_on(tag, p, table, ids, y); });
  return y;
}

Tensor embedding_backward(const Tensor& dy, const Tensor& ids, std::int64_t vocabulary) {
  require_index("embedding_backward", dy, ids);
  ENSURE(dy.rank() == ids.rank() + 1 && dy.shape().first(ids.rank()) == ids.shape(),
         "embedding_backward: expected dy [..., E] for ids [...], got dy ", dy, ", ids ", ids);
  ENSURE(vocabulary >= 0, "embedding_backward: negative vocabulary ", vocabulary);
  require_in_range("embedding_backward", ids, vocabulary);
  const GatherPlan p{1, vocabulary, ids.numel(), dy.size(-1), 1};
  Tensor dtable = empty_like(dy, {vocabulary, p.width});  // [V, E]
  if (dtable.numel() == 0) return dtable;
  on_device(dy.device(), [&](auto tag) { embedding_backward_on(tag, p, dy, ids, dtable); });
  return dtable;
}

}  // namespace skytape::tensor
