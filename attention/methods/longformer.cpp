// Longformer attention (Beltagy et al. 2020, sec. 3): a sliding window for every token, dilated in
// some heads if wished, and a few global tokens that see all and are seen by all.
//
// The first g tokens are global. Every token sees the W / 2 tokens to either side, itself and the
// global ones; a head of dilation d takes every d-th token and reaches d times as far. A global
// token attends to everything through projections of its own.
//
//   time     forward 2 (1.5 W + b) N D multiply-adds per head for windows in blocks of b, backward
//            2.5 times that; global tokens 2 g N E, 4 g N E
//   memory   saved: queries, keys, values, x, out, one log-sum-exp per row, g N weights per head
//
// Global queries are few, so their projections are not done for the keys and values of N tokens:
// q.(W_k x_j) = (W_k^T q).x_j, and sum_j P_j (W_v x_j) = W_v (sum_j P_j x_j). Dilated heads are
// computed in another order of the tokens, where those of a stride stand together.
//
// Deviations and choices:
//   - The paper picks global tokens by task; here they are the first ones, where a CLS token
//     stands.
//   - A bias of the global keys would change no weight, so there is none.
//   - The arena's code puts the window's odd token on the right; here it has W / 2 tokens on either
//     side, as the paper's. W = 512 there; the paper's windows grow with the layer.
//   - The global projections start anew; the paper copies those of the windows from a trained
//     model.
//   - A query that meets no real token gives zero. Padded global tokens are seen by nobody.
//
// Shapes: B batch, H heads, N tokens, D head width, E width of x, W window, g global tokens.
#include <algorithm>
#include <cmath>

#include "attention/blocks/head_views.hpp"
#include "attention/registry.hpp"
#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"
#include "tensor/norm/softmax.hpp"

namespace skytape::attention {
namespace {

struct Config {
  std::int64_t window = 128;  // W; LRA: 512
  std::int64_t globals = 1;   // g; LRA: the CLS token
  std::string dilation;       // LRA: none

  std::vector<Option> options() {
    return {Option::integer("window", window, 0, 1 << 20,
                            "tokens of the window besides the query, half on either side"),
            Option::integer("globals", globals, 0, 4096, "global tokens, from the first one on"),
            Option::list("dilation", dilation,
                         "step between the tokens of the window, of each head; empty: 1")
                .idle_if(window / 2 == 0, {"window"})};
  }
};

HeadViews views_for(const Config& config, std::int64_t heads, std::int64_t n) {
  std::vector<std::int64_t> dilation = parse_list("longformer.dilation", config.dilation);
  if (dilation.empty()) dilation = {1};
  if (dilation.size() != 1 && static_cast<std::int64_t>(dilation.size()) != heads) {
    throw UsageError(join("longformer.dilation: expected a number for each of the ", heads,
                          " heads, got ", config.dilation));
  }
  const std::int64_t reach = std::min(config.window / 2, n);
  std::vector<HeadView> views;
  for (const std::int64_t d : dilation) {
    views.push_back(window_view(n, reach, std::min(d, n), config.globals));
  }
  return {std::move(views), std::clamp<std::int64_t>(reach, 16, 64)};
}

class Longformer final : public Method {
 public:
  Longformer(const LayerContext& context, const Config& config)
      : config_(config),
        heads_(context.heads),
        views_(views_for(config, context.heads, context.nominal_length)) {
    if (config.globals == 0) return;
    const Shape weight{context.heads * context.head_width, context.width};
    const Initialiser start = uniform_init(1 / std::sqrt(static_cast<double>(context.width)));
    const auto add = [&](const char* name, const Shape& shape) {
      return &context.store->add(context.prefix + name, shape, start);
    };
    query_ = add("query_global.weight", weight);
    query_bias_ = add("query_global.bias", {weight[0]});
    key_ = add("key_global.weight", weight);
    value_ = add("value_global.weight", weight);
    value_bias_ = add("value_global.bias", {weight[0]});
  }

  [[nodiscard]] std::vector<Parameter*> parameters() const override {
    if (query_ == nullptr) return {};
    return {query_, query_bias_, key_, value_, value_bias_};
  }

  // ---- reference -------------------------------------------------------------------------------
  Var reference(const InputVars& in, const Tensor& mask, const Draws&, const Call&) const override {
    const std::int64_t b = mask.size(0), n = mask.size(1), d = in.q.size(3);
    const Tensor times = views_.pair_counts(n, in.q.value());
    const Var windows = counted_attention(in.q, in.k, in.v, times, mask);  // [B, H, N, D]
    const std::int64_t g = globals(n);
    if (g == 0) return windows;
    Tape& tape = in.q.tape();
    const auto project = [&](Var x, Parameter* weight, Parameter* bias) {  // [B, H, g or N, D]
      const Var y =
          linear(x, tape.parameter(*weight), bias != nullptr ? tape.parameter(*bias) : Var());
      return swap_middle(reshape(y, {b, x.size(1), heads_, d}));
    };
    const Var queries = project(narrow(in.x, 1, 0, g), query_, query_bias_);
    const Var keys = project(in.x, key_, nullptr), values = project(in.x, value_, value_bias_);
    const Var seen = tape.constant(key_bias(mask));
    const Var scores =
        affine(matmul(queries, keys, Op::none, Op::transpose), score_scale(in.q.value()));
    return concat({matmul(softmax(scores + seen), values), narrow(windows, 2, g, n)}, 2);
  }

