#include "tensor/embedding/embedding.hpp"

#include <algorithm>
#include <vector>

#include "tensor/core/on_device.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/movement/gather.hpp"

namespace skytape::tensor {
namespace {

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

void embedding_backward_on(Cpu, const Tensor& dy, const Tensor& ids, Tensor& dtable) {
  dispatch_float(dy.dtype(), [&]<class T>() {
    sum_by_id(dy.data<T>(), ids.data<std::int32_t>(), ids.numel(), dtable.size(0), dtable.size(1),
              dtable.data<T>());
  });
}

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& ids) {
  require_index("embedding", table, ids);
  ENSURE(table.rank() == 2, "embedding: expected a table [V, E], got ", table);
  require_in_range("embedding", ids, table.size(0));
  return gather_rows(table, ids.reshape({ids.numel()}))
      .reshape(ids.shape().append(table.size(1)));  // [..., E]
}

Tensor embedding_backward(const Tensor& dy, const Tensor& ids, std::int64_t vocabulary) {
  require_index("embedding_backward", dy, ids);
  ENSURE(dy.rank() == ids.rank() + 1 && dy.shape().first(ids.rank()) == ids.shape(),
         "embedding_backward: expected dy [..., E] for ids [...], got dy ", dy, ", ids ", ids);
  ENSURE(vocabulary >= 0, "embedding_backward: negative vocabulary ", vocabulary);
  require_in_range("embedding_backward", ids, vocabulary);
  Tensor dtable = empty_like(dy, {vocabulary, dy.size(-1)});  // [V, E]
  if (dtable.numel() == 0) return dtable;
  on_device(dy.device(), [&](auto tag) { embedding_backward_on(tag, dy, ids, dtable); });
  return dtable;
}

}  // namespace skytape::tensor
