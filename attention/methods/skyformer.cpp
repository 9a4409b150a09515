// Skyformer attention (Chen et al., NeurIPS 2021): a modified Nystrom approximation of kernelized
// attention.
//
// The Gaussian kernel matrix of all queries and keys, stacked, is positive semidefinite; landmarks
// W among these 2 N rows rebuild it as k(., W) M^-1 k(W, .) with M = k(W, W), and attention is the
// block between queries and keys. M^-1 comes from products alone: symmetric scaling, then a few
// steps of an iteration on a matrix with eigenvalues in (0, 1] (landmarks/scaled_inverse.hpp).
//
//   time     forward 4 N L D + 2 L^2 D + 4 steps L^3 multiply-adds per head;
//            backward 10 N L D + 4 L^2 D + 8 steps L^3, steps of the inverse
//   memory   saved: queries, keys and values, O(steps L^2) of the inverse; kernel matrices between
//            rows and landmarks are made again where they are needed (gaussian_kernel.hpp)
//
// Deviations from the paper:
//   - landmarks are half queries and half keys (landmarks = uniform draws from both alike), always
//     among real tokens;
// and from its code (landmarks = official, inverse_start = official and scale = 32^(-1/4) =
// 0.42044820762685725 give the code's):
//   - the keys' kernel matrix is multiplied by the values before the inverse, which spares N L^2;
//   - landmarks are drawn anew for every example and head;
//   - scale is D^(-1/4), and the inverse starts from each matrix's own norm.
// Padded queries get the output of a zero vector, as in that code. Without any real token the output
// is zero.
//
// Shapes: B batch, H heads, N queries and keys, D head width, A sets of landmarks (accumulation),
// L landmarks of a set (features).
#include <cmath>

#include "attention/feature_maps/gaussian_kernel.hpp"
#include "attention/landmarks/landmark_middle.hpp"
#include "attention/registry.hpp"
#include "attention/sampling/landmarks.hpp"
#include "autograd/ops.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/launch/side_by_side.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {
namespace {

struct Config {
  std::int64_t features = 128;            // L; LRA: 128
  std::int64_t accumulation = 1;          // A: kernel matrices of A sets are added up; LRA: 1
  double gamma = 0.1;                     // added to M's diagonal; LRA: 0.1
  double scale = 0;                       // s of Q~ = s Q; 0: D^(-1/4); LRA: 32^(-1/4) = D^(-1/4)
  std::string landmarks = "independent";  // LRA: official
  InverseConfig inverse;                  // LRA: 6 steps, start official, unrolled

  std::vector<Option> options() {
    std::vector<Option> all = {
        Option::integer("features", features, 1, 65536, "landmarks"),
        Option::integer("accumulation", accumulation, 1, 64,
                        "sets of landmarks, whose kernel matrices are added up"),
        Option::real("gamma", gamma, 0, 1e6, "added to the diagonal of the landmarks' matrix"),
        Option::real("scale", scale, 0, 1e3, "factor of queries and keys; 0: head width ^ -1/4"),
        Option::choice("landmarks", landmarks, {"official", "independent", "uniform"},
                       "how landmarks are drawn from queries and keys")};
    for (Option& option : inverse.options()) all.push_back(std::move(option));
    return all;
  }
};

/// Rows of all sets added up: [B, H, A L, D] -> [B, H, L, D].
Tensor add_sets(const Tensor& x, std::int64_t sets) {
  if (sets == 1) return x;
  return tensor::sum(x.reshape({x.size(0), x.size(1), sets, x.size(2) / sets, x.size(3)}), 2);
}

/// Its adjoint: [B, H, L, D] -> [B, H, A L, D].
Tensor repeat_sets(const Tensor& x, std::int64_t sets) {
  if (sets == 1) return x;
  const std::int64_t b = x.size(0), h = x.size(1), size = x.size(2), width = x.size(3);
  return tensor::expand(x.reshape({b, h, 1, size, width}), {b, h, sets, size, width})
      .reshape({b, h, sets * size, width});
}

class Skyformer final : public Method {
 public:
  Skyformer(const LayerContext& context, const Config& config)
      : config_(config), heads_(context.heads) {}

  bool needs_whole_batch() const override { return config_.inverse.needs_whole_batch(); }

  Draws draw(const Inputs& in, const Call& call) const override {
    Draws draws;
    const LandmarkDraw how{config_.landmarks, config_.accumulation, config_.features, heads_};
    draws.set("landmarks", draw_landmarks(how, in.mask, call));
    return draws;
  }

