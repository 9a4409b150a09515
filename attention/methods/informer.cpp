// Informer's ProbSparse attention (Zhou et al., AAAI 2021), without and with a padding mask, as the
// Skyformer and Skeinformer papers ran it.
//
// Most queries attend to all keys almost alike; their output is the mean of the values. The few for
// which a measure, taken on sampled keys, says otherwise get full softmax attention.
//
//   informer        ignores the mask: padded keys and values take part
//   informer_mask   queries, keys and values of padding are zero; padded keys have no weight
//
//   time     forward N S D + 2 T N D multiply-adds per head (S sampled keys a query, T chosen
//            rows), backward 5 T N D
//   memory   saved: chosen rows and their outputs, in informer_mask masked inputs; while rows are
//            chosen, N S numbers for the sample of all heads
//
// Choices and deviations:
//   - The largest sampled score is compared with the sum of sampled scores over N, not over S, and
//     without 1/sqrt(D), as in the code. `measure = exact` is the paper's measure instead, over all
//     keys: log sum_j exp(s_ij) - mean_j s_ij, s the scores; it takes quadratic time.
//   - Sizes: a ceil(ln N), a = ceil(c / ln N), for both S and T (informer), or c (informer_mask), c
//     the features; at most N. `samples` and `top` override them. In the Informer authors' own code
//     a is 5 at any length: 35 keys and rows at N = 1,024, where ours are 133.
//   - informer_mask samples floor(m u) among m tokens, hence the first m positions even if the
//     mask has holes, as in the code.
//   - For informer a padded query is one like all others. In informer_mask it is zero: its sampled
//     measure is 0, its exact one log m with m tokens, the smallest possible. It may be chosen; its
//     output is the mean either way. A batch that is trimmed chooses the rows that the padded one
//     would.
//   - The code's attention dropout is never applied; here there is none. In informer_mask a
//     sequence without real tokens gives zero output and zero gradients.
//
// Shapes: B batch, H heads, N queries and keys, D head width, S sampled keys, T chosen rows.
#include <algorithm>
#include <cmath>

#include "attention/registry.hpp"
#include "attention/sampling/require_rows.hpp"
#include "attention/selection/informer_rows.hpp"
#include "attention/tiled/tiled.hpp"
#include "autograd/ops.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/gather.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {
namespace {

struct Config {
  bool masked = false;              // informer_mask
  std::int64_t features = 128;      // c; papers: 128 (Skyformer), 256 (Skeinformer)
  std::int64_t samples = 0;         // S; LRA: 0, by the rule
  std::int64_t top = 0;             // T; LRA: 0, by the rule
  std::string measure = "sampled";  // LRA: sampled

  [[nodiscard]] const char* name() const { return masked ? "informer_mask" : "informer"; }

  std::vector<Option> options() {
    const bool exact = measure == "exact";
    return {
        Option::integer("features", features, 1, 65536, "c, which sizes follow from")
            .idle_if(top > 0 && exact, {"top", "measure"})
            .idle_if(top > 0 && samples > 0, {"samples", "top"}),
        Option::integer("samples", samples, 0, 65536, "sampled keys per query; 0: about `features`")
            .idle_if(exact, {"measure"}),
        Option::integer("top", top, 0, 65536, "queries computed in full; 0: about `features`"),
        Option::choice("measure", measure, {"sampled", "exact"},
                       "what queries are chosen by; exact takes quadratic time")};
  }

  /// S or T: the option, or the papers' rule if it is 0; at most the length.
  [[nodiscard]] std::int64_t size(std::int64_t option, std::int64_t length) const {
    std::int64_t size = option > 0 ? option : features;
    if (option == 0 && !masked && length > 1) {
      const double log_length = std::log(static_cast<double>(length));
      size = static_cast<std::int64_t>(std::ceil(static_cast<double>(features) / log_length) *
                                       std::ceil(log_length));
    }
    return std::min(size, length);
  }
};

class Informer final : public Method {
 public:
  Informer(const LayerContext& context, const Config& config)
      : config_(config), nominal_length_(context.nominal_length) {}

  /// "top": the chosen rows, i32[B, H, T], -1 where unused. "u" (numbers in (0, 1], [N, S]) or
  /// "index_sample" (sampled keys, i32[N, S] or [B, N, S]) may be injected.
  Draws draw(const Inputs& in, const Call& call) const override {
    Draws draws;
    if (const Tensor* given = call.given("top")) {
      require_rows("informer: draws: top", *given, -1, in.q.size(2));
      require_distinct("informer: draws: top", *given);
      return draws;
    }
    const Inputs x = masked(in);
    const std::int64_t n = in.q.size(2), length = full_length(n);
    const bool exact = config_.measure == "exact";
    const Tensor measure =
        exact ? exact_measure(x) : sampled_measure(x.q, x.k, sample(x, call), length);
    // A trimmed query is padding: its exact measure is the smallest one possible.
    const std::int64_t trimmed = exact ? 0 : length - n;
    draws.set("top", choose_rows(measure, config_.size(config_.top, length), trimmed));
    return draws;
  }

