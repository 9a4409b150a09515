// Nystromformer (Xiong et al., AAAI 2021): softmax attention rebuilt from means of consecutive
// queries and keys.
//
// Three softmax matrices stand for one: positions to key landmarks, query landmarks to key
// landmarks (inverted by the iteration), query landmarks to positions. The outer two are ordinary
// softmax attentions, computed in tiles and never stored. Optionally a depthwise convolution of the
// values is added (kernel 35 in the authors' LRA runs, off in both papers').
//
//   time     forward 4 N L D + 2 L^2 D + 4 S L^3 multiply-adds per head; backward
//            10 N L D + 4 L^2 D + 8 S L^3
//   memory   O(N D) and O(S L^2)
//
// Deviations from the papers' code, which needs L to divide N: segment j of L holds positions
// floor(j N / L) to floor((j + 1) N / L) - 1 of the nominal length N, the same where L divides N.
// L >= N is exact softmax attention, as there L = N. The key mask is -inf instead of -1e9: equal
// whenever there is a real token; without any the output is zero. Landmarks of segments that are
// all padding are zero vectors and take part, as in that code. With inverse_start = official, in
// training and without padding, this equals Hugging Face's layer (whose convolution, of width 65,
// is on by default); there padded positions enter the landmarks and the convolution.
//
// Shapes: B batch, H heads, N queries and keys, D head width, L landmarks (features), S steps of
// the inverse, W window of the convolution.
#include <algorithm>
#include <cmath>

#include "attention/inverse/iterative_inverse.hpp"
#include "attention/registry.hpp"
#include "attention/sequence/sequence.hpp"
#include "attention/tiled/tiled.hpp"
#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/launch/side_by_side.hpp"
#include "tensor/norm/softmax.hpp"

namespace skytape::attention {
namespace {

struct Config {
  std::int64_t features = 128;   // L; LRA: 128 (Skyformer's table), 256 (Skeinformer's text)
  std::int64_t conv_kernel = 0;  // W, odd; 0: no convolution. LRA: 0
  InverseConfig inverse;         // LRA: 6 steps, start official, unrolled

  std::vector<Option> options() {
    std::vector<Option> all = {
        Option::integer("features", features, 1, 65536, "landmarks"),
        Option::integer("conv_kernel", conv_kernel, 0, 1023,
                        "width of the convolution of the values, odd; 0: none")};
    for (Option& option : inverse.options()) all.push_back(std::move(option));
    return all;
  }
};

class Nystrom final : public Method {
 public:
  Nystrom(const LayerContext& context, const Config& config)
      : config_(config), nominal_length_(context.nominal_length) {
    if (config_.conv_kernel == 0) return;
    if (config_.conv_kernel % 2 == 0) {
      throw UsageError(
          join("nystrom.conv_kernel: expected an odd width or 0, got ", config_.conv_kernel));
    }
    ENSURE(context.store != nullptr, "nystrom: the convolution needs a parameter store");
    // PyTorch's default for a convolution: +-1 / sqrt(inputs of one output).
    const double bound = 1 / std::sqrt(static_cast<double>(config_.conv_kernel));
    conv_ = &context.store->add(context.prefix + "conv.weight",
                                {context.heads, 1, config_.conv_kernel, 1}, uniform_init(bound));
  }

  bool needs_whole_batch() const override { return config_.inverse.needs_whole_batch(); }

  std::vector<Parameter*> parameters() const override {
    if (conv_ == nullptr) return {};
    return {conv_};
  }

  // ---- reference -------------------------------------------------------------------------------
  Var reference(const InputVars& in, const Tensor& mask, const Draws&,
                const Call& call) const override {
    const Var q = in.q, k = in.k, v = in.v;
    const double s = std::pow(static_cast<double>(q.size(3)), -0.25);
    const Var x = mask_rows(q, mask, s), y = mask_rows(k, mask, s);  // [B, H, N, D]
    const Var bias = q.tape().constant(key_bias(mask));              // [B, 1, 1, N]
    Var out;
    if (exact(q.size(2))) {
      out = matmul(softmax(matmul(x, y, Op::none, Op::transpose) + bias), v);
    } else {
      const Var mean = q.tape().constant(mean_matrix(q.value()));      // [L, N]
      const Var ql = segments_of(mean, x), kl = segments_of(mean, y);  // [B, H, L, D]
      const Var f = softmax(matmul(x, kl, Op::none, Op::transpose));
      const Var a = softmax(matmul(ql, kl, Op::none, Op::transpose));
      const Var b = softmax(matmul(ql, y, Op::none, Op::transpose) + bias);
      out = matmul(f, matmul(inverse_reference(a, config_.inverse.in(call)), matmul(b, v)));
    }
    return conv_ == nullptr ? out : out + convolution(mask_rows(v, mask));
  }

