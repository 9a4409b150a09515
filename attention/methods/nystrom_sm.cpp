// Modified Nystrom method on the raw softmax kernel (the baseline of Skyformer, Figure 1).
//
// As Skyformer, landmarks among all queries and keys rebuild a positive semidefinite kernel matrix,
// here of exp(x.y) instead of its Gaussian relative; rows are normalised afterwards, by the same
// product with the mask in place of the values. A comparison, not a recommendation: rebuilt row
// sums may be negative or near zero, and the paper warns of exploding gradients.
//
//   time     forward 2 (N L + L^2 / 2) (2 D + 1) + 4 S L^3 multiply-adds per head; backward
//            2 N L (5 D + 2) + 2 L^2 (2 D + 1) + 8 S L^3
//   memory   O(N D) and O(S L^2); kernel matrices between rows and landmarks are made in tiles
//
// Two inverses: `iterative`, scaled and shifted by gamma as in Skyformer, which trains; and
// `exact`, the pseudo-inverse by eigendecomposition (f64, CPU, no gradient), for approximation
// studies. There exp(x.y) = exp(|x|^2 / 2) k(x, y) exp(|y|^2 / 2) with the Gaussian kernel k: the
// landmarks' factors cancel against their inverse and the queries' in the ratio, which leaves
// numbers that do not overflow.
//
// A row whose normaliser is zero is zero; so is a sequence without real tokens.
//
// Shapes: B batch, H heads, N queries and keys, D head width, L landmarks (features), S steps of
// the inverse.
#include <cmath>

#include "attention/feature_maps/gaussian_kernel.hpp"
#include "attention/inverse/pseudo_inverse.hpp"
#include "attention/landmarks/landmark_middle.hpp"
#include "attention/linear/ratio.hpp"
#include "attention/registry.hpp"
#include "attention/sampling/landmarks.hpp"
#include "autograd/ops.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/launch/side_by_side.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {
namespace {

struct Config {
  std::int64_t features = 128;            // L; the figure: 16 to 256
  double gamma = 0.1;                     // added to M's diagonal (iterative)
  std::string landmarks = "independent";  // as Skyformer's
  std::string solver = "iterative";       // "exact": pseudo-inverse, forward only
  InverseConfig inverse;

  std::vector<Option> options() {
    std::vector<Option> all = {
        Option::integer("features", features, 1, 65536, "landmarks"),
        Option::real("gamma", gamma, 0, 1e6, "added to the diagonal of the landmarks' matrix"),
        Option::choice("landmarks", landmarks, {"official", "independent", "uniform"},
                       "how landmarks are drawn from queries and keys"),
        Option::choice("solver", solver, {"iterative", "exact"},
                       "iterative inverse, or exact pseudo-inverse (CPU, forward only)")};
    for (Option& option : inverse.options()) all.push_back(std::move(option));
    return all;
  }
};

class NystromSm final : public Method {
 public:
  NystromSm(const LayerContext& context, const Config& config)
      : config_(config), heads_(context.heads) {}

  bool needs_whole_batch() const override { return config_.inverse.needs_whole_batch(); }

  Draws draw(const Inputs& in, const Call& call) const override {
    Draws draws;
    const LandmarkDraw how{config_.landmarks, 1, config_.features, heads_};
    draws.set("landmarks", draw_landmarks(how, in.mask, call));
    return draws;
  }

