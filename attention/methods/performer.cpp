// Performer attention, FAVOR+ (Choromanski et al., ICLR 2021, eq. 7), as the Skyformer and
// Skeinformer papers ran it.
//
// exp(q.k) is the mean over random w of exp(w.q - |q|^2 / 2) exp(w.k - |k|^2 / 2). So softmax's
// numerator and row sums are products of N x R feature matrices with R x D ones: linear in N.
//
//   time     forward 4 N R D multiply-adds per head, backward 8 N R D
//   memory   O((N + R) D); saved: normalisers, maxima, T; the arrays of (1) are made again, and so
//            are features, in tiles wherever they are needed
//
// Two forms (option `form`):
//   corrected   (default) logits q.k / sqrt(D); padded keys have no features; the keys' stabiliser
//               is the maximum per example and head, over padded keys as well
//   official    the papers' code: logits q.k / D (it scales twice); padded keys have the features
//               of a zero vector, which enter the normaliser; one maximum for the whole batch
// In both, features are exp(...) + epsilon and the maxima are differentiated, because with epsilon
// they change the result; detach_stabiliser = 1 holds them constant, as newer Performer code does,
// which is not the gradient of what is computed. The factor R^(-1/2) of features cancels and is
// left out. W is drawn once and kept in the checkpoint; with redraw = r it is drawn anew every r
// steps, and evaluation draws its own. Padded queries are treated as any other. In the corrected
// form a sequence without real tokens gives zero output; in the official one its values are zero.
//
// The code of Performer's authors is the corrected form, with epsilon 1e-6 and 256 features that
// each call draws anew, but it ignores masks; the arena's takes relu(x) + 1e-3 in place of these
// features unless told otherwise.
//
// Large norms make exp(-|x|^2 / 2) vanish: features become epsilon and attention uniform.
//
// Shapes: B batch, H heads, N queries and keys, D head width, R random features, P = D + 1.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "attention/linear/ratio.hpp"
#include "attention/random_features/feature_attention.hpp"
#include "attention/random_features/random_features.hpp"
#include "attention/registry.hpp"
#include "autograd/ops.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {
namespace {

struct Config {
  std::int64_t features = 128;     // R; papers: 128 (Skyformer), 256 (Skeinformer)
  std::string form = "corrected";  // LRA: official
  double epsilon = 1e-4;           // LRA: 1e-4
  bool detach_stabiliser = false;  // LRA: 0
  std::int64_t redraw = 0;         // LRA: 0

  [[nodiscard]] bool official() const { return form == "official"; }

  std::vector<Option> options() {
    return {Option::integer("features", features, 1, 65536, "random features"),
            Option::choice("form", form, {"corrected", "official"},
                           "official: the papers' scale, padding and stabiliser"),
            Option::real("epsilon", epsilon, 0, 1, "added to every feature"),
            Option::flag("detach_stabiliser", detach_stabiliser,
                         "hold the maxima constant: not the gradient of what is computed")
                .idle_if(epsilon == 0, {"epsilon"}),
            Option::integer("redraw", redraw, 0, 1e9,
                            "steps after which features are drawn anew; 0: never")};
  }
};

class Performer final : public Method {
 public:
  Performer(const LayerContext& context, const Config& config)
      : config_(config), head_width_(context.head_width) {
    if (config.redraw > 0) return;
    const auto draw = [](const Shape& shape, const Random& random) {
      return orthogonal_features(shape[0], shape[1], random, DType::f64, Device::cpu);
    };
    projection_ = &context.store->add(context.prefix + "projection",
                                      {config.features, context.head_width}, draw, false);
  }

  bool needs_whole_batch() const override { return config_.official(); }

  Draws draw(const Inputs& in, const Call& call) const override {
    Draws draws;
    if (config_.redraw == 0) return draws;
    draws.set("projection", orthogonal_features(config_.features, head_width_,
                                                slowed(call.random, config_.redraw), in.q.dtype(),
                                                in.q.device()));
    return draws;
  }

