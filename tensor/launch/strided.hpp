// Loops over up to six axes in which two operands move with their own strides: broadcasting and
// copies between layouts.
#pragma once

#include <array>
#include <cstdint>

#include "tensor/core/tensor.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::tensor {

using Strides = std::array<std::int64_t, Shape::kMaxRank>;  // entries to step over, by axis

/// Strides of the contiguous shape `operand` walked in `shape`, axes aligned at the end: 0 where
/// the operand repeats.
[[nodiscard]] Strides broadcast_strides(const Shape& operand, const Shape& shape);

/// The loop cut into tasks of about task_entries entries. Axes that both operands walk as one are
/// merged; what remains are outer axes, a middle axis and a row of `width` entries.
struct StridedLoop {
  static constexpr int kMaxOuter = Shape::kMaxRank - 2;

  struct Axis {
    std::int64_t size = 1;
    std::int64_t a = 0, b = 0;  // strides of the two operands
  };
  Axis outer[kMaxOuter];
  std::int64_t outer_axes = 0;
  Axis middle, row;
  std::int64_t middle_step = 1, middle_tasks = 1;  // rows of one task; tasks along the middle
  std::int64_t row_step = 1, row_tasks = 1;        // entries of one task's rows; tasks along a row
  std::int64_t tasks = 0;
  std::int64_t task_entries;  // a GPU's few lanes of a row wait for memory once or twice

  StridedLoop(Device device, const Shape& shape, const Strides& a, const Strides& b);

  /// Calls f(offset_a, offset_b, first, count) for every run of the task: `count` entries of one
  /// row, `first` their row-major number in the loop's shape.
  template <class F> HD void each_run(std::int64_t task, const F& f) const {
    const std::int64_t begin = row_tasks == 1 ? 0 : task % row_tasks * row_step;
    std::int64_t rest = row_tasks == 1 ? task : task / row_tasks;
    const std::int64_t m0 = middle_tasks == 1 ? 0 : rest % middle_tasks * middle_step;
    if (middle_tasks > 1) rest /= middle_tasks;
    const std::int64_t plane = rest;
    std::int64_t offset_a = begin * row.a, offset_b = begin * row.b;
    for (std::int64_t axis = outer_axes - 1; axis >= 0; --axis) {
      const std::int64_t index = rest % outer[axis].size;
      rest /= outer[axis].size;
      offset_a += index * outer[axis].a;
      offset_b += index * outer[axis].b;
    }
    const std::int64_t count = math::min(row_step, row.size - begin);
    const std::int64_t m1 = math::min(m0 + middle_step, middle.size);
    for (std::int64_t m = m0; m < m1; ++m) {
      f(offset_a + m * middle.a, offset_b + m * middle.b,
        (plane * middle.size + m) * row.size + begin, count);
    }
  }
};

}  // namespace skytape::tensor