  // ---- derivation ------------------------------------------------------------------------------
  // X are the rows of x, X_g the first g of them, G = dout. Windows, for tokens i >= g:
  //   J_i = {j : j < g, or |i - j| <= d W / 2 and i - j a multiple of d}                   (1)
  //   O_i = sum_j P_ij v_j,  P_i = softmax of q_i.k_j / sqrt D over the real keys j in J_i (2)
  // which has the derivative of softmax attention, block by block (block_attention.cpp). Global
  // tokens, for each head with its rows of the projections A (queries), C (keys), F (values):
  //   a = X_g A^T + its bias    u = a C / sqrt D                                           (3)
  //   T = softmax of u X^T over the real keys                                              (4)
  //   y = T X    O = y F^T + (T 1) bias                                                    (5)
  //
  //   (5)  dF = G^T y    dbias = sum of (T 1) G    dy = G F    dT = dy X^T    dX = T^T dy
  //        The term (G bias) 1^T of dT is left out: it is constant along a row, so (4) removes it.
  //   (4)  dS = T (dT - rows' sums of T dT)    du = dS X    dX += dS^T u
  //   (3)  da = du C^T / sqrt D    dC = a^T du / sqrt D
  //        dA = da^T X_g    dbias = sum of da    dX_g += da A

  /// Rows of all heads together: [H, B g, …] for the projections, [B, g H, …] next to x.
  struct Globals {
    Tensor queries;         // a: [H, B g, D]
    Tensor wanted;          // u: [B, g H, E]
    Tensor weights;         // T: [B, g H, N]
    Tensor sums, combined;  // T 1: [H, B g, 1], y: [H, B g, E]
  };
  struct Saved {
    Inputs in;             // q, k, v: [B, H, N, D], mask: [B, N], x: [B, N, E]
    BlockForward windows;  // out: [B, H, N, D], lse: [B, H, N]
    Globals globals;
  };

  Result forward(const Inputs& in, const Draws&, const Call&) const override {
    const std::int64_t b = in.mask.size(0), n = in.mask.size(1), g = globals(n);
    Saved s{in, views_.attend(in), {}};  // (1), (2)
    if (g == 0) {
      const Tensor out = s.windows.out;
      return {out, [this, s = std::move(s)](const Tensor& dout) { return backward(s, dout); }};
    }
    const double scale = score_scale(in.q);
    Globals& t = s.globals;
    const Tensor first = tensor::narrow(in.x, 1, 0, g);  // [B, g, E]
    const Tensor a = tensor::add(tensor::matmul(first, query_->value, Op::none, Op::transpose),
                                 query_bias_->value);  // (3): [B, g, H D]
    t.queries = by_head(a.reshape({b, g * heads_, in.q.size(3)}));
    t.wanted =
        by_example(tensor::affine(tensor::matmul(t.queries, of_heads(key_->value)), scale), b);
    const Tensor seen = key_bias(in.mask).reshape({b, 1, n});
    t.weights = tensor::softmax(
        tensor::add(tensor::matmul(t.wanted, in.x, Op::none, Op::transpose), seen));  // (4)
    t.sums = by_head(tensor::sum(t.weights, 2, true));
    t.combined = by_head(tensor::matmul(t.weights, in.x));  // (5)
    const Tensor out =
        tensor::add(tensor::matmul(t.combined, of_heads(value_->value), Op::none, Op::transpose),
                    tensor::multiply(t.sums, of_heads(value_bias_->value)));  // [H, B g, D]
    const Tensor of_globals =
        tensor::swap_middle(by_example(out, b).reshape({b, g, heads_, in.q.size(3)}));
    // Backward gives the windows' rows of global tokens no gradient, so that any numbers may stand
    // there, and one array serves both.
    s.windows.out = tensor::concat({of_globals, tensor::narrow(s.windows.out, 2, g, n)}, 2);
    const Tensor combined = s.windows.out;
    return {combined, [this, s = std::move(s)](const Tensor& dout) { return backward(s, dout); }};
  }