  // ---- reference -------------------------------------------------------------------------------
  Var reference(const InputVars& in, const Tensor& mask, const Draws& draws,
                const Call&) const override {
    const Var q = in.q, k = in.k, v = in.v;
    const auto real = [&](Var x) { return config_.masked ? mask_rows(x, mask) : x; };
    Tape& tape = q.tape();
    const ChosenRows rows = chosen_rows(draws.get("top"), q.value());
    const Tensor weights = key_weights(mask);  // [B, N]
    const Var u = real(v);                     // [B, H, N, D]
    const Var scores =
        affine(matmul(real(q), real(k), Op::none, Op::transpose), score_scale(q.value()));
    const Var full = matmul(softmax(scores + tape.constant(key_bias(weights))), u);  // [B, H, N, D]
    const Var mean = sum(u, 2, true) * tape.constant(inverse_count(weights));        // [B, H, 1, D]
    const Var others = tape.constant(rows.others);
    return mean * others + full * affine(others, -1, 1);
  }

  // ---- derivation ------------------------------------------------------------------------------
  // mu is the mask as a column that multiplies rows (informer: ones), J the chosen rows, m the
  // number of real keys (informer: N), G = dout.
  //   X = mu Q   Y = mu K   U = mu V                                       (1)
  //   O_J = softmax(X[J] Y^T / sqrt(D) + log mask_key) U                   (2)
  //   f = (sum of U's rows) / m                                            (3)
  //   O = O_J in rows J, f in all others                                   (4)
  //
  //   (4)  dO_J = G[J]   df = sum of the other rows of G
  //   (3)  dU = 1 df / m
  //   (2)  dX[J], dY, dU by tiled.hpp
  //   (1)  dQ = mu dX   dK = mu dY   dV = mu dU
  // The choice of J is constant to the derivative: nothing flows through the measure.

  struct Saved {
    Inputs in;             // X, Y, U: [B, H, N, D], mask: [B, N]
    Tensor weights;        // [B, N]: of keys, the mask or ones
    Tensor inverse_count;  // [B, 1, 1, 1]: 1 / m
    ChosenRows rows;       // J
    Tensor q;              // [B, H, T, D]: X[J]
    TiledForward tiled;    // out: [B, H, T, D], lse: [B, H, T]
  };

  Result forward(const Inputs& in, const Draws& draws, const Call&) const override {
    Saved s;
    s.in = masked(in);  // (1)
    s.weights = key_weights(in.mask);
    s.inverse_count = inverse_count(s.weights);
    s.rows = chosen_rows(draws.get("top"), in.q);
    s.q = tensor::gather_rows(s.in.q, s.rows.index);  // (2)
    s.tiled = tiled_forward(s.q, s.in.k, s.in.v, s.weights, softmax_scores(s.q));
    const Tensor f =
        tensor::multiply(tensor::sum(s.in.v, 2, true), s.inverse_count);  // (3) [B, H, 1, D]
    Tensor out = tensor::multiply(s.rows.others, f);                      // (4)
    tensor::scatter_add_rows(out, s.rows.index, tensor::multiply(s.tiled.out, s.rows.used));
    return {out, [this, s = std::move(s)](const Tensor& dout) { return backward(s, dout); }};
  }

  Gradients backward(const Saved& s, const Tensor& dout) const {
    const Tensor rows = tensor::multiply(tensor::gather_rows(dout, s.rows.index),  // (4) [B,H,T,D]
                                         s.rows.used);
    const Tensor df = tensor::multiply(  // (4), (3) [B, H, 1, D]
        tensor::matmul(s.rows.others, dout, Op::transpose), s.inverse_count);
    TiledBackward d =
        tiled_backward(s.q, s.in.k, s.in.v, s.weights, softmax_scores(s.q), s.tiled, rows);  // (2)
    Tensor dx = zeros_like(dout);
    tensor::scatter_add_rows(dx, s.rows.index, tensor::multiply(d.dq, s.rows.used));  // (2)
    const Tensor du = tensor::add(d.dv, df);                                          // (2), (3)
    if (!config_.masked) return {dx, d.dk, du, {}};
    return {tensor::mask_rows(dx, s.in.mask),
            tensor::mask_rows(d.dk, s.in.mask),
            tensor::mask_rows(du, s.in.mask),
            {}};  // (1)
  }