  // ---- reference -------------------------------------------------------------------------------
  Var reference(const InputVars& in, const Tensor& mask, const Draws& draws,
                const Call& call) const override {
    const Var q = in.q, k = in.k, v = in.v;
    Tape& tape = q.tape();
    const std::int64_t b = q.size(0), h = q.size(1), n = q.size(2);
    const Var w = tape.constant(projection(draws, q.value()));  // [R, D]
    const Var x = affine(q, scale(q.size(3)));                  // [B, H, N, D]
    const Var y =                                               // [B, H, N, D]
        config_.official() ? mask_rows(k, mask, scale(k.size(3))) : affine(k, scale(k.size(3)));
    const auto logits = [&](Var rows) { return matmul(rows, w, Op::none, Op::transpose); };
    const auto maximum = [&](Var rows, int axis) {
      const Var largest = max(rows, axis, true);
      return config_.detach_stabiliser ? tape.constant(largest.value()) : largest;
    };
    const auto features = [&](Var rows, Var c) {  // [B, H, N, R]
      const Var half = affine(sum(square(rows), 3, true), -0.5);
      return affine(exp(logits(rows) + half - c), 1, config_.epsilon);
    };
    const std::int64_t scope = heads_of_scope({b, h}, call);
    const Var each = reshape(logits(y), {b * h / scope, scope * n * w.size(0)});
    const Var largest = reshape(maximum(each, 1), {b * h / scope, 1});
    const Var c = reshape(expand(largest, {b * h / scope, scope}), {b, h, 1, 1});
    const Var phi_q = features(x, maximum(logits(x), 3));  // [B, H, N, R]
    const Var raw = features(y, c);                        // [B, H, N, R]
    const Var phi_k = config_.official() ? raw : mask_rows(raw, mask);
    const Var z = sum(phi_k, 2, true);  // [B, H, 1, R]
    const Var numerator = matmul(phi_q, matmul(phi_k, mask_rows(v, mask), Op::transpose, Op::none));
    return numerator / (sum(phi_q * z, 3, true) + tape.constant(no_token(mask)));
  }

  // ---- derivation ------------------------------------------------------------------------------
  // s is the scale, mu the mask as a column that multiplies rows, eps epsilon, G = dout, 1 a column
  // of ones; W's rows are w_j.
  //   corrected   X = s Q   Y = s K      U = [mu V, mu]                                        (1)
  //   official    X = s Q   Y = s mu K   U = [mu V, 1]                                         (1)
  //   a_i = max_j w_j.x_i   c = max of w_j.y_i over j and i, official: and over B and H        (2)
  //   E_ij = exp(w_j.x_i - |x_i|^2 / 2 - a_i)    F_ij = exp(w_j.y_i - |y_i|^2 / 2 - c)
  //   T = F^T U + eps 1 t    t = 1^T U                                                         (3)
  //   S = E T + eps 1 r      r = 1^T T                                                         (4)
  //   O = S[:, :D] / S[:, D]                                                                   (5)
  //
  //   (5)  dS by ratio.hpp
  //   (4)  dE = dS T^T    dT = E^T dS + eps 1 (1^T dS)
  //        da_i = -row_sum(dE E)_i = -dS_i.(E T)_i = -dS_i.(S_i - eps r) = eps dS_i.r
  //   (3)  dF = U dT^T    dU = F dT + eps 1 (1^T dT)
  //        dc = -sum(dF F) = -sum(F^T U dT) = -sum((T - eps 1 t) dT) = eps t.(1^T dT)
  //   since O does not change when a row of S or all of T is multiplied by a number, S_i.dS_i = 0
  //   and sum(T dT) = 0 (entrywise): the stabilisers matter only through eps.
  //   dX, dY from dE, dF: random_features.hpp
  //   (2)  dx_i += da_i w_j at each row's maximum, dy_i += dc w_j at the maximum of c's scope
  //   (1)  dQ = s dX    dK = s dY or s mu dY    dV = mu dU[:, :D]
  //
  // The steps one by one follow. At tf32 and bf16 on a GPU they are passes over the keys and the
  // queries (random_features/feature_attention.cu).

  /// Maxima of the rows of Y, and the largest of each scope: per example and head, or of all.
  struct KeyStabiliser {
    FeatureMaxima rows;  // [B, H, N]
    Tensor largest;      // [scopes]
    Tensor position;     // i32[scopes], among the rows of a scope
  };
  struct Saved {
    Inputs in;                   // q, k, v: [B, H, N, D], mask: [B, N]
    Tensor w;                    // [R, D]
    FeatureMaxima query_maxima;  // a: [B, H, N]
    KeyStabiliser key_stabiliser;
    Tensor c;      // of each key: [B, H, N]
    Tensor t;      // [B, H, R, P]
    Ratio result;  // O
  };

