// cosFormer (Qin et al., ICLR 2022), not causal: linear attention with relu features,
// whose weights are multiplied by the cosine of the distance of query and key,
//     w_ij = relu(q_i).relu(k_j) cos(pi (i - j) / (2 M)),
// so that near keys count more. Since cos(a - b) = cos a cos b + sin a sin b, this is a scalar
// product of features twice as wide, and the sums over keys are formed once for all queries.
//
//   time     forward 4 N D^2 multiply-adds per head, backward 8 N D^2
//   memory   O(N D + D^2); saved: out, the sums over keys and one normaliser per row; features are
//            made again in tiles wherever they are needed
//
// Deviations and choices:
//   - M: the paper says at least N; we take the nominal length, as its code does for a padded
//     batch. (That code counts positions from 1, we from 0; only differences matter.)
//   - A row's normaliser is raised to epsilon if it is smaller, as in the code; the paper has no
//     such floor, but a query without any positive entry has all weights zero. It then gives zero,
//     and the floor is a constant to the derivative.
//   - activation = elu takes elu(x) + 1 in place of relu, the code's other choice.
//   - Queries and keys are not scaled, as in paper and code. The code applies no dropout either: it
//     never uses its dropout_rate.
//   - A padded key has no features. A sequence without real tokens gives zero output and zero
//     gradients.
//
// Shapes: B batch, H heads, N queries and keys, D head width, R = 2 D features.
#include <cmath>
#include <numbers>

#include "attention/linear/linear.hpp"
#include "attention/registry.hpp"
#include "autograd/ops.hpp"

namespace skytape::attention {
namespace {

struct Config {
  std::string activation = "relu";  // LRA: relu
  double epsilon = 1e-6;            // LRA: 1e-6

  std::vector<Option> options() {
    return {Option::choice("activation", activation, {"relu", "elu"},
                           "relu(x), or elu(x) + 1, of queries and keys"),
            Option::real("epsilon", epsilon, 1e-12, 1, "least normaliser of a row")};
  }
};

class Cosformer final : public Method {
 public:
  Cosformer(const LayerContext& context, const Config& config)
      : epsilon_(config.epsilon),
        activation_(config.activation == "relu" ? Activation::relu : Activation::elu),
        turn_(std::numbers::pi / (2 * static_cast<double>(context.nominal_length))) {}

  // ---- reference -------------------------------------------------------------------------------
  // The definition above, with the N x N matrix of weights.
  Var reference(const InputVars& in, const Tensor& mask, const Draws&, const Call&) const override {
    const auto f = [&](Var x) {
      return activation_ == Activation::relu ? relu(x) : relu(x) + exp(x - relu(x));
    };
    const std::int64_t n = in.q.size(2);
    std::vector<double> cosines;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        cosines.push_back(std::cos(turn_ * static_cast<double>(i - j)));
      }
    }
    const Tensor near = Tensor::from(cosines, {1, 1, n, n}, mask.dtype(), mask.device());
    Tape& tape = in.q.tape();
    const Var products = matmul(f(in.q), mask_rows(f(in.k), mask), Op::none, Op::transpose);
    const Var weights = products * tape.constant(near);  // [B, H, N, N]
    const Var above = relu(affine(sum(weights, 3, true), 1, -epsilon_));
    return matmul(weights, in.v) / affine(above, 1, epsilon_);
  }

  // ---- derivation ------------------------------------------------------------------------------
  // m is the mask as a column that multiplies rows, eps epsilon, f the activation, c and s columns
  // with the cosines and sines of pi i / (2 M), G = dout, 1 a column of ones.
  //   A = [c f(Q), s f(Q)]   C = m [c f(K), s f(K)]                                    (1)
  //   T = [V, 1]^T C                                                                   (2)
  //   S = A T^T   z = max(S[:, D], eps)   O = S[:, :D] / z                             (3)
  //
  //   (3)  dS = [G / z, -row_sum(G O) / z], its last entry 0 where z = eps
  //        dA = dS T            dT = dS^T A
  //   (2)  dC = [V, 1] dT       dV = C dT[:D]^T
  //   (1)  dQ = f'(Q) (c dA[:, :D] + s dA[:, D:])       dK likewise from m dC
  // All of it happens in tiles of rows (linear_cpu.cpp), forward and backward.
  // Saved: q, k, v: [B, H, N, D], mask: [B, N], O: [B, H, N, D], T: [B, H, D + 1, R], z: [B, H, N].

  Result forward(const Inputs& in, const Draws&, const Call&) const override {
    return attention::linear_attention(
        in, {.activation = activation_, .turn = turn_, .least = epsilon_});
  }

 private:
  double epsilon_;
  Activation activation_;
  double turn_;  // pi / (2 M)
};

/// As linear_attention's, with twice as many features.
Cost cost_at(const CostSizes& s) {
  const double one = 2 * s.n * s.width * s.width, with_normaliser = one + 2 * s.n * s.width;
  return {one + with_normaliser, 2 * one + 2 * with_normaliser};
}

}  // namespace

Spec cosformer_spec() {
  Spec spec;
  spec.name = "cosformer";
  spec.paper = "cosFormer (Qin et al. 2022)";
  spec.idea = "relu features, near keys weighted more by a cosine of the distance";
  spec.cost = "4 N D^2";
  spec.cost_at = cost_at;
  spec.memory = "2 D^2, N per head (normalisers)";
  spec.samples = {{}, {{"activation", "elu"}}, {{"epsilon", "0.3"}}};
  return register_method<Cosformer, Config>(std::move(spec));
}

}  // namespace skytape::attention
