// Linformer (Wang et al. 2020, eq. 7): keys and values are projected along the sequence to L rows,
// so attention costs N L instead of N^2.
//
//   time     forward 4 N L D multiply-adds per head (projections and products), backward 9 N L D;
//            N L D and 2 N L D less where a model combines rows first, see (3)
//   memory   O((N + L) D); saved: the projected keys and values, one log-sum-exp per row
//
// Deviations and choices:
//   - The papers' code never trains the projection on a GPU (it is not registered as a parameter);
//     here it is trained, `frozen` gives that behaviour. Its start there, N(0, 0.02^2), makes the
//     projected keys tiny; the default is the theory's N(0, 1/L). Linformer's own code, in fairseq,
//     has the variance 1/(N + L). From neither Adam learns it at a rate of 1e-3 on texts of
//     thousands of bytes (train/results/arena-cpu.md): windows' means are the way there.
//   - Which matrices are shared is the paper's `none`, `headwise`, `keyvalue` or `layerwise`, or
//     the papers' code's `official`: one per layer and head, the same for keys and values.
//   - The paper names pooling and convolution without details: windows of W = ceil(n / L) rows with
//     stride W, n the nominal length; conv is depthwise with one kernel [W, D] per head, separate
//     for keys and values. A last window that is shorter is filled up with zeros. Slots behind it,
//     where L does not divide n, have no rows and are closed.
//   - Padded rows are zero before the projection; slots that have rows are never masked. Under
//     max pooling a padded row may therefore be the maximum, and its gradient vanishes.
//   - A trimmed batch uses the first N columns of the projections, which equals the padded batch.
//
// Shapes: B batch, H heads, N positions, D head width, L projected length, W window, U windows that
// N positions reach, A groups of heads that share a projection.
#include <algorithm>
#include <cmath>

#include "attention/registry.hpp"
#include "attention/tiled/tiled.hpp"
#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {
namespace {

struct Config {
  std::int64_t features = 128;       // L; LRA: 128, Skeinformer's paper 256
  std::string sharing = "keyvalue";  // the papers' code: official
  std::string projection = "learned";
  bool frozen = false;                        // the papers' code: 1 in effect
  double init_std = 0;                        // 0: 1/sqrt(L); the papers' code: 0.02
  std::string layer_features, head_features;  // L of each layer / of each head; empty: features

  std::vector<Option> options() {
    const bool learned = projection == "learned", kernels = projection == "conv";
    return {Option::integer("features", features, 1, 1 << 20, "projected length L")
                .idle_if(!layer_features.empty(), {"layer_features"}),
            Option::choice("sharing", sharing,
                           {"none", "headwise", "keyvalue", "layerwise", "official"},
                           "which learned projections are one and the same")
                .idle_if(!learned, {"projection"}),
            Option::choice("projection", projection, {"learned", "mean", "max", "conv"},
                           "how the sequence is projected"),
            Option::flag("frozen", frozen, "keep the projection as it was drawn")
                .idle_if(!learned && !kernels, {"projection"}),
            Option::real("init_std", init_std, 0, 10,
                         "deviation of a learned projection's start; 0: 1/sqrt(L)")
                .idle_if(!learned, {"projection"}),
            Option::list("layer_features", layer_features, "L of each layer, instead of features"),
            Option::list("head_features", head_features,
                         "rows of the projection that each head may use, at most L")};
  }
};

/// x: [B, H, N, D] as columns of A groups, [A, N, (B H / A) D]: one product then projects a group.
Tensor to_columns(const Tensor& x, std::int64_t groups) {
  const std::int64_t outer = x.size(0) * x.size(1) / groups;
  return tensor::swap_middle(x.reshape({1, outer, groups * x.size(2), x.size(3)}))
      .reshape({groups, x.size(2), outer * x.size(3)});
}
/// The inverse: y [A, M, (B H / A) D] -> [B, H, M, D].
Tensor from_columns(const Tensor& y, std::int64_t batch, std::int64_t heads) {
  const std::int64_t groups = y.size(0), outer = batch * heads / groups;
  return tensor::swap_middle(y.reshape({1, groups * y.size(1), outer, y.size(2) / outer}))
      .reshape({batch, heads, y.size(1), y.size(2) / outer});
}

class Linformer final : public Method {
 public:
  Linformer(const LayerContext& context, const Config& config)
      : config_(config), nominal_(context.nominal_length) {
    slots_ = slots_of(context);
    window_ = ceil_div(nominal_, slots_);
    add_head_slots(context);
    if (learned()) {
      add_learned(context);
    } else if (config.projection == "conv") {
      const Shape kernel = {context.heads, window_, context.head_width};
      const double bound = 1 / std::sqrt(static_cast<double>(window_));
      key_ =
          &context.store->add(context.prefix + "Wk", kernel, uniform_init(bound), !config.frozen);
      value_ =
          &context.store->add(context.prefix + "Wv", kernel, uniform_init(bound), !config.frozen);
    }
  }