 private:
  /// N before trimming.
  [[nodiscard]] std::int64_t full_length(std::int64_t n) const {
    return std::max(nominal_length_, n);
  }

  /// X, Y, U of (1).
  [[nodiscard]] Inputs masked(const Inputs& in) const {
    if (!config_.masked) return in;
    return {tensor::mask_rows(in.q, in.mask), tensor::mask_rows(in.k, in.mask),
            tensor::mask_rows(in.v, in.mask), in.mask};
  }

  /// Returns how often each key counts: [B, N].
  [[nodiscard]] Tensor key_weights(const Tensor& mask) const {
    return config_.masked ? mask : ones_like(mask, mask.shape());
  }

  /// 1 / m, 1 where there is no token: [B, 1, 1, 1].
  [[nodiscard]] static Tensor inverse_count(const Tensor& weights) {
    return tensor::unary(tensor::Unary::reciprocal, tensor::token_counts(weights))
        .reshape({weights.size(0), 1, 1, 1});
  }

  /// Sampled keys: i32[1, N, S] or [B, N, S].
  [[nodiscard]] Tensor sample(const Inputs& in, const Call& call) const {
    const std::int64_t n = in.q.size(2);
    if (const Tensor* given = call.given("index_sample")) {
      require_rows("informer: draws: index_sample", *given, 0, n);
      return given->rank() == 2 ? given->reshape({1, given->size(0), given->size(1)}) : *given;
    }
    const std::int64_t samples = config_.size(config_.samples, full_length(n));
    const Tensor* given = call.given("u");
    const Tensor u = given != nullptr
                         ? *given  // [N, S]
                         : tensor::uniform({n, samples}, call.random, in.q.dtype(), in.q.device());
    const Tensor counts =
        config_.masked ? tensor::sum(in.mask, 1)
                       : Tensor::full({1}, static_cast<double>(n), in.q.dtype(), in.q.device());
    return sampled_keys(u, counts);
  }

  /// log sum_j exp(s_ij) - mean_j s_ij over real keys: [B, H, N].
  [[nodiscard]] Tensor exact_measure(const Inputs& in) const {
    const Tensor weights = key_weights(in.mask);
    const Tensor lse = tiled_forward(in.q, in.k, {}, weights, softmax_scores(in.q)).lse;
    const Tensor key =
        tensor::multiply(tensor::sum(in.k, 2, true), inverse_count(weights));  // [B, H, 1, D]
    const Tensor mean = tensor::matmul(in.q, key, Op::none, Op::transpose);    // [B, H, N, 1]
    return tensor::subtract(lse, tensor::affine(mean, score_scale(in.q)).reshape(lse.shape()));
  }

  Config config_;
  std::int64_t nominal_length_;
};

/// The measure and the chosen rows' attention; backward also a weighted sum of all rows.
Cost cost_at(const Config& config, const CostSizes& s) {
  const auto n = static_cast<std::int64_t>(s.n);
  Config sized = config;
  sized.features = static_cast<std::int64_t>(s.features);
  const double one = static_cast<double>(sized.size(0, n)) * s.n * s.width;  // S = T rows
  return {3 * one, 5 * one + s.n * s.width};
}

Spec spec_of(bool masked, const std::string& idea) {
  Config defaults;
  defaults.masked = masked;
  Spec spec;
  spec.name = defaults.name();
  spec.paper = "Informer (Zhou et al. 2021), eq. 3 and 4";
  spec.idea = idea;
  spec.cost = "N S D + 2 T N D";
  spec.cost_at = [defaults](const CostSizes& s) { return cost_at(defaults, s); };
  spec.paper_cost = [](const CostSizes& s) { return 3 * s.n * s.features * s.width; };
  spec.sequential = "O(log N)";  // the choice of rows
  spec.memory =
      masked ? "3 N D + 2 T D; N S while rows are chosen" : "2 T D; N S while rows are chosen";
  spec.random = true;
  spec.reads_padding = !masked;
  spec.exact = {{"all rows are chosen", "softmax", {{"top", "64"}}, {}}};
  spec.samples = {{},
                  {{"features", "9"}},
                  {{"samples", "5"}, {"top", "30"}},
                  {{"top", "11"}, {"measure", "exact"}}};
  return register_method<Informer>(std::move(spec), defaults);
}

}  // namespace

Spec informer_spec() {
  return spec_of(false, "full attention for outstanding queries, the mean value for the others");
}
Spec informer_mask_spec() { return spec_of(true, "informer among real tokens only"); }

}  // namespace skytape::attention