  // ---- reference -------------------------------------------------------------------------------
  Var reference(const InputVars& in, const Tensor& mask, const Draws& draws,
                const Call& call) const override {
    const Var q = in.q, k = in.k, v = in.v;
    ENSURE(config_.solver == "iterative", "nystrom_sm: solver exact has no derivative");
    Tape& tape = q.tape();
    const double s = scale(q.size(3));
    const Var x = mask_rows(q, mask, s), y = mask_rows(k, mask, s);  // [B, H, N, D]
    const Tensor index = landmark_index(draws.get("landmarks"), q.value());
    const Var w = gather_rows(concat({x, y}, 2), index);        // [B, H, L, D]
    const Var c = kernel_reference(Kernel::exponential, w, w);  // [B, H, L, L]
    const Var gamma = tape.constant(shifted_identity(c.value(), 0, config_.gamma));
    const Var keys = kernel_reference(Kernel::exponential, y, w);     // [B, H, N, L]
    const Var queries = kernel_reference(Kernel::exponential, x, w);  // [B, H, N, L]

    const Tensor ones = mask.reshape({mask.size(0), 1, mask.size(1), 1});
    const Var column = tape.constant(tensor::expand(ones, q.shape().with(3, 1)));
    const Var u = concat({mask_rows(v, mask), column}, 3);  // [B, H, N, D + 1]
    const Var p = matmul(keys, u, Op::transpose, Op::none);
    const Var n = matmul(queries, scaled_inverse_reference(c + gamma, p, config_.inverse.in(call)));
    const std::int64_t width = q.size(3);
    const Var empty = tape.constant(no_token(mask));  // [B, 1, 1, 1]
    return narrow(n, 3, 0, width) / (narrow(n, 3, width, width + 1) + empty);
  }

  // ---- derivation ------------------------------------------------------------------------------
  // mu is the mask as a column that multiplies rows, k(x, y) = exp(x.y), G = dout.
  //   X = s mu Q   Y = s mu K   U = [mu V, mu]                        (1)
  //   W = landmarks of [X; Y]                                         (2)
  //   C = k(W, W)   M = C + gamma I                                   (3)
  //   P = k(Y, W)^T U                                                 (4)
  //   T = R Z R P                                   landmark_middle.hpp (5)
  //   F = k(X, W) T                                                   (6)
  //   O = F[:, :D] / F[:, D]                                          (7)
  // Backward: (7) ratio.hpp gives dF; the rest as skyformer.cpp with dF in place of dO, and
  // without the kernel's norms: with E = dk(X, W) k(X, W) (entrywise), dX = E W and dW = E^T X.

  struct Saved {
    KernelRows x, y;  // of q and k [B, H, N, D]
    Tensor mask;      // [B, N]
    Tensor u;         // [B, H, N, D + 1]
    Tensor index;     // i32 [B, L] or [B, H, L]
    Tensor w;         // [B, H, L, D]
    Tensor t;         // [B, H, L, D + 1]
    Ratio result;     // O
    MiddleSaved middle;
  };

  Result forward(const Inputs& in, const Draws& draws, const Call& call) const override {
    const double factor = scale(in.q.size(3));
    Saved s;
    s.mask = in.mask;
    s.x = {in.q, in.mask, factor};                                 // (1)
    s.y = {in.k, in.mask, factor};                                 // (1)
    s.u = with_mask_column(in.v, in.mask);                         // (1)
    s.index = landmark_index(draws.get("landmarks"), in.q);        // (2)
    s.w = gather_landmarks(in.q, in.k, s.index, in.mask, factor);  // (2)
    if (config_.solver == "exact") return exact(s);
    const MiddleConfig middle{Kernel::exponential, config_.gamma, 1, config_.inverse.in(call)};
    // Off a GPU, and where no kernel is fused, landmark_middle does what begin_… would.
    Tensor p;  // [B, H, L, D + 1]
    side_by_side(
        in.q.device(),
        [&] { begin_landmark_middle(middle, s.w, s.u.size(3), s.middle); },         // (3), (5): Z
        [&] { p = kernel_transposed_times(Kernel::exponential, s.y, s.w, s.u); });  // (4)
    s.t = landmark_middle(p, s.middle);                                             // (5)
    s.result = ratio(kernel_times(Kernel::exponential, s.x, s.w, s.t));             // (6), (7)
    const Tensor out = s.result.out;
    return {out, [s = std::move(s)](const Tensor& dout) { return backward(s, dout); }};
  }