  [[nodiscard]] std::vector<Parameter*> parameters() const override {
    if (key_ == nullptr) return {};
    return key_ == value_ ? std::vector{key_} : std::vector{key_, value_};
  }

  // ---- reference -------------------------------------------------------------------------------
  Var reference(const InputVars& in, const Tensor& mask, const Draws&, const Call&) const override {
    const Var q = in.q, k = in.k, v = in.v;
    const Var keys = project(mask_rows(k, mask), key_);      // [B, H, L, D]
    const Var values = project(mask_rows(v, mask), value_);  // [B, H, L, D]
    const Var scores =
        affine(matmul(q, keys, Op::none, Op::transpose), score_scale(q.value()));    // [B, H, N, L]
    const Tensor closed = tensor::unary(tensor::Unary::log, open_slots(q.value()));  // 0 or -inf
    const Var bias = q.tape().constant(closed.reshape({q.size(0), q.size(1), 1, slots_}));
    return matmul(softmax(scores + bias), values);
  }

  // ---- derivation ------------------------------------------------------------------------------
  // m is the mask as a column that multiplies rows, pi and rho the linear maps along the sequence
  // (E and F for `learned`), G = dout.
  //   K' = pi(m K),  V' = rho(m V)                                           (1)
  //   O  = softmax(Q K'^T / sqrt(D)) V'                                      (2)
  //   dQ, dK', dV'   as in softmax attention with L keys                     from (2)
  // From (1), where dK is m times what follows:
  //   learned:  dE = dK' (m K)^T summed over all that share E,  E^T dK'
  //   mean:     every row of a window gets dK' / W
  //   max:      the first largest row of a window gets dK'
  //   conv:     K'_i = sum_r Z_r (m K)_{i W + r}, Z the kernel:
  //             dZ_r = sum_i (m K)_{i W + r} dK'_i,  row i W + r gets Z_r dK'_i
  // If heads, keys and values share E, as they do the one of means, (1) can come before the
  // projections of a model: with Y and y the weight and bias of the one that makes keys,
  //   K' = (E m X) Y^T + (E m 1) y^T,  V' likewise,                          (3)
  // which takes one product with E in place of two, and L projected rows in place of N.

  std::optional<CombinedRows> combine_rows(Var x, const Tensor& mask) const override {
    const bool means = config_.projection == "mean";
    if (!means && (!learned() || key_ != value_ || key_->shape.rank() != 2)) return std::nullopt;
    Tape& tape = x.tape();
    const std::int64_t n = x.size(1);
    const Var rows = mask_rows(x, mask);                                 // [B, N, width of x]
    const Var real = tape.constant(mask.reshape({mask.size(0), n, 1}));  // [B, N, 1]
    if (means) return CombinedRows{window_means(rows), window_means(real)};
    const Var whole = tape.parameter(*key_);                       // [L, nominal length]
    const Var e = n == nominal_ ? whole : narrow(whole, 1, 0, n);  // [L, N]
    return CombinedRows{matmul(e, rows),                           // [B, L, width of x]
                        matmul(e, real)};                          // [B, L, 1]
  }

