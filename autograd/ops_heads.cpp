#include "autograd/ops_heads.hpp"

#include <utility>

#include "autograd/ops.hpp"
#include "tensor/gemm/operand.hpp"
#include "tensor/projection/heads.hpp"
#include "tensor/projection/merge_heads.hpp"

namespace skytape {

namespace {

/// The tensors that backward reads.
struct SavedHeads {
  Tensor x;                     // [B, N, E], as an operand
  std::vector<Tensor> weights;  // P of [H D, E]
  Tensor sums;                  // [B, N, 1] or undefined, and then
  std::vector<Tensor> biases;   // P of [H D]
};

/// dy: P of [B, H, N, D]; undefined: zero.
void backward(const SavedHeads& saved, std::span<const Tensor> dy, Grads& g) {
  auto d = tensor::project_heads_backward(saved.x, saved.weights, dy);
  if (saved.sums.defined()) {
    const auto of_biases = tensor::add_biases_backward(saved.sums, saved.biases, dy);
    d.dbiases = of_biases.dbiases;
    g.add(static_cast<int>(1 + 2 * saved.weights.size()), of_biases.dsums);
  }
  g.add(0, d.dx);
  for (std::int64_t p = 0; p < std::ssize(saved.weights); ++p) {
    const int weight = static_cast<int>(1 + 2 * p), bias = weight + 1;  // as inputs of the node
    g.add(weight, d.dweights[p]);
    if (g.needs(bias)) g.add(bias, d.dbiases[p]);
  }
}

}  // namespace

std::vector<Var> project_heads(Var x, std::span<const Projection> projections, std::int64_t heads,
                               Var sums) {
  SavedHeads saved;
  std::vector<Var> inputs = {x};
  std::vector<Tensor> biases;  // P of [H D] or undefined
  for (const auto& [weight, bias] : projections) {
    inputs.insert(inputs.end(), {weight, bias});
    saved.weights.push_back(weight.value());
    biases.push_back(bias.defined() ? bias.value() : Tensor());
  }
  saved.x = x.value();
  if (!saved.weights.empty()) {
    require_same_kind("project_heads", {&saved.x, &saved.weights[0]});
    saved.x = tensor::as_operand(saved.x, tensor::operand_type(saved.x, saved.weights[0]));
  }
  if (sums.defined()) {
    require_same_kind("project_heads", {&x.value(), &sums.value()});
    inputs.push_back(sums);
    saved.sums = sums.value();
    saved.biases = std::exchange(biases, std::vector<Tensor>(biases.size()));
  }
  Tensor y = tensor::project_heads(saved.x, saved.weights, biases, heads);
  if (sums.defined()) tensor::add_biases(y, saved.sums, saved.biases);

  std::vector<Tensor> by_head;  // [B, H, N, D]
  for (std::int64_t p = 0; p < y.size(0); ++p) by_head.push_back(y[p]);
  return x.tape().record_several(
      "project_heads", inputs, by_head,
      [saved = std::move(saved)](std::span<const Tensor> dy, Grads& g) { backward(saved, dy, g); });
}

Var merge_heads(Var x, Var a, Var weight, Var bias, const Dropout& dropout) {
  const Tensor heads = a.value(), w = weight.value();
  return record("merge_heads", {x, a, weight, bias},
                tensor::merge_heads(x.value(), heads, w, bias.value(), dropout),
                [heads, w, dropout](const Tensor& dy, Grads& g) {
                  g.add(0, dy);
                  const auto d = tensor::merge_heads_backward(heads, w, dropout, dy);
                  g.add(1, d.da);
                  g.add(2, d.dweight);
                  g.add(3, d.dbias);
                });
}

}  // namespace skytape
