// Linear attention (Katharopoulos et al., ICML 2020, eq. 4 to 7), not causal: the weight of query i
// for key j is a scalar product of positive features, phi(q_i).phi(k_j) with phi(x) = elu(x) + 1.
// So the sums over keys are formed once, and every query reads them.
//
//   time     forward 2 N D^2 multiply-adds per head, backward 4 N D^2
//   memory   O(N D + D^2); saved: out, the sums over keys and one normaliser per row; features are
//            made again in tiles wherever they are needed
//
// Deviations and choices:
//   - epsilon is added to the normaliser: the paper has none, its code (fast-transformers) 1e-6,
//     and so have we. It matters only to rows whose weights are that small altogether.
//   - Queries and keys are not scaled, as in paper and code.
//   - A padded key has no features; the arena's code ignores the mask. A sequence without real
//     tokens gives zero output and zero gradients.
//
// Shapes: B batch, H heads, N queries and keys, D head width.
#include "attention/linear/linear.hpp"
#include "attention/registry.hpp"
#include "autograd/ops.hpp"

namespace skytape::attention {
namespace {

struct Config {
  double epsilon = 1e-6;  // LRA: 1e-6

  std::vector<Option> options() {
    return {Option::real("epsilon", epsilon, 0, 1, "added to the normaliser of each row")};
  }
};

class LinearAttention final : public Method {
 public:
  LinearAttention(const LayerContext&, const Config& config) : config_(config) {}

  // ---- reference -------------------------------------------------------------------------------
  // With the N x N matrix of weights.
  Var reference(const InputVars& in, const Tensor& mask, const Draws&, const Call&) const override {
    const auto phi = [](Var x) { return relu(x) + exp(x - relu(x)); };   // elu(x) + 1
    const Var queries = phi(in.q);                                       // [B, H, N, D]
    const Var keys = mask_rows(phi(in.k), mask);                         // [B, H, N, D]
    const Var weights = matmul(queries, keys, Op::none, Op::transpose);  // [B, H, N, N]
    const Var z = affine(sum(weights, 3, true), 1, config_.epsilon);     // [B, H, N, 1]
    return matmul(weights, in.v) / (z + in.v.tape().constant(no_token(mask)));
  }

  // ---- derivation ------------------------------------------------------------------------------
  // m is the mask as a column that multiplies rows, eps epsilon, G = dout, 1 a column of ones.
  //   A = phi(Q)   C = m phi(K)                          phi(x) = elu(x) + 1           (1)
  //   T = [V, 1]^T C                                                                   (2)
  //   S = A T^T   z = S[:, D] + eps   O = S[:, :D] / z                                 (3)
  //
  //   (3)  dS = [G / z, -row_sum(G O) / z]   dA = dS T   dT = dS^T A
  //   (2)  dC = [V, 1] dT               dV = C dT[:D]^T
  //   (1)  dQ = dA phi'(Q)              dK = m dC phi'(K)      phi'(x) = exp(min(x, 0))
  // All of it happens in tiles of rows (linear_cpu.cpp), forward and backward.
  // Saved: q, k, v: [B, H, N, D], mask: [B, N], O: [B, H, N, D], T: [B, H, D + 1, D], z: [B, H, N].

  Result forward(const Inputs& in, const Draws&, const Call&) const override {
    return attention::linear_attention(in,
                                       {.activation = Activation::elu, .added = config_.epsilon});
  }

 private:
  Config config_;
};

/// Sums over keys and what queries read of them, with a column for the normaliser in the second;
/// backward each of them twice.
Cost cost_at(const CostSizes& s) {
  const double one = s.n * s.width * s.width, with_normaliser = s.n * s.width * (s.width + 1);
  return {one + with_normaliser, 2 * one + 2 * with_normaliser};
}

}  // namespace

Spec linear_attention_spec() {
  Spec spec;
  spec.name = "linear_attention";
  spec.paper = "Katharopoulos et al. 2020, eq. 5";
  spec.idea = "features elu + 1, summed over keys before queries read them";
  spec.cost = "2 N D^2";
  spec.cost_at = cost_at;
  spec.memory = "D^2, N per head (normalisers)";
  spec.samples = {{}, {{"epsilon", "0"}}, {{"epsilon", "0.5"}}};
  return register_method<LinearAttention, Config>(std::move(spec));
}

}  // namespace skytape::attention