  struct Saved {
    Tensor q;                         // [B, H, N, D]
    Tensor masked_k, masked_v;        // m K, m V: [B, H, N, D]; undefined after (3)
    Tensor keys, values;              // K', V': [B, H, L, D]
    Tensor key_argmax, value_argmax;  // max pooling only: i32[B, H, U, D]
    Tensor mask;                      // [B, N]
    Tensor open;                      // [B, H, L]: 1 where a head may use a slot
    TiledForward result;              // of (2), heads as batch entries
  };

  Result forward(const Inputs& in, const Draws&, const Call&) const override {
    ENSURE(key_ == nullptr || key_->shape.rank() == 2 || key_->shape[0] == in.q.size(1),
           "linformer: the projections are of ", key_->shape[0], " heads, got q ", in.q);
    Saved s;
    s.q = in.q;
    s.mask = in.mask;
    if (in.combined) {
      s.keys = in.k;    // (3)
      s.values = in.v;  // (3)
    } else {
      s.masked_k = tensor::mask_rows(in.k, in.mask);
      s.masked_v = tensor::mask_rows(in.v, in.mask);
      s.keys = project(s.masked_k, key_, s.key_argmax);        // (1)
      s.values = project(s.masked_v, value_, s.value_argmax);  // (1)
    }
    s.open = open_slots(in.q);
    s.result = tiled_forward(apart(s.q), apart(s.keys), apart(s.values), slot_mask(s.open),
                             softmax_scores(s.q));          // (2)
    const Tensor out = s.result.out.reshape(in.q.shape());  // [B, H, N, D]
    return {out, [this, s = std::move(s)](const Tensor& dout) { return backward(s, dout); }};
  }

  Gradients backward(const Saved& s, const Tensor& dout) const {
    const TiledBackward d =
        tiled_backward(apart(s.q), apart(s.keys), apart(s.values), slot_mask(s.open),
                       softmax_scores(s.q), s.result, apart(dout));  // (2)
    Gradients g;
    g.dq = d.dq.reshape(s.q.shape());
    const Tensor dkeys = d.dk.reshape(s.keys.shape());    // dK': [B, H, L, D]
    const Tensor dvalues = d.dv.reshape(s.keys.shape());  // dV': [B, H, L, D]
    if (!s.masked_k.defined()) {
      g.dk = dkeys;    // (3)
      g.dv = dvalues;  // (3)
      return g;        // E gets its gradient where the rows were combined
    }
    Tensor dkey_parameter, dvalue_parameter;
    g.dk = project_adjoint(s.masked_k, dkeys, key_, s.key_argmax, dkey_parameter);          // (1)
    g.dv = project_adjoint(s.masked_v, dvalues, value_, s.value_argmax, dvalue_parameter);  // (1)
    g.dk = tensor::mask_rows(g.dk, s.mask);
    g.dv = tensor::mask_rows(g.dv, s.mask);
    if (key_ == nullptr) return g;
    if (key_ == value_) {
      tensor::accumulate(dkey_parameter, dvalue_parameter);
      g.parameters = {dkey_parameter};
    } else {
      g.parameters = {dkey_parameter, dvalue_parameter};
    }
    return g;
  }

 private:
  [[nodiscard]] bool learned() const { return config_.projection == "learned"; }

  /// L of this layer.
  [[nodiscard]] std::int64_t slots_of(const LayerContext& context) const {
    const auto per_layer = parse_list("linformer.layer_features", config_.layer_features);
    if (per_layer.empty()) return config_.features;
    if (config_.sharing == "layerwise" && learned()) {
      throw UsageError("linformer.layer_features: layerwise sharing needs one L for all layers");
    }
    if (context.layer >= static_cast<int>(per_layer.size())) {
      throw UsageError(join("linformer.layer_features: no entry for layer ", context.layer, " in '",
                            config_.layer_features, "'"));
    }
    return per_layer[static_cast<std::size_t>(context.layer)];
  }