  static Gradients backward(const Saved& s, const Tensor& dout) {
    const Tensor df = ratio_backward(s.result, dout);  // (7)
    FormGradients of_out = kernel_form_backward(Kernel::exponential, s.x, s.w, df, s.t, Want::dy);
    // There this call gives dW, too, and end_… nothing.
    MiddleGradients middle = landmark_middle_backward(s.middle, of_out.dy);  // (5): dP
    FormGradients of_keys;
    side_by_side(
        dout.device(),
        [&] { end_landmark_middle_backward(s.middle, of_out.dy, middle); },  // (5), (3)
        [&] {
          of_keys = kernel_form_backward(Kernel::exponential, s.y, s.w, s.u, middle.dp,
                                         Want::du);  // (4)
        });
    scatter_landmarks({of_out.dw, of_keys.dw, middle.dw}, s.index, s.mask, s.x.scale, of_out.dx,
                      of_keys.dx);                                     // (2), (1)
    const Tensor dv = tensor::narrow(of_keys.du, 3, 0, dout.size(3));  // [B, H, N, D]
    return {of_out.dx, of_keys.dx, tensor::mask_rows(dv, s.mask), {}};
  }

 private:
  [[nodiscard]] static double scale(std::int64_t width) {
    return std::pow(static_cast<double>(width), -0.25);
  }

  /// With the pseudo-inverse of the Gaussian k(W, W), (4) to (7) on U times exp(|y|^2 / 2), up to a
  /// factor per sequence that cancels in the ratio.
  static Result exact(const Saved& s) {
    const Tensor y = s.y.multiplied();
    Tensor half = tensor::affine(tensor::row_dot(y, y), 0.5);  // [B, H, N]
    const Tensor largest = tensor::max(half, 2).first;         // [B, H]
    half = tensor::subtract(half, largest.reshape({half.size(0), half.size(1), 1}));
    const Tensor factor = tensor::unary(tensor::Unary::exp, half);  // [B, H, N]: in (0, 1]
    const Tensor u = tensor::multiply(s.u, factor.reshape(s.u.shape().with(3, 1)));
    const Tensor p = kernel_transposed_times(Kernel::gaussian, y, s.w, u);  // [B, H, L, D + 1]
    const Tensor z = symmetric_pseudo_inverse(kernel_matrix(Kernel::gaussian, s.w, s.w));
    const Tensor t = tensor::matmul(z, p);  // [B, H, L, D + 1]
    return {ratio(kernel_times(Kernel::gaussian, s.x, s.w, t)).out, [](const Tensor&) -> Gradients {
              throw UsageError("nystrom_sm: solver exact has no derivative; use iterative");
            }};
  }

  Config config_;
  std::int64_t heads_;
};

/// As Skyformer's, with values one column wider.
Cost cost_at(const CostSizes& s) {
  const double tall = s.n * s.features, square = s.features * s.features;
  return Cost{(2 * tall + square) * (2 * s.width + 1),
              2 * tall * (5 * s.width + 2) + 2 * square * (2 * s.width + 1)} +
         inverse_cost(s.features);
}

}  // namespace

Spec nystrom_sm_spec() {
  Spec spec;
  spec.name = "nystrom_sm";
  spec.paper = "Skyformer (Chen et al. 2021), Figure 1: modified Nystrom on the softmax kernel";
  spec.idea = "Nystrom approximation of exp(q.k), rows normalised afterwards";
  spec.cost = "4 N L D + 2 L^2 D + 24 L^3";
  spec.cost_at = cost_at;
  spec.memory = "N D + 27 L^2";
  spec.random = true;
  spec.samples = {{{"features", "9"}},
                  {{"features", "16"}, {"landmarks", "uniform"}, {"inverse_steps", "4"}},
                  {{"features", "7"}, {"inverse_start", "official"}},
                  {{"features", "6"},
                   {"gamma", "0.5"},
                   {"inverse_steps", "24"},
                   {"inverse_backward", "implicit"}}};
  return register_method<NystromSm, Config>(std::move(spec));
}

}  // namespace skytape::attention