  // ---- derivation ------------------------------------------------------------------------------
  // mu is the mask as a column that multiplies rows, s = D^(-1/4), G = dout.
  //   X = s mu Q   Y = s mu K                                         (1)
  //   Ql, Kl = segment means of X, Y                                  (2)
  //   P = softmax(Ql Y^T + log mask) V                                (3)
  //   A = softmax(Ql Kl^T)   Z = iterative inverse of A               (4)
  //   R = Z P                                                         (5)
  //   O = softmax(X Kl^T) R                                           (6)
  //   O += w * (mu V)                     convolution along positions (7)
  // Backward: (7) sequence.hpp; (6), (3) softmax attention, attention/tiled/tiled.cpp;
  //   (5)  dZ = dR P^T   dP = Z^T dR
  //   (4)  dA from dZ; E = A (dA - row_sum(A dA)); dQl += E Kl   dKl += E^T Ql
  //   (2)  every row of a segment: dX += dQl / size, dY += dKl / size
  //   (1)  dQ = s mu dX   dK = s mu dY
  // With L >= N only (1), softmax(X Y^T + log mask) V as (6), and (7) remain.

  struct Saved {
    double scale = 1;
    std::int64_t nominal = 0;
    Tensor mask, ones;                  // [B, N], [B, L]
    Tensor x, y, v;                     // [B, H, N, D]
    Tensor ql, kl, p, r;                // [B, H, L, D]
    Tensor a, z;                        // [B, H, L, L]
    InverseSaved inverse;               // O(S L^2)
    TiledForward landmarks, positions;  // of (3) and (6)
    Tensor weight;                      // [H, 1, W, 1], undefined without convolution
  };

  Result forward(const Inputs& in, const Draws&, const Call& call) const override {
    Saved s;
    s.scale = std::pow(static_cast<double>(in.q.size(3)), -0.25);
    s.nominal = nominal(in.q.size(2));
    s.mask = in.mask;
    s.v = in.v;
    if (exact(in.q.size(2))) {
      s.x = tensor::mask_rows(in.q, in.mask, s.scale);           // (1)
      s.y = tensor::mask_rows(in.k, in.mask, s.scale);           // (1)
      s.positions = tiled_forward(s.x, s.y, in.v, in.mask, {});  // (6)
    } else {
      approximate(s, in, call);
    }
    Tensor out = s.positions.out;  // [B, H, N, D]
    if (conv_ != nullptr) {        // (7)
      s.weight = conv_->value;
      out = tensor::add(out, depthwise_convolution(tensor::mask_rows(in.v, in.mask), s.weight));
    }
    return {out, [s = std::move(s)](const Tensor& dout) { return backward(s, dout); }};
  }

  static Gradients backward(const Saved& s, const Tensor& dout) {
    Gradients g;
    if (s.a.defined()) {
      g = approximate_backward(s, dout);
    } else {
      const TiledBackward d = tiled_backward(s.x, s.y, s.v, s.mask, {}, s.positions, dout);  // (6)
      g = {tensor::mask_rows(d.dq, s.mask, s.scale),
           tensor::mask_rows(d.dk, s.mask, s.scale),
           d.dv,
           {}};  // (1)
    }
    if (!s.weight.defined()) return g;
    const Tensor values = tensor::mask_rows(s.v, s.mask);
    const ConvolutionGradients conv = depthwise_convolution_backward(values, s.weight, dout);
    g.dv = tensor::add(g.dv, tensor::mask_rows(conv.dx, s.mask));  // (7)
    g.parameters = {conv.dweight};                                 // (7)
    return g;
  }

 private:
  /// (1) to (6).
  void approximate(Saved& s, const Inputs& in, const Call& call) const {
    const std::int64_t size = config_.features;
    const auto means = [&](const Tensor& rows) {
      return segment_means(rows, in.mask, s.scale, size, s.nominal);
    };
    const SegmentMeans of_q = means(in.q), of_k = means(in.k);
    s.x = of_q.rows, s.y = of_k.rows;      // (1)
    s.ql = of_q.means, s.kl = of_k.means;  // (2)
    s.ones = ones_like(s.x, {s.x.size(0), size});
    s.a = tensor::softmax(tensor::matmul(s.ql, s.kl, Op::none, Op::transpose));  // (4)
    side_by_side(
        s.a.device(),
        [&] { s.z = inverse_forward(s.a, config_.inverse.in(call), s.inverse); },  // (4)
        [&] { s.landmarks = tiled_forward(s.ql, s.y, s.v, s.mask, {}); });         // (3)
    s.p = s.landmarks.out;                                                         // (3)
    s.r = inverse_times(s.z, s.p);                                                 // (5)
    s.positions = tiled_forward(s.x, s.kl, s.r, s.ones, {});                       // (6)
  }