  /// A constant [1, H, L] of 0 and 1 if heads use different numbers of slots, or windows leave some
  /// without rows.
  void add_head_slots(const LayerContext& context) {
    auto used = parse_list("linformer.head_features", config_.head_features);
    const std::int64_t filled = learned() ? slots_ : ceil_div(nominal_, window_);
    if (used.empty()) {
      if (filled == slots_) return;
      used.assign(static_cast<std::size_t>(context.heads), slots_);
    }
    if (static_cast<std::int64_t>(used.size()) != context.heads ||
        *std::max_element(used.begin(), used.end()) > slots_) {
      throw UsageError(join("linformer.head_features: expected ", context.heads,
                            " numbers up to L = ", slots_, ", got '", config_.head_features, "'"));
    }
    for (std::int64_t& count : used) count = std::min(count, filled);
    const auto fill = [used](const Shape& shape, const Random&) {
      std::vector<double> open;
      for (const std::int64_t count : used) {
        for (std::int64_t slot = 0; slot < shape[2]; ++slot) open.push_back(slot < count ? 1 : 0);
      }
      return Tensor::from(open, shape, DType::f64, Device::cpu);
    };
    open_ =
        &context.store->add(context.prefix + "open_slots", {1, context.heads, slots_}, fill, false);
  }

  void add_learned(const LayerContext& context) {
    const bool per_head = config_.sharing == "none" || config_.sharing == "official";
    const Shape shape = per_head ? Shape{context.heads, slots_, nominal_} : Shape{slots_, nominal_};
    const double deviation =
        config_.init_std > 0 ? config_.init_std : 1 / std::sqrt(static_cast<double>(slots_));
    const std::string name = config_.sharing == "layerwise"
                                 ? "model.attn.E"
                                 : context.prefix + "E";  // one for the model
    key_ = context.store->find(name);
    if (key_ == nullptr) {
      key_ = &context.store->add(name, shape, normal_init(deviation), !config_.frozen);
    }
    const bool separate = config_.sharing == "none" || config_.sharing == "headwise";
    value_ = separate ? &context.store->add(context.prefix + "F", shape, normal_init(deviation),
                                            !config_.frozen)
                      : key_;
  }

  /// The first N columns of a learned projection as groups: [A, L, N], A = H or 1.
  [[nodiscard]] static Tensor columns_of(const Parameter& p, std::int64_t n) {
    const Tensor grouped =
        p.value.rank() == 3 ? p.value : p.value.reshape({1, p.value.size(0), p.value.size(1)});
    return n == grouped.size(2) ? grouped : tensor::narrow(grouped, 2, 0, n);
  }

  /// The windows that N rows reach, U: those behind them are zero.
  [[nodiscard]] std::int64_t reached(std::int64_t n) const { return ceil_div(n, window_); }

  /// x: [B, H, N, D] -> [B, H, U, W, D], zeros behind the end.
  [[nodiscard]] Tensor windows(const Tensor& x) const {
    const std::int64_t padded = reached(x.size(2)) * window_;
    const Tensor whole = x.size(2) == padded ? x : tensor::narrow_backward(x, 2, 0, padded);
    return whole.reshape({x.size(0), x.size(1), padded / window_, window_, x.size(3)});
  }

  /// The product of (3) with an E of means: x [B, N, C] -> [B, L, C].
  [[nodiscard]] Var window_means(Var x) const {
    const std::int64_t b = x.size(0), c = x.size(2), u = reached(x.size(1));
    const auto filled = [&](Var y, std::int64_t rows) {  // up to so many, by zeros
      if (y.size(1) == rows) return y;
      const Tensor zeros = zeros_like(y.value(), {b, rows - y.size(1), c});
      return concat({y, y.tape().constant(zeros)}, 1);
    };
    const Var windows = reshape(filled(x, u * window_), {b, u, window_, c});
    return filled(mean(windows, 2), slots_);
  }