  Result forward(const Inputs& in, const Draws& draws, const Call& call) const override {
    const Tensor w = projection(draws, in.q);  // [R, D]
    const std::int64_t scope = heads_of_scope(in.k.shape(), call);
    if constexpr (kHaveCuda) {
      if (feature_attention_fits(in.q, w)) return in_passes(in, w, scope);
    }
    Saved s;
    s.in = in;
    s.w = w;
    {
      const Tensor u = values(in);  // (1)
      s.t = with_total(
          stabilised_features_transposed_times({keys(in), w, {}}, u, scope, s.key_stabiliser.rows),
          u);  // (1), (2), (3)
    }
    stabilise_keys(s, scope);  // (2)
    s.result = ratio(with_total(
        stabilised_features_times({queries(in), w, {}}, s.t, s.query_maxima), s.t));  // (1) to (5)
    const Tensor out = s.result.out;
    return {out, [this, s = std::move(s)](const Tensor& dout) { return backward(s, dout); }};
  }

  Gradients backward(const Saved& s, const Tensor& dout) const {
    const Tensor ds = ratio_backward(s.result, dout);  // (5)
    FormGradients of_queries =
        features_backward({queries(s.in), s.w, s.query_maxima.value}, ds, s.t, Want::dy);  // (4)
    const Tensor dt = with_total(of_queries.dy, ds);                                       // (4)
    const Tensor u = values(s.in);                                                         // (1)
    FormGradients of_keys = features_backward({keys(s.in), s.w, s.c}, u, dt, Want::du);    // (3)
    const Tensor du = with_total(of_keys.du, dt);                                          // (3)
    if (!config_.detach_stabiliser && config_.epsilon > 0) {  // without eps they change nothing
      const Tensor da =
          tensor::row_dot(ds, tensor::expand(tensor::sum(s.t, 2, true), ds.shape()));  // (4)
      add_maxima_backward(s.w, s.query_maxima, tensor::affine(da, config_.epsilon),
                          of_queries.dx);  // (2)
      add_maxima_backward(s.w, s.key_stabiliser.rows, key_maxima_gradient(s, u, dt),
                          of_keys.dx);  // (2)
    }
    const double factor = scale(dout.size(3));
    const Tensor dv = tensor::narrow(du, 3, 0, dout.size(3));  // (1) [B, H, N, D]
    return {tensor::affine(of_queries.dx, factor),
            config_.official() ? tensor::mask_rows(of_keys.dx, s.in.mask, factor)
                               : tensor::affine(of_keys.dx, factor),
            tensor::mask_rows(dv, s.in.mask),
            {}};  // (1)
  }

 private:
  /// (1) to (5), and their gradients, on a GPU.
  [[nodiscard]] Result in_passes(const Inputs& in, const Tensor& w, std::int64_t scope) const {
    FeatureAttention a;
    a.config = {scale(in.q.size(3)), config_.epsilon, config_.official(),
                !config_.detach_stabiliser, scope};
    a.q = in.q, a.k = in.k, a.v = in.v, a.mask = in.mask, a.w = w;
    on_cuda([&](Cuda) { feature_attention(a); });
    const Tensor out = a.out;
    return {out, [a = std::move(a)](const Tensor& dout) {
              FeatureAttentionGradients d;
              on_cuda([&](Cuda) { d = feature_attention_backward(a, dout); });
              return Gradients{d.dq, d.dk, d.dv, {}};
            }};
  }

  /// s of (1).
  [[nodiscard]] double scale(std::int64_t width) const {
    return std::pow(static_cast<double>(width), config_.official() ? -0.5 : -0.25);
  }

  /// W, injected, drawn or kept: [R, D].
  [[nodiscard]] Tensor projection(const Draws& draws, const Tensor& q) const {
    const Tensor* drawn = draws.find("projection");
    const Tensor& w =
        drawn != nullptr || projection_ == nullptr ? draws.get("projection") : projection_->value;
    ENSURE(w.rank() == 2 && w.size(1) == q.size(3),
           "performer: expected a projection [features, D] for q ", q, ", got ", w);
    return w;
  }

  /// X of (1): [B, H, N, D].
  [[nodiscard]] Tensor queries(const Inputs& in) const {
    return tensor::affine(in.q, scale(in.q.size(3)));
  }

  /// Y of (1): [B, H, N, D].
  [[nodiscard]] Tensor keys(const Inputs& in) const {
    const double factor = scale(in.k.size(3));
    return config_.official() ? tensor::mask_rows(in.k, in.mask, factor)
                              : tensor::affine(in.k, factor);
  }