  [[nodiscard]] Gradients backward(const Saved& s, const Tensor& dout) const {
    const std::int64_t b = s.in.mask.size(0), n = s.in.mask.size(1), g = globals(n);
    const Tensor of_windows =
        g == 0 ? dout : tensor::narrow_backward(tensor::narrow(dout, 2, g, n), 2, g, n);
    const BlockBackward d = views_.attend_backward(s.in, s.windows, of_windows);  // (2)
    Gradients result{d.dq, d.dk, d.dv, {}};
    if (g == 0) return result;

    const Globals& t = s.globals;
    const std::int64_t width = dout.size(3);
    const double scale = score_scale(dout);
    const Tensor upstream = by_head(  // G: [H, B g, D]
        tensor::swap_middle(tensor::narrow(dout, 2, 0, g)).reshape({b, g * heads_, width}));
    const Tensor dvalue = tensor::matmul(upstream, t.combined, Op::transpose);  // (5): [H, D, E]
    const Tensor dvalue_bias = tensor::sum(tensor::multiply(t.sums, upstream), 1);
    const Tensor dy = by_example(tensor::matmul(upstream, of_heads(value_->value)), b);
    const Tensor dweights = tensor::matmul(dy, s.in.x, Op::none, Op::transpose);
    Tensor dx = tensor::matmul(t.weights, dy, Op::transpose);              // [B, N, E]
    const Tensor dscores = tensor::softmax_backward(t.weights, dweights);  // (4)
    tensor::gemm(dscores, Op::transpose, t.wanted, Op::none, dx, 1, 1);
    const Tensor du = by_head(tensor::affine(tensor::matmul(dscores, s.in.x), scale));
    const Tensor dkey = tensor::matmul(t.queries, du, Op::transpose);  // (3): [H, D, E]
    const Tensor da =
        by_example(tensor::matmul(du, of_heads(key_->value), Op::none, Op::transpose), b)
            .reshape({b, g, heads_ * width});
    const Tensor first = tensor::narrow(s.in.x, 1, 0, g);
    const Tensor dquery = tensor::matmul_sum(da, first, Op::transpose);
    const Tensor dfirst = tensor::matmul(da, query_->value);
    tensor::accumulate(dx, tensor::narrow_backward(dfirst, 1, 0, n));
    const Tensor dquery_bias = tensor::sum(da.reshape({b * g, heads_ * width}), 0);
    result.parameters = {dquery, dquery_bias, dkey.reshape(key_->shape),
                         dvalue.reshape(value_->shape), dvalue_bias.reshape(value_bias_->shape)};
    result.dx = dx;
    return result;
  }

 private:
  [[nodiscard]] std::int64_t globals(std::int64_t n) const { return std::min(config_.globals, n); }
  /// A weight [H D, E] or a bias [H D] as one of each head: [H, D, E], [H, 1, D].
  [[nodiscard]] Tensor of_heads(const Tensor& x) const {
    const std::int64_t width = x.size(0) / heads_;
    return x.rank() == 1 ? x.reshape({heads_, 1, width}) : x.reshape({heads_, width, x.size(1)});
  }
  /// [B, g H, C] -> [H, B g, C].
  [[nodiscard]] Tensor by_head(const Tensor& x) const {
    const std::int64_t rows = x.size(0) * x.size(1) / heads_;
    return tensor::swap_middle(x.reshape({1, rows, heads_, x.size(2)}))
        .reshape({heads_, rows, x.size(2)});
  }
  /// [H, B g, C] -> [B, g H, C].
  [[nodiscard]] Tensor by_example(const Tensor& x, std::int64_t batch) const {
    const std::int64_t rows = x.size(1);
    return tensor::swap_middle(x.reshape({1, heads_, rows, x.size(2)}))
        .reshape({batch, rows * heads_ / batch, x.size(2)});
  }

  Config config_;
  std::int64_t heads_;
  HeadViews views_;
  Parameter *query_ = nullptr, *key_ = nullptr, *value_ = nullptr;  // A, C, F: [H D, E]
  Parameter *query_bias_ = nullptr, *value_bias_ = nullptr;         // [H D]
};

/// Windows in blocks, and the global tokens of one head with x as wide as the head.
Cost cost_at(const CostSizes& s) {
  const Config config;
  const double pairs = views_for(config, 1, static_cast<std::int64_t>(s.n)).listed_pairs(0);
  const double windows = pairs * s.width, g = static_cast<double>(config.globals);
  const double projection = g * s.width * s.width, beside_x = g * s.n * s.width;
  return {2 * windows + 3 * projection + 2 * beside_x, 5 * windows + 6 * projection + 4 * beside_x};
}

}  // namespace

Spec longformer_spec() {
  Spec spec;
  spec.name = "longformer";
  spec.paper = "Longformer (Beltagy et al. 2020), sec. 3";
  spec.idea = "a sliding window, and global tokens with separate projections";
  spec.cost = "2 (1.5 W + b) N D + 2 g N E";
  spec.cost_at = cost_at;
  spec.memory = "N E (once for all heads), N g per head";
  spec.reads_x = true;
  spec.exact = {
      {"a window of n, no global token", "softmax", {{"window", "128"}, {"globals", "0"}}, {}}};
  spec.samples = {{},
                  {{"window", "6"}},
                  {{"window", "9"}, {"globals", "3"}, {"dilation", "1:4"}},
                  {{"window", "8"}, {"globals", "0"}, {"dilation", "3:2"}}};
  return register_method<Longformer, Config>(std::move(spec));
}

}  // namespace skytape::attention