  static Gradients approximate_backward(const Saved& s, const Tensor& dout) {
    TiledBackward of_out = tiled_backward(s.x, s.kl, s.r, s.ones, {}, s.positions, dout);  // (6)
    const Tensor& dr = of_out.dv;                                          // [B, H, L, D]
    const InverseTimesGradients d = inverse_times_backward(s.z, s.p, dr);  // (5)
    Tensor e;                                                              // [B, H, L, L]
    TiledBackward of_p;
    side_by_side(
        dr.device(),
        [&] { e = tensor::softmax_backward(s.a, inverse_backward(s.inverse, d.dz)); },   // (4)
        [&] { of_p = tiled_backward(s.ql, s.y, s.v, s.mask, {}, s.landmarks, d.ds); });  // (3)
    Tensor dql = of_p.dq, dkl = of_out.dk;                               // [B, H, L, D]
    tensor::gemm(e, Op::none, s.kl, Op::none, dql, 1, 1);                // (4)
    tensor::gemm(e, Op::transpose, s.ql, Op::none, dkl, 1, 1);           // (4)
    segment_means_backward(dql, s.mask, s.scale, s.nominal, of_out.dq);  // (2), (1)
    segment_means_backward(dkl, s.mask, s.scale, s.nominal, of_p.dk);    // (2), (1)
    return {of_out.dq, of_p.dk, of_p.dv, {}};
  }

  [[nodiscard]] std::int64_t nominal(std::int64_t n) const { return std::max(nominal_length_, n); }
  [[nodiscard]] bool exact(std::int64_t n) const { return config_.features >= nominal(n); }

  // ---- pieces of the reference -----------------------------------------------------------------
  /// Segment means as a matrix, in the dtype of q: [L, N].
  [[nodiscard]] Tensor mean_matrix(const Tensor& q) const {
    const std::int64_t n = q.size(2), segments = config_.features, all = nominal(n);
    std::vector<double> mean(segments * n, 0.0);
    for (std::int64_t j = 0; j < segments; ++j) {
      const std::int64_t begin = j * all / segments, end = (j + 1) * all / segments;
      for (std::int64_t i = begin; i < std::min(end, n); ++i) {
        mean[j * n + i] = 1.0 / static_cast<double>(end - begin);
      }
    }
    return Tensor::from(mean, {segments, n}, q.dtype(), q.device());
  }
  /// mean [L, N] times every [N, D] of x [B, H, N, D].
  static Var segments_of(Var mean, Var x) {
    return transpose(matmul(transpose(x), mean, Op::none, Op::transpose));
  }
  /// Convolution of values [B, H, N, D] as a sum of shifted copies.
  [[nodiscard]] Var convolution(Var values) const {
    Tape& tape = values.tape();
    const std::int64_t taps = config_.conv_kernel, n = values.size(2), heads = values.size(1);
    const Var weight = reshape(tape.parameter(*conv_), {heads, taps});  // [H, W]
    const Var edge = tape.constant(zeros_like(values.value(), values.shape().with(2, taps / 2)));
    const Var padded = concat({edge, values, edge}, 2);  // [B, H, N + W - 1, D]
    Var sum;
    for (std::int64_t t = 0; t < taps; ++t) {
      const Var tap = reshape(narrow(weight, 1, t, t + 1), {heads, 1, 1});
      const Var term = narrow(padded, 2, t, t + n) * tap;
      sum = t == 0 ? term : sum + term;
    }
    return sum;
  }

  Config config_;
  std::int64_t nominal_length_;
  Parameter* conv_ = nullptr;  // [H, 1, W, 1]
};

/// Two attentions between positions and landmarks, L x L products, and the inverse.
Cost cost_at(const CostSizes& s) {
  if (s.features >= s.n) return {2 * s.n * s.n * s.width, 5 * s.n * s.n * s.width};  // exact
  const double tall = s.n * s.features * s.width, square = s.features * s.features * s.width;
  return Cost{4 * tall + 2 * square, 10 * tall + 4 * square} + inverse_cost(s.features);
}

}  // namespace

Spec nystrom_spec() {
  Spec spec;
  spec.name = "nystrom";
  spec.paper = "Nystromformer (Xiong et al. 2021), eq. 13";
  spec.idea = "softmax attention through means of consecutive queries and keys";
  spec.cost = "4 N L D + 2 L^2 D + 24 L^3";
  spec.cost_at = cost_at;
  spec.paper_cost = [](const CostSizes& s) { return 4 * s.n * s.features * s.width; };
  spec.memory = "2 N D + 26 L^2";
  spec.exact = {{"landmarks = N", "softmax", {{"features", "64"}}, {}, 1e-10}};
  // Means of rows make A nearly singular, so implicit and detach_start, which need a converged
  // inverse to have a derivative to compare with, are tested with Skyformer and on their own.
  spec.samples = {{{"features", "5"}},
                  {{"features", "8"}, {"conv_kernel", "5"}, {"inverse_steps", "4"}},
                  {{"features", "5"}, {"inverse_start", "official"}},
                  {{"features", "64"}, {"conv_kernel", "3"}}};
  return register_method<Nystrom, Config>(std::move(spec));
}

}  // namespace skytape::attention
