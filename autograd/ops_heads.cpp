#include "autograd/ops_heads.hpp"

#include <memory>

#include "autograd/ops.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/projection/heads.hpp"

namespace skytape {

std::vector<Var> project_heads(Var x, std::span<const Projection> projections, std::int64_t heads) {
  if (x.value().device() == Device::cuda) return project_heads_at_once(x, projections, heads);
  std::vector<Var> by_head;  // [B, H, N, D]
  for (const Projection& p : projections) {
    const Var y = linear(x, p.weight, p.bias);  // [B, N, H D]
    by_head.push_back(swap_middle(reshape(y, {x.size(0), x.size(1), heads, y.size(2) / heads})));
  }
  return by_head;
}

namespace {

/// What backward reads of the node and of its parts, which leave their gradients here.
struct SavedHeads {
  Tensor x;                     // [B, N, E]
  std::vector<Tensor> weights;  // P of [H D, E]
  std::vector<Tensor> dy;       // P of [B, H, N, D]; undefined: zero
};

// With all projections side by side, W [P H D, E] and y [B N, P H D]: dx = dy W, dW = dyᵀ x, and db
// is the sum of dy's rows.
void backward_at_once(const SavedHeads& saved, Grads& g) {
  const auto [dy, sums] = tensor::gather_heads(saved.dy);  // [B N, P H D], [P H D]
  if (g.needs(0)) {
    const Tensor dx = tensor::matmul(dy, tensor::stack_weights(saved.weights));  // [B N, E]
    g.add(0, dx.reshape(saved.x.shape()));
  }
  const std::int64_t e = saved.x.size(2), parts = std::ssize(saved.weights);
  const std::int64_t out = saved.weights[0].size(0);  // H D
  Tensor dw;                                          // [P H D, E]
  for (std::int64_t p = 0; p < parts; ++p) {
    const int weight = static_cast<int>(1 + 2 * p), bias = weight + 1;  // as inputs of the node
    if (g.needs(weight)) {
      if (!dw.defined()) {
        const Tensor rows = saved.x.reshape({dy.size(0), e});
        dw = tensor::matmul(dy, rows, Op::transpose, Op::none);
      }
      g.add(weight, dw.slice(p * out, (p + 1) * out));
    }
    if (g.needs(bias)) g.add(bias, sums.slice(p * out, (p + 1) * out));
  }
}

}  // namespace

// A node has one output. The projections hang on a node that holds nothing, [0], and whose turn in
// backward comes when all of theirs are over.
std::vector<Var> project_heads_at_once(Var x, std::span<const Projection> projections,
                                       std::int64_t heads) {
  const auto saved = std::make_shared<SavedHeads>();
  saved->x = x.value();
  saved->dy.resize(projections.size());
  std::vector<Var> inputs = {x};
  std::vector<Tensor> biases;  // P of [H D] or undefined
  for (const auto& [weight, bias] : projections) {
    inputs.insert(inputs.end(), {weight, bias});
    saved->weights.push_back(weight.value());
    biases.push_back(bias.defined() ? bias.value() : Tensor());
  }
  const Tensor y = tensor::project_heads(saved->x, saved->weights, biases, heads);

  const Tensor nothing = Tensor::empty({0}, y.dtype(), y.device());
  const Var all =
      x.tape().record("project_heads", inputs, nothing,
                      [saved](const Tensor&, Grads& g) { backward_at_once(*saved, g); });
  std::vector<Var> by_head;  // [B, H, N, D]
  for (std::size_t p = 0; p < projections.size(); ++p) {
    by_head.push_back(record("project_heads", {all}, y[static_cast<std::int64_t>(p)],
                             [saved, p, nothing](const Tensor& dy, Grads& g) {
                               saved->dy[p] = dy;
                               g.add(0, nothing);  // its turn comes
                             }));
  }
  return by_head;
}

}  // namespace skytape