  // ---- reference -------------------------------------------------------------------------------
  Var reference(const InputVars& in, const Tensor& mask, const Draws& draws,
                const Call& call) const override {
    const Var q = in.q, k = in.k, v = in.v;
    const Tensor& table = landmark_table(draws);  // [B, A, L] or [B, H, A, L]
    const std::int64_t n = q.size(2), sets = table.size(-2), size = table.size(-1);
    const double s = scale(q.size(3));
    const Var x = concat({mask_rows(q, mask, s), mask_rows(k, mask, s)}, 2);  // [B, H, 2 N, D]
    const Tensor index = landmark_index(table, q.value());  // [B, A L], [B, H, A L]
    const Var all = gather_rows(x, index);                  // [B, H, A L, D]
    Var a, m;                                               // [B, H, 2 N or L, L]
    for (std::int64_t t = 0; t < sets; ++t) {
      const Var w = narrow(all, 2, t * size, (t + 1) * size);  // [B, H, L, D]
      const Var rows = kernel_reference(Kernel::gaussian, x, w);
      a = t == 0 ? rows : a + rows;
    }
    const Var at_landmarks = gather_rows(a, index);  // [B, H, A L, L]
    for (std::int64_t t = 0; t < sets; ++t) {
      const Var block = narrow(at_landmarks, 2, t * size, (t + 1) * size);
      m = t == 0 ? block : m + block;
    }
    const Tensor shift = shifted_identity(m.value(), 0, config_.gamma);  // [B, H, L, L]: gamma I
    const Var keys = narrow(a, 2, n, 2 * n);                             // [B, H, N, L]
    const Var projected = matmul(keys, mask_rows(v, mask), Op::transpose, Op::none);
    const Var t =
        scaled_inverse_reference(m + q.tape().constant(shift), projected, config_.inverse.in(call));
    return matmul(narrow(a, 2, 0, n), t);
  }

  // ---- derivation ------------------------------------------------------------------------------
  // mu is the mask as a column that multiplies rows, G(.,.) the Gaussian kernel's matrix,
  // dO = dout.
  //   X = s mu Q   Y = s mu K   U = mu V                                                (1)
  //   W = landmarks of [X; Y], all A sets below one another: A L rows                   (2)
  //   C = G(W, W)   M = (sum of C's A x A blocks) + gamma I                             (3)
  //   P = sum over sets of G(Y, W)^T U                                                  (4)
  //   T = R Z R P   R = diag(M 1)^(-1/2)   Z nearly (R M R)^(-1)    landmark_middle.hpp (5)
  //   O = G(X, W) [T; …; T]                                                             (6)
  //
  // With E = dG(X, W) G(X, W) (entrywise) for either kernel matrix:
  //   dX = E W - row_sum(E) X   dW = E^T X - column_sum(E) W           (gaussian_kernel.hpp)
  //   (6)  dG(X, W) = dO [T; …]^T   dT = sum over sets of G(X, W)^T dO
  //   (5)  dM, dP                                                    scaled_inverse.cpp
  //   (4)  dG(Y, W) = U [dP; …]^T   dU = G(Y, W) [dP; …]
  //   (3)  dC = dM in every block; W is both arguments
  //   (2)  dX, dY += dW at the landmarks, repeated ones added up; the draw is a constant
  //   (1)  dQ = s mu dX   dK = s mu dY   dV = mu dU      with the products that give dX, dY and dU

  struct Saved {
    KernelRows x, y, u;  // of q, k, v [B, H, N, D]: never made where products are fused
    std::int64_t sets = 1;
    Tensor index;        // i32 [B, A L] or [B, H, A L]
    Tensor w;            // [B, H, A L, D]
    Tensor t;            // [B, H, A L, D]: T, repeated
    MiddleSaved middle;  // O(steps L^2)
  };

  Result forward(const Inputs& in, const Draws& draws, const Call& call) const override {
    const Tensor& table = landmark_table(draws);
    const double factor = scale(in.q.size(3));
    Saved s;
    s.x = {in.q, in.mask, factor};  // (1)
    s.y = {in.k, in.mask, factor};  // (1)
    s.u = {in.v, in.mask};          // (1)
    s.sets = table.size(-2);
    s.index = landmark_index(table, in.q);                         // (2)
    s.w = gather_landmarks(in.q, in.k, s.index, in.mask, factor);  // (2)
    const MiddleConfig middle{Kernel::gaussian, config_.gamma, s.sets, config_.inverse.in(call)};
    // Off a GPU, and where no kernel is fused, landmark_middle does what begin_… would.
    Tensor p;  // [B, H, L, D]
    side_by_side(
        in.q.device(),
        [&] { begin_landmark_middle(middle, s.w, in.v.size(3), s.middle); },  // (3), (5): Z
        [&] {
          p = add_sets(kernel_transposed_times(Kernel::gaussian, s.y, s.w, s.u), s.sets);  // (4)
        });
    const Tensor t = landmark_middle(p, s.middle);                     // (5)
    s.t = repeat_sets(t, s.sets);                                      // (6)
    const Tensor out = kernel_times(Kernel::gaussian, s.x, s.w, s.t);  // (6)
    return {out, [s = std::move(s)](const Tensor& dout) { return backward(s, dout); }};
  }