  /// One row for each window that x reaches: [B, H, N, D] -> [B, H, U, D].
  [[nodiscard]] Tensor pooled(const Tensor& x, const Parameter* p, Tensor& argmax) const {
    const Tensor rows = windows(x);  // [B, H, U, W, D]
    if (config_.projection == "max") {
      auto [largest, position] = tensor::max(rows, 3);
      argmax = position;
      return largest;
    }
    if (config_.projection == "mean") return tensor::affine(tensor::sum(rows, 3), 1.0 / window_);
    const Tensor kernel = p->value.reshape({1, x.size(1), 1, window_, x.size(3)});
    return tensor::sum(tensor::multiply(rows, kernel), 3);
  }

  /// (1) for x = m K or m V: [B, H, N, D] -> [B, H, L, D].
  [[nodiscard]] Tensor project(const Tensor& x, const Parameter* p, Tensor& argmax) const {
    if (!learned()) {
      const Tensor y = pooled(x, p, argmax);
      return y.size(2) == slots_ ? y : tensor::narrow_backward(y, 2, 0, slots_);
    }
    const Tensor matrix = columns_of(*p, x.size(2));               // [A, L, N]
    if (matrix.size(0) == 1) return tensor::matmul(matrix[0], x);  // one for all: no copy
    const Tensor columns = to_columns(x, matrix.size(0));          // [A, N, (B H / A) D]
    return from_columns(tensor::matmul(matrix, columns), x.size(0), x.size(1));
  }

  /// The gradient of project: dy [B, H, L, D] -> dx [B, H, N, D], and the parameter's.
  [[nodiscard]] Tensor project_adjoint(const Tensor& x, const Tensor& dy, const Parameter* p,
                                       const Tensor& argmax, Tensor& dparameter) const {
    const std::int64_t b = x.size(0), h = x.size(1), n = x.size(2), d = x.size(3);
    if (learned()) {
      const Tensor matrix = columns_of(*p, n);                 // [A, L, N]
      const Tensor dcolumns = to_columns(dy, matrix.size(0));  // [A, L, (B H / A) D]
      const Tensor dmatrix = tensor::matmul(dcolumns, to_columns(x, matrix.size(0)), Op::none,
                                            Op::transpose);  // [A, L, N]
      dparameter = tensor::narrow_backward(dmatrix, 2, 0, nominal_).reshape(p->shape);
      if (matrix.size(0) == 1) return tensor::matmul(matrix[0], dy, Op::transpose);
      return from_columns(tensor::matmul(matrix, dcolumns, Op::transpose), b, h);
    }
    const std::int64_t u = reached(n);
    const Tensor dy_reached = u == slots_ ? dy : tensor::narrow(dy, 2, 0, u);  // [B, H, U, D]
    const Tensor dy_window = dy_reached.reshape({b, h, u, 1, d});
    Tensor drows;  // [B, H, U, W, D]
    if (config_.projection == "max") {
      drows = tensor::max_backward(dy_reached, argmax, 3, window_);
    } else if (config_.projection == "mean") {
      drows = tensor::expand(tensor::affine(dy_window, 1.0 / window_), {b, h, u, window_, d});
    } else {
      drows = tensor::multiply(dy_window, p->value.reshape({1, h, 1, window_, d}));
      dparameter = tensor::sum_to_shape(tensor::multiply(windows(x), dy_window), {h, 1, window_, d})
                       .reshape(p->shape);
    }
    return tensor::narrow(drows.reshape({b, h, u * window_, d}), 2, 0, n);
  }

