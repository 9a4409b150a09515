#include "nn/pyramid/pyramid.hpp"

#include <algorithm>
#include <cmath>

#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "nn/pyramid/instance_norm.hpp"
#include "nn/pyramid/unfold.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::nn {

Pyramid::Pyramid(ParameterStore& store, const std::string& name, std::int64_t width,
                 std::int64_t positions, std::int64_t columns)
    : width_(width), rows_(ceil_div(positions, columns)), columns_(columns) {
  std::int64_t longest = std::max(rows_, columns_);
  do {
    for (const std::int64_t stride : {2, 1}) {
      const std::string block = name + ".block_" + std::to_string(blocks_.size());
      Block next{convolution(store, block + ".conv1", 3, stride),
                 convolution(store, block + ".conv2", 3, 1), std::nullopt};
      if (stride > 1) next.shortcut = convolution(store, block + ".shortcut", 1, stride);
      blocks_.push_back(next);
    }
    longest = (longest + 1) / 2;
  } while (longest >= kPyramidTop);
}

Pyramid::Convolution Pyramid::convolution(ParameterStore& store, const std::string& name,
                                          std::int64_t side, std::int64_t stride) const {
  const std::int64_t inputs = side * side * width_;
  const double bound = 1 / std::sqrt(static_cast<double>(inputs));
  return {&store.add(name + ".weight", {width_, inputs}, uniform_init(bound)),
          &store.add(name + ".norm.weight", {width_}, constant_init(1)),
          &store.add(name + ".norm.bias", {width_}, constant_init(0)), side, stride};
}

Var Pyramid::apply(const Convolution& convolution, Var x, std::int64_t columns) {
  Tape& tape = x.tape();
  const Windows windows{columns, convolution.side, convolution.stride};
  const Var y = linear(unfold(x, windows), tape.parameter(*convolution.weight), Var());
  return instance_norm(y, tape.parameter(*convolution.scale), tape.parameter(*convolution.shift));
}

Var Pyramid::operator()(Var x) const {
  const std::int64_t batch = x.size(0), missing = rows_ * columns_ - x.size(1);
  if (missing > 0) {
    const Tensor zeros = zeros_like(x.value(), {batch, missing, width_});
    x = concat({x, x.tape().constant(zeros)}, 1);
  }
  std::int64_t columns = columns_;
  for (const Block& block : blocks_) {
    const std::int64_t next = Windows{columns, 3, block.first.stride}.along(columns);
    const Var inner = relu(apply(block.first, x, columns));  // [B, M, E]
    const Var mixed = apply(block.second, inner, next);      // [B, M, E]
    const Var kept = block.shortcut ? apply(*block.shortcut, x, columns) : x;
    x = relu(kept + mixed);
    columns = next;
  }
  return mean(x, 1);  // [B, E]
}

}  // namespace skytape::nn
