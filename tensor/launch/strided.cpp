#include "tensor/launch/strided.hpp"

#include <algorithm>

namespace skytape::tensor {

Strides broadcast_strides(const Shape& operand, const Shape& shape) {
  Strides strides{};
  std::int64_t stride = 1;
  for (int back = 1; back <= operand.rank(); ++back) {
    const std::int64_t size = operand[-back];
    strides[static_cast<std::size_t>(shape.rank() - back)] = size == 1 ? 0 : stride;
    stride *= size;
  }
  return strides;
}

StridedLoop::StridedLoop(Device device, const Shape& shape, const Strides& a, const Strides& b)
    : task_entries(device == Device::cuda ? 64 : 512) {
  if (shape.numel() == 0) return;
  Axis axes[Shape::kMaxRank];  // merged, outermost first
  int count = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    const Axis next{shape[axis], a[i], b[i]};
    if (next.size == 1) continue;
    if (count > 0 && axes[count - 1].a == next.a * next.size &&
        axes[count - 1].b == next.b * next.size) {
      axes[count - 1] = {axes[count - 1].size * next.size, next.a, next.b};
    } else {
      axes[count++] = next;
    }
  }
  row = count > 0 ? axes[count - 1] : Axis{1, 1, 1};
  if (count > 1) middle = axes[count - 2];
  outer_axes = std::max(count - 2, 0);
  std::copy(axes, axes + outer_axes, outer);

  row_step = std::min(row.size, task_entries);
  row_tasks = ceil_div(row.size, row_step);
  middle_step = std::min(middle.size, task_entries / row_step);
  middle_tasks = ceil_div(middle.size, middle_step);
  tasks = row_tasks * middle_tasks;
  for (std::int64_t axis = 0; axis < outer_axes; ++axis) tasks *= outer[axis].size;
}

}  // namespace skytape::tensor
