// Standard softmax attention (Vaswani et al. 2017), computed in tiles.
//
// Every query takes the mean of all values, weighted by how well its key matches. The weights of
// all pairs are never stored: a tile of them at a time is made, used and forgotten, with the row
// sums kept in running form (Milakov and Gimelshein 2018; Dao et al. 2022).
//
//   time     forward 2 N^2 D multiply-adds per head, backward 5 N^2 D (one product is repeated)
//   memory   O(N D); saved: out and one log-sum-exp per row; on a GPU also dropout's bit a pair,
//            where these take no more than q, k, v and out
//
// Deviation from the papers' code: padded keys get a score of -inf instead of -1e6, which is the
// same whenever a sequence has a real token and safe for any size of scores. A sequence without
// real tokens gives zero output and zero gradients (there: the softmax without a mask).
//
// Shapes: B batch, H heads, N queries and keys, D head width.
#include "attention/registry.hpp"
#include "attention/tiled/tiled.hpp"
#include "autograd/ops.hpp"

#include <cmath>

namespace skytape::attention {
namespace {

struct Config {
  double attention_dropout = 0.1;  // share of weights dropped in training; LRA: 0.1, ablation 0

  std::vector<Option> options() {
    return {Option::real("attention_dropout", attention_dropout, 0, 0.99,
                         "share of attention weights dropped in training")};
  }
};

class Softmax final : public Method {
 public:
  Softmax(const LayerContext& context, const Config& config)
      : config_(config), nominal_length_(context.nominal_length) {}

  // ---- reference -------------------------------------------------------------------------------
  Var reference(const InputVars& in, const Tensor& mask, const Draws& draws,
                const Call& call) const override {
    const Var q = in.q, k = in.k, v = in.v;
    const Var scores = affine(matmul(q, k, Op::none, Op::transpose), score_scale(q.value()));
    const Var p = softmax(scores + q.tape().constant(key_bias(mask)));  // [B, H, N, N]
    return matmul(drop_weights(p, dropout(draws, call)), v);
  }

  // ---- derivation ------------------------------------------------------------------------------
  // c_ij are the dropout factors, G = dout.
  //   S  = Q K^T / sqrt(D) + log mask_key,  P = softmax(S)        (1)
  //   O  = (P c) V                                                (2)
  //   dV = (P c)^T G,         dP = (G V^T) c                      from (2)
  //   dS = P (dP - row_sum(P dP)),  row_sum(P dP) = row_sum(G O)   from (1)
  //   dQ = dS K / sqrt(D),    dK = dS^T Q / sqrt(D)               from (1)
  // All of it happens in the tiles (tiled.cpp), forward and backward.
  // Saved: q, k, v: [B, H, N, D], mask: [B, N], out: [B, H, N, D], lse: [B, H, N], and where
  // dropout comes from, whose factors are made again; on a GPU a bit a pair.

  Result forward(const Inputs& in, const Draws& draws, const Call& call) const override {
    return tiled_attention(in, {Score::softmax, score_scale(in.q), dropout(draws, call)});
  }

  [[nodiscard]] std::optional<TiledOptions> exact_attention(std::int64_t head_width,
                                                            const Call& call) const override {
    return TiledOptions{Score::softmax, 1 / std::sqrt(static_cast<double>(head_width)),
                        dropout({}, call)};
  }

 private:
  [[nodiscard]] WeightDropout dropout(const Draws& draws, const Call& call) const {
    return weight_dropout(config_.attention_dropout, nominal_length_, draws, call);
  }

  Config config_;
  std::int64_t nominal_length_;
};

/// Forward two products, backward five: one of them makes the weights again.
Cost cost_at(const CostSizes& s) { return {2 * s.n * s.n * s.width, 5 * s.n * s.n * s.width}; }

}  // namespace

Spec softmax_spec() {
  Spec spec;
  spec.name = "softmax";
  spec.paper = "Vaswani et al. 2017, eq. 1";
  spec.idea = "mean of all values, weighted by exp(q.k)";
  spec.cost = "2 N^2 D";
  spec.memory = "N per head (log-sum-exp of rows)";
  spec.approximates = "";
  spec.cost_at = cost_at;
  spec.paper_cost = [](const CostSizes& s) { return 2 * s.n * s.n * s.width; };
  spec.random = true;
  spec.samples = {{}, {{"attention_dropout", "0"}}, {{"attention_dropout", "0.5"}}};
  return register_method<Softmax, Config>(std::move(spec));
}

}  // namespace skytape::attention