  /// project for the reference.
  [[nodiscard]] Var project(Var x, Parameter* p) const {
    const std::int64_t b = x.size(0), h = x.size(1), n = x.size(2), d = x.size(3);
    Tape& tape = x.tape();
    if (learned()) {
      const Var matrix = narrow(tape.parameter(*p), p->shape.rank() - 1, 0, n);
      if (p->shape.rank() == 2) return matmul(matrix, x);
      return matmul(expand(reshape(matrix, {1, h, slots_, n}), {b, h, slots_, n}), x);
    }
    const Tensor missing = zeros_like(x.value(), {b, h, slots_ * window_ - n, d});
    const Var rows = reshape(concat({x, tape.constant(missing)}, 2), {b, h, slots_, window_, d});
    if (config_.projection == "max") return max(rows, 3);
    if (config_.projection == "mean") return mean(rows, 3);
    return sum(rows * reshape(tape.parameter(*p), {1, h, 1, window_, d}), 3);
  }

  /// [B, H, L]: 1 for the slots that a head may use.
  [[nodiscard]] Tensor open_slots(const Tensor& like) const {
    const Shape shape = {like.size(0), like.size(1), slots_};
    if (open_ == nullptr) return ones_like(like, shape);
    return tensor::expand(open_->value, shape);
  }

  /// Heads as batch entries, since they may use different slots: [B, H, M, D] -> [B H, 1, M, D].
  [[nodiscard]] static Tensor apart(const Tensor& x) {
    return x.reshape({x.size(0) * x.size(1), 1, x.size(2), x.size(3)});
  }
  [[nodiscard]] static Tensor slot_mask(const Tensor& open) {
    return open.reshape({open.size(0) * open.size(1), open.size(2)});
  }

  Config config_;
  std::int64_t nominal_;        // length that the projections are made for
  std::int64_t slots_ = 0;      // L
  std::int64_t window_ = 0;     // W
  Parameter* open_ = nullptr;   // [1, H, L] if some head does not use all slots
  Parameter* key_ = nullptr;    // E, or the keys' kernel; nullptr for pooling
  Parameter* value_ = nullptr;  // F, or the values' kernel; may be the same as key_
};

/// Two projections and two products; backward two of each projection, and five of attention.
Cost cost_at(const CostSizes& s) {
  const double one = s.n * s.features * s.width;
  return {4 * one, 9 * one};
}
/// One projection of the rows and of the mask, neither with a gradient for the mask.
CombinedCost combined_cost_at(const CostSizes& s, double columns) {
  const double column = s.n * s.features, one = column * s.width;
  return {s.features, {column * (columns + 1), column * (2 * columns + 1)}, {2 * one, 5 * one}};
}

}  // namespace

Spec linformer_spec() {
  Spec spec;
  spec.name = "linformer";
  spec.paper = "Linformer (Wang et al. 2020), eq. 7";
  spec.idea = "keys and values projected along the sequence to L rows";
  spec.cost = "4 N L D";
  spec.cost_at = cost_at;
  spec.combined_cost_at = combined_cost_at;
  spec.paper_cost = [](const CostSizes& s) { return 4 * s.n * s.features * s.width; };
  spec.memory = "2 (N + L) D, in a model half of that";
  spec.exact = {{"every row is a separate window (L = N, no padding)",
                 "softmax",
                 {{"projection", "mean"}, {"features", "64"}},
                 {}}};
  for (const char* sharing : {"none", "headwise", "keyvalue", "layerwise", "official"}) {
    spec.samples.push_back({{"features", "8"}, {"sharing", sharing}});
  }
  for (const char* projection : {"mean", "max", "conv"}) {
    spec.samples.push_back({{"features", "8"}, {"projection", projection}});
  }
  spec.samples.push_back({{"features", "8"}, {"head_features", "8:5"}});
  spec.samples.push_back({{"layer_features", "6"}});
  spec.samples.push_back({{"features", "8"}, {"frozen", "1"}, {"init_std", "0.02"}});
  return register_method<Linformer, Config>(std::move(spec));
}

}  // namespace skytape::attention
