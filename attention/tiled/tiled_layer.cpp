#include "attention/tiled/tiled_layer.hpp"

#include <utility>
#include <vector>

#include "attention/call.hpp"
#include "autograd/ops.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/operand.hpp"
#include "tensor/projection/heads.hpp"

namespace skytape::attention {

bool serves_layer(const Tensor& x, const Tensor& weight, std::int64_t heads,
                  const TiledOptions& options) {
  if (tensor::operand_type(x, weight) != DType::bf16) return false;
  const std::int64_t d = weight.size(0) / heads;
  return options.score == Score::softmax && !options.mask_queries &&
         !options.dropout.keep.defined() && d <= kTensorCoreWidth && d % 4 == 0;
}

namespace {

/// The tensors that backward reads.
struct Saved {
  TiledPlan plan;
  Tensor x;                // [B N, E], bf16
  std::vector<Tensor> in;  // three of [H D, E]
  Tensor out_weight;       // [E, H D]
  Tensor mask;             // [B, N]
  Dropout dropout;
  SavedTiles tiles;
};

// With all projections side by side, W [3 H D, E]: R = x Wᵀ, A = attend(R + b), and
//   do = drop(dy)         dW_out = doᵀ A      db_out = sum of do's rows      dA = do W_out
//   dR by the tiles       dW = dRᵀ x          db = sum of dR's rows          dx = dR W
void backward(const Saved& s, const Tensor& dy, Grads& g) {
  constexpr DType kType = DType::bf16;
  const auto [rows, sums] = tensor::operand_and_sums(dy, kType, s.dropout);  // [B N, E], [E]
  const Tensor dout = tensor::matmul(rows, tensor::as_operand(s.out_weight, kType), Op::none,
                                     Op::none, kType);  // [B N, H D]
  const std::int64_t of_part = dout.size(1);
  Tensor drows = Tensor::empty({dout.size(0), 3 * of_part}, kType, Device::cuda);
  on_cuda([&](auto tag) { tiled_layer_backward_on(tag, s.plan, s.tiles, s.mask, dout, drows); });

  const Tensor all = tensor::as_operand(tensor::stack_weights(s.in), kType);  // [3 H D, E]
  const Tensor dall = tensor::matmul(drows, s.x, Op::transpose, Op::none)
                          .reshape({3, of_part, s.x.size(1)});               // [3, H D, E]
  const Tensor dbiases = tensor::operand_sums(drows).reshape({3, of_part});  // [3, H D]
  g.add(0, dy);
  g.add(1, tensor::matmul(drows, all).reshape(dy.shape()));
  for (int p = 0; p < 3; ++p) {
    g.add(2 + 2 * p, dall[p]);
    g.add(3 + 2 * p, dbiases[p]);
  }
  g.add(8, tensor::matmul(rows, s.tiles.out, Op::transpose, Op::none));
  g.add(9, sums);
}

}  // namespace

Var tiled_layer(Var residual, Var x, const LayerVars& w, std::int64_t heads, const Tensor& mask,
                const TiledOptions& options, const Dropout& dropout) {
  constexpr const char* kOp = "attention_layer";
  const Tensor& tokens = x.value();  // [B, N, E]
  const Tensor& first = w.in[0].value();
  require_same_kind(kOp, {&residual.value(), &tokens, &first, &mask});
  ENSURE(tokens.rank() == 3 && heads > 0 && serves_layer(tokens, first, heads, options), kOp,
         ": does not serve x ", tokens, " with weights ", first, " of ", heads, " heads");
  const std::int64_t b = tokens.size(0), n = tokens.size(1), all = first.size(0);
  ENSURE(mask.shape() == Shape({b, n}), kOp, ": expected mask [B, N] for x ", tokens, ", got ",
         mask);
  ENSURE(residual.value().shape() == Shape({b, n, w.out.value().size(0)}) &&
             w.out.value().size(1) == all,
         kOp, ": expected a residual [B, N, E] and a weight [E, H D], got ", residual.value(),
         " and ", w.out.value());

  Saved s{tiled_plan(kOp, {b, heads, n, all / heads}, n, options, Device::cuda),
          tensor::as_operand(tokens, DType::bf16).reshape({b * n, tokens.size(2)}),
          {},
          w.out.value(),
          mask,
          dropout,
          {}};
  std::vector<Var> inputs = {residual, x};
  std::vector<Tensor> biases;  // three of [H D]
  for (std::size_t p = 0; p < 3; ++p) {
    const Tensor &weight = w.in[p].value(), &bias = w.in_biases[p].value();
    require_same_kind(kOp, {&tokens, &weight, &bias});
    ENSURE(weight.shape() == first.shape() && bias.shape() == Shape{all}, kOp,
           ": expected three weights of one shape [H D, E] and biases [H D], got ", weight, " and ",
           bias, " beside ", first);
    inputs.insert(inputs.end(), {w.in[p], w.in_biases[p]});
    s.in.push_back(weight);
    biases.push_back(bias);
  }
  inputs.insert(inputs.end(), {w.out, w.out_bias});

  const Tensor stacked = tensor::as_operand(tensor::stack_weights(s.in), DType::bf16);
  const Tensor rows = tensor::matmul(s.x, stacked, Op::none, Op::transpose);  // [B N, 3 H D], f32
  s.tiles.out = Tensor::empty({b * n, all}, DType::bf16, Device::cuda);
  s.tiles.lse = empty_like(tokens, {b, heads, n});
  s.tiles.kept = kept_decisions(s.plan, DType::f32, Device::cuda);
  on_cuda([&](auto tag) { tiled_layer_forward_on(tag, s.plan, rows, biases, mask, s.tiles); });
  const Tensor y =
      tensor::add_linear(residual.value(), s.tiles.out, w.out.value(), w.out_bias.value(), dropout);
  return x.tape().record(kOp, inputs, y,
                         [s = std::move(s)](const Tensor& dy, Grads& g) { backward(s, dy, g); });
}

}  // namespace skytape::attention
