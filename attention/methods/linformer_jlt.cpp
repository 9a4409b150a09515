// Unreduced Johnson-Lindenstrauss attention: the step of Linformer's proof (Wang et al. 2020,
// theorem 1) that the Skeinformer paper studies by itself (Chen et al., NAACL 2022).
//
// The attention matrix P is multiplied by S S^T, S a random N x d matrix with entries N(0, 1/d),
// whose mean is the identity: O = (P S)(S^T V). Read from the right, values are sketched and spread
// out again before plain softmax attention meets them, so no N x N or N x d array is formed beyond
// S. It saves no time, but shows what a sketch of the values alone costs in accuracy.
//
//   time     forward 2 N^2 D + 2 N d D multiply-adds per head, backward 5 N^2 D + 2 N d D
//   memory   O(N D) per head, N d for S; saved: S, sketched values, out, one log-sum-exp per row
//
// Choices where the papers are silent: S is shared by batch and heads, drawn anew at every call
// (fixed = 1: once, kept in the checkpoint), never trained, and there is no dropout. A sequence
// without real tokens gives zero output and zero gradients.
//
// Shapes: B batch, H heads, N queries and keys, D head width, d columns of the sketch (features).
#include <cmath>

#include "attention/registry.hpp"
#include "attention/tiled/tiled.hpp"
#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"

namespace skytape::attention {
namespace {

struct Config {
  std::int64_t features = 128;  // d; LRA: Skeinformer's paper 256
  bool fixed = false;           // LRA: 0

  std::vector<Option> options() {
    return {Option::integer("features", features, 1, 65536, "columns of the sketch S"),
            Option::flag("fixed", fixed, "draw S once, instead of at every call")};
  }
};

class LinformerJlt final : public Method {
 public:
  LinformerJlt(const LayerContext& context, const Config& config) : config_(config) {
    if (!config.fixed) return;
    sketch_ = &context.store->add(context.prefix + "S", {context.nominal_length, config.features},
                                  normal_init(deviation()), false);
  }

  /// Entry (i, c) has the number i d + c: trimming a batch leaves the rows of S as they are.
  Draws draw(const Inputs& in, const Call& call) const override {
    Draws draws;
    if (sketch_ != nullptr) return draws;
    const Tensor normal =
        tensor::normal({in.q.size(2), config_.features}, call.random, in.q.dtype(), in.q.device());
    draws.set("S", tensor::affine(normal, deviation()));
    return draws;
  }

  // ---- reference -------------------------------------------------------------------------------
  Var reference(const InputVars& in, const Tensor& mask, const Draws& draws,
                const Call&) const override {
    const Var q = in.q, k = in.k, v = in.v;
    const Var s = q.tape().constant(sketch(draws, q.size(2)));  // [N, d]
    const Var scores = affine(matmul(q, k, Op::none, Op::transpose), score_scale(q.value()));
    const Var p = softmax(scores + q.tape().constant(key_bias(mask)));     // [B, H, N, N]
    const Var y = matmul(s, mask_rows(v, mask), Op::transpose, Op::none);  // [B, H, d, D]
    return matmul(matmul(p, s), y);
  }

  // ---- derivation ------------------------------------------------------------------------------
  // m is the mask as a column that multiplies rows, G = dout.
  //   U = S S^T (m V)                                                        (1)
  //   O = softmax(Q K^T / sqrt(D) + log mask_key) U                          (2)
  //   dQ, dK, dU   as in softmax attention with values U                     from (2)
  //   dV = m S S^T dU                                                        from (1)
  // S is drawn: a constant.

  struct Saved {
    Inputs in;            // q, k: [B, H, N, D]; v: U; mask: [B, N]
    Tensor s;             // [N, d]
    TiledForward result;  // out: [B, H, N, D], lse: [B, H, N]
  };

  Result forward(const Inputs& in, const Draws& draws, const Call&) const override {
    Saved saved;
    saved.s = sketch(draws, in.q.size(2));
    const Tensor u = sketched(saved.s, tensor::mask_rows(in.v, in.mask));  // (1)
    saved.in = {in.q, in.k, u, in.mask};
    saved.result = tiled_forward(in.q, in.k, u, in.mask, softmax_scores(in.q));  // (2)
    const Tensor out = saved.result.out;                                         // [B, H, N, D]
    return {out, [saved = std::move(saved)](const Tensor& dout) { return backward(saved, dout); }};
  }

  static Gradients backward(const Saved& s, const Tensor& dout) {
    const TiledBackward d = tiled_backward(s.in.q, s.in.k, s.in.v, s.in.mask,
                                           softmax_scores(s.in.q), s.result, dout);  // (2)
    const Tensor dv = tensor::mask_rows(sketched(s.s, d.dv), s.in.mask);             // (1)
    return {d.dq, d.dk, dv, {}};
  }

 private:
  [[nodiscard]] double deviation() const {
    return 1 / std::sqrt(static_cast<double>(config_.features));
  }

  /// The first N rows of S, injected, drawn or fixed: [N, d].
  [[nodiscard]] Tensor sketch(const Draws& draws, std::int64_t n) const {
    const Tensor* drawn = draws.find("S");
    const Tensor& s = drawn != nullptr || sketch_ == nullptr ? draws.get("S") : sketch_->value;
    ENSURE(s.rank() == 2 && s.size(0) >= n, "linformer_jlt: expected S of at least ", n,
           " rows [N, features], got ", s);
    return s.slice(0, n);
  }

  /// S S^T x: [B, H, N, D].
  [[nodiscard]] static Tensor sketched(const Tensor& s, const Tensor& x) {
    return tensor::matmul(s, tensor::matmul(s, x, Op::transpose));
  }

  Config config_;
  Parameter* sketch_ = nullptr;  // [nominal N, d] if S is fixed
};

/// S = identity: the sketch loses nothing.
Draws identity_sketch(const Inputs& in) {
  const std::int64_t n = in.q.size(2);
  std::vector<double> identity(static_cast<std::size_t>(n * n));
  for (std::int64_t i = 0; i < n; ++i) identity[static_cast<std::size_t>(i * (n + 1))] = 1;
  Draws draws;
  draws.set("S", Tensor::from(identity, {n, n}, in.q.dtype(), in.q.device()));
  return draws;
}

/// Softmax attention, and S S^T once each way.
Cost cost_at(const CostSizes& s) {
  const double all = s.n * s.n * s.width, sketch = 2 * s.n * s.features * s.width;
  return {2 * all + sketch, 5 * all + sketch};
}

}  // namespace

Spec linformer_jlt_spec() {
  Spec spec;
  spec.name = "linformer_jlt";
  spec.paper = "Linformer (Wang et al. 2020), theorem 1; Skeinformer (Chen et al. 2022)";
  spec.idea = "softmax attention on values sketched by a random matrix";
  spec.cost = "2 N^2 D + 2 N d D";
  spec.cost_at = cost_at;
  spec.memory = "N D, N d for the sketch";
  spec.random = true;
  spec.exact = {{"S = identity", "softmax", {}, identity_sketch}};
  spec.samples = {{}, {{"features", "12"}}, {{"features", "12"}, {"fixed", "1"}}};
  return register_method<LinformerJlt, Config>(std::move(spec));
}

}  // namespace skytape::attention
