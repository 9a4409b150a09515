// Kernelized attention: a Gaussian kernel instead of softmax (Skyformer, Chen et al. 2021,
// sec. 4.1).
//
// The weight of a pair is exp(-|q~ - k~|^2 / 2), without any normalisation, so the matrix of
// weights is a kernel matrix: Skyformer approximates this one. Computed in tiles, never stored; as
// rows are not normalised, one pass over the keys suffices.
//
//   time     forward 2 N^2 D multiply-adds per head, backward 5 N^2 D (one product is repeated)
//   memory   O(N D); saved: out; on a GPU also dropout's bit a pair, where these take no more than
//            q, k, v and out
//
// As the papers' code, and unlike the paper, which mentions neither: padded keys are masked, and
// weights are dropped in training. Row sums range from 0 to N, and the output with them.
//
// Shapes: B batch, H heads, N queries and keys, D head width.
#include "attention/registry.hpp"
#include "attention/tiled/tiled.hpp"
#include "autograd/ops.hpp"
#include "tensor/kernels/elementwise.hpp"

#include <cmath>

namespace skytape::attention {
namespace {

struct Config {
  double attention_dropout = 0.1;  // share of weights dropped in training; LRA: 0.1
  double scale = 0;                // s of q~ = s q; 0: D^(-1/4). LRA: 32^(-1/4), where D = 32

  std::vector<Option> options() {
    return {
        Option::real("attention_dropout", attention_dropout, 0, 0.99,
                     "share of attention weights dropped in training"),
        Option::real("scale", scale, 0, 1e3, "factor of queries and keys; 0: head width ^ -1/4")};
  }
};

class Kernelized final : public Method {
 public:
  Kernelized(const LayerContext& context, const Config& config)
      : config_(config), nominal_length_(context.nominal_length) {}

  // ---- reference -------------------------------------------------------------------------------
  Var reference(const InputVars& in, const Tensor& mask, const Draws& draws,
                const Call& call) const override {
    const Var q = in.q, k = in.k, v = in.v;
    const std::int64_t n = q.size(2);
    const double s = std::sqrt(squared_scale(q.size(3)));
    const Var x = mask_rows(q, mask, s);                              // [B, H, N, D]
    const Var y = mask_rows(k, mask, s);                              // [B, H, N, D]
    const Var xx = affine(sum(square(x), 3, true), -0.5);             // [B, H, N, 1]
    const Var yy = transpose(affine(sum(square(y), 3, true), -0.5));  // [B, H, 1, N]
    const Var c = exp(matmul(x, y, Op::none, Op::transpose) + xx + yy) *
                  q.tape().constant(mask.reshape({mask.size(0), 1, 1, n}));  // [B, H, N, N]
    return matmul(drop_weights(c, dropout(draws, call)), v);
  }

  // ---- derivation ------------------------------------------------------------------------------
  // m is the mask as a column that multiplies rows, f_ij are the dropout factors, G = dout.
  //   X    = m Q                                              (1)
  //   C_ij = mask_j exp(-s^2 |x_i - k_j|^2 / 2)               (2)
  //   O    = (C f) V                                          (3)
  //   dV   = (C f)^T G,   E = ((G V^T) f) C                   from (3)
  //   dX   = s^2 (E K - row_sum(E) X)                         from (2)
  //   dK   = s^2 (E^T X - column_sum(E) K)                    from (2)
  //   dQ   = m dX                                             from (1)
  // All of it happens in the tiles (tiled.cpp), forward and backward. K needs no mask of its own: a
  // padded key's column of C, and with it its gradient, is zero.
  // Saved: q, k, v: [B, H, N, D], mask: [B, N], out: [B, H, N, D], and where dropout comes from,
  // whose factors are made again; on a GPU a bit a pair.

  Result forward(const Inputs& in, const Draws& draws, const Call& call) const override {
    const double scale = squared_scale(in.q.size(3));
    return tiled_attention(in, {Score::gaussian, scale, dropout(draws, call), true});
  }

 private:
  [[nodiscard]] WeightDropout dropout(const Draws& draws, const Call& call) const {
    return weight_dropout(config_.attention_dropout, nominal_length_, draws, call);
  }
  /// s^2, the factor of squared distances.
  [[nodiscard]] double squared_scale(std::int64_t head_width) const {
    if (config_.scale > 0) return config_.scale * config_.scale;
    return 1 / std::sqrt(static_cast<double>(head_width));
  }

  Config config_;
  std::int64_t nominal_length_;
};

/// Forward two products, backward five: one of them makes the weights again.
Cost cost_at(const CostSizes& s) { return {2 * s.n * s.n * s.width, 5 * s.n * s.n * s.width}; }

}  // namespace

Spec kernelized_spec() {
  Spec spec;
  spec.name = "kernelized";
  spec.paper = "Skyformer (Chen et al. 2021), eq. 3";
  spec.idea = "Gaussian kernel of queries and keys, not normalised";
  spec.cost = "2 N^2 D";
  spec.memory = "none";
  spec.approximates = "";
  spec.cost_at = cost_at;
  spec.random = true;
  spec.samples = {
      {}, {{"attention_dropout", "0"}}, {{"attention_dropout", "0.3"}, {"scale", "0.8"}}};
  return register_method<Kernelized, Config>(std::move(spec));
}

}  // namespace skytape::attention