  static Gradients backward(const Saved& s, const Tensor& dout) {
    // Gradients of x, y and u are dq, dk and dv: (1) is in them (KernelRows).
    FormGradients of_out =
        kernel_form_backward(Kernel::gaussian, s.x, s.w, dout, s.t, Want::dy);  // (6)
    Tensor& dq = of_out.dx;                                                     // [B, H, N, D]
    const Tensor dt = add_sets(of_out.dy, s.sets);                              // [B, H, L, D]
    // Off a GPU this call gives dW, too, and end_… has nothing to do.
    MiddleGradients middle = landmark_middle_backward(s.middle, dt);  // (5): dP
    const Tensor dp = repeat_sets(middle.dp, s.sets);                 // [B, H, A L, D]
    FormGradients of_keys;
    side_by_side(
        dout.device(), [&] { end_landmark_middle_backward(s.middle, dt, middle); },  // (5), (3)
        [&] {
          of_keys = kernel_form_backward(Kernel::gaussian, s.y, s.w, s.u, dp, Want::du);  // (4)
        });
    Tensor &dk = of_keys.dx, &dv = of_keys.du;  // [B, H, N, D]
    scatter_landmarks({of_out.dw, of_keys.dw, middle.dw}, s.index, s.x.mask, s.x.scale, dq,
                      dk);  // (2), (1)
    return {dq, dk, dv, {}};
  }

 private:
  [[nodiscard]] double scale(std::int64_t head_width) const {
    return config_.scale > 0 ? config_.scale : std::pow(static_cast<double>(head_width), -0.25);
  }

  /// Its last axis but one tells the sets apart, so it must be there.
  [[nodiscard]] static const Tensor& landmark_table(const Draws& draws) {
    const Tensor& table = draws.get("landmarks");
    ENSURE(table.rank() == 3 || table.rank() == 4,
           "skyformer: draws: landmarks: expected i32 [B, A, L] or [B, H, A, L], got ", table);
    return table;
  }

  Config config_;
  std::int64_t heads_;
};

/// With all keys as landmarks, without gamma and with a converged inverse, the block between
/// queries and keys is k(Q, K) k(K, K)^-1 k(K, K).
Exact all_keys() {
  Exact exact;
  exact.when = "landmarks = all keys, gamma = 0, inverse converged";
  exact.equals = "kernelized";
  exact.options = {{"gamma", "0"}, {"inverse_steps", "40"}};
  exact.draws = [](const Inputs& in) {
    const std::int64_t n = in.q.size(2), batch = in.q.size(0);
    std::vector<std::int32_t> table;
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t j = 0; j < n; ++j) table.push_back(static_cast<std::int32_t>(n + j));
    }
    Draws draws;
    draws.set("landmarks", Tensor::from(table, {batch, 1, n}, DType::i32, in.q.device()));
    return draws;
  };
  exact.tolerance = 1e-8;  // the inverse of a kernel matrix loses digits
  return exact;
}

/// Kernel matrices of queries and keys with a product each, L x L products, and the inverse.
Cost cost_at(const CostSizes& s) {
  const double tall = s.n * s.features * s.width, square = s.features * s.features * s.width;
  return Cost{4 * tall + 2 * square, 10 * tall + 4 * square} + inverse_cost(s.features);
}

}  // namespace

Spec skyformer_spec() {
  Spec spec;
  spec.name = "skyformer";
  spec.paper = "Skyformer (Chen et al. 2021), eq. 5 and 6";
  spec.idea = "Nystrom approximation of the Gaussian kernel of queries and keys";
  spec.cost = "4 N L D + 2 L^2 D + 24 L^3";
  spec.cost_at = cost_at;
  spec.memory = "4 L D + 27 L^2";
  spec.approximates = "kernelized";
  spec.random = true;
  spec.exact = {all_keys()};
  spec.samples = {
      {{"features", "9"}},
      {{"features", "8"}, {"accumulation", "3"}, {"landmarks", "official"}, {"gamma", "0.3"}},
      {{"features", "16"}, {"landmarks", "uniform"}, {"scale", "0.9"}, {"inverse_steps", "4"}},
      {{"features", "7"}, {"inverse_start", "official"}},
      {{"features", "6"}, {"inverse_steps", "24"}, {"inverse_backward", "implicit"}},
      {{"features", "6"}, {"inverse_steps", "24"}, {"detach_start", "1"}}};
  return register_method<Skyformer, Config>(std::move(spec));
}

}  // namespace skytape::attention