  /// U of (1): [B, H, N, P].
  [[nodiscard]] Tensor values(const Inputs& in) const {
    if (!config_.official()) return with_mask_column(in.v, in.mask);
    const Tensor ones = ones_like(in.v, in.v.shape().with(3, 1));
    return tensor::concat({tensor::mask_rows(in.v, in.mask), ones}, 3);
  }

  /// Returns how many heads share c of (2). k: [B, H, ...]
  [[nodiscard]] std::int64_t heads_of_scope(const Shape& k, const Call& call) const {
    if (!config_.official()) return 1;
    return std::max<std::int64_t>(call.alone ? k[1] : k[0] * k[1], 1);
  }

  /// c of (2) from the maxima of rows.
  static void stabilise_keys(Saved& s, std::int64_t scope) {
    KeyStabiliser& k = s.key_stabiliser;
    const Shape shape = k.rows.value.shape();  // [B, H, N]
    const std::int64_t scopes = shape[0] * shape[1] / scope, rows = scope * shape[2];
    std::tie(k.largest, k.position) = tensor::max(k.rows.value.reshape({scopes, rows}), 1);
    s.c = tensor::expand(k.largest.reshape({scopes, 1}), {scopes, rows}).reshape(shape);
  }

  /// dL/d(maximum of each row of Y): [B, H, N], zero but at one row of each scope.
  [[nodiscard]] Tensor key_maxima_gradient(const Saved& s, const Tensor& u,
                                           const Tensor& dt) const {
    const KeyStabiliser& k = s.key_stabiliser;
    const Shape shape = k.rows.value.shape();
    // -sum(F^T U dT), with F^T U = T - eps 1 t: in f32 ten times closer than eps t.(1^T dT), which
    // would rely on sum(T dT) = 0 where rounding leaves a rest.
    const Tensor product =
        tensor::subtract(s.t, tensor::affine(tensor::sum(u, 2, true), config_.epsilon));
    Tensor dc = tensor::affine(tensor::sum(tensor::row_dot(product, dt), 2), -1)  // (3) [B, H]
                    .reshape({shape[0] * shape[1]});
    const std::int64_t scopes = k.largest.numel();
    if (scopes == 1 && dc.numel() > 1) {
      dc = tensor::sum(dc, 0).reshape({1});
    } else if (scopes < dc.numel()) {
      dc = tensor::sum(dc.reshape({scopes, dc.numel() / scopes}), 1);
    }
    const std::int64_t rows = shape.numel() / scopes;  // of a scope
    return tensor::max_backward(dc, k.position, 1, rows).reshape(shape);
  }

  /// product + eps 1 (1^T rows), the share of epsilon in (3) and (4). product: [B, H, n, P].
  [[nodiscard]] Tensor with_total(const Tensor& product, const Tensor& rows) const {
    return tensor::add(product, tensor::affine(tensor::sum(rows, 2, true), config_.epsilon));
  }

  Config config_;
  std::int64_t head_width_;
  Parameter* projection_ = nullptr;  // W: [R, D], unless drawn anew
};

/// Features of queries and keys and a product each with D + 1 columns; backward features once more
/// and three products each.
Cost cost_at(const CostSizes& s) {
  const double features = s.n * s.features;
  return {2 * features * (2 * s.width + 1), 2 * features * (4 * s.width + 2)};
}

}  // namespace

Spec performer_spec() {
  Spec spec;
  spec.name = "performer";
  spec.paper = "Performer (Choromanski et al. 2021), eq. 7";
  spec.idea = "positive random features of the softmax kernel";
  spec.cost = "4 N R D";
  spec.cost_at = cost_at;
  spec.paper_cost = [](const CostSizes& s) { return 3 * s.n * s.features * s.width; };
  spec.memory = "R D, N per head (normalisers, maxima)";
  spec.reads_padding = true;  // through the stabiliser, official also through the normaliser
  spec.samples = {{},
                  {{"features", "24"}},
                  {{"features", "24"}, {"form", "official"}},
                  {{"features", "19"}, {"redraw", "3"}, {"epsilon", "0.01"}},
                  {{"features", "24"}, {"form", "official"}, {"epsilon", "0.1"}}};
  return register_method<Performer, Config>(std::move(spec));
}

}  // namespace skytape::attention
