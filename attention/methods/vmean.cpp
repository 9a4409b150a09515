// V-Mean: every position gets the mean of the values (the baseline of Skeinformer, Chen et al.
// 2022, sec. 5): attention with uniform weights, which tells how much a task needs attention at
// all.
//
//   time     2 N D additions per head
//   memory   nothing saved but the mask
//
// As the papers' code: the mean is over real tokens (the paper divides by N and has no mask), and
// padded positions get it too. Queries and keys get no gradient, so their projections are never
// trained, and in a model not even computed. A sequence without real tokens gives zero output and
// zero gradients.
//
// Shapes: B batch, H heads, N positions, D head width.
#include "attention/registry.hpp"
#include "autograd/ops.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {
namespace {

class VMean final : public Method {
 public:
  // ---- reference -------------------------------------------------------------------------------
  Var reference(Var q, Var, Var v, const Tensor& mask, const Draws&, const Call&) const override {
    Tape& tape = q.tape();
    const Var weights = tape.constant(mean_weights(mask).reshape(  // [B, 1, N, 1]
        {mask.size(0), 1, mask.size(1), 1}));
    return expand(sum(v * weights, 2, true), v.shape());
  }

  // ---- derivation ------------------------------------------------------------------------------
  //   w_j  = mask_j / sum_j mask_j                 (1)
  //   O_i  = sum_j w_j V_j     for every i         (2)
  //   dV_j = w_j sum_i G_i     with G = dout       from (2)
  // The mean of projected rows is the projected mean of the rows: a model projects only that, and
  //   dmean = sum_i G_i                            from (2)

  std::optional<CombinedRows> combine_rows(Var x, const Tensor& mask) const override {
    const Tensor w = mean_weights(mask).reshape({mask.size(0), 1, mask.size(1)});  // [B, 1, N]
    const Tensor total = tensor::sum(w, 2).reshape({mask.size(0), 1, 1});          // 1, or 0
    return CombinedRows{matmul(x.tape().constant(w), x), x.tape().constant(total)};
  }

  struct Saved {
    Tensor weights;  // w, [B, N]; undefined where the mean was given
  };

  Result forward(const Inputs& in, const Draws&, const Call&) const override {
    Saved saved;
    Tensor mean = in.v;  // [B, H, 1, D]
    if (!in.combined) {
      saved.weights = mean_weights(in.mask);        // (1)
      mean = sum_rows(weigh(in.v, saved.weights));  // (2)
    }
    const Tensor out = tensor::expand(mean, in.v.shape().with(2, in.mask.size(1)));  // (2)
    return {out, [saved](const Tensor& dout) { return backward(saved, dout); }};
  }

  static Gradients backward(const Saved& s, const Tensor& dout) {
    Gradients g;
    g.dv = sum_rows(dout);  // (2): of the mean, [B, H, 1, D]
    if (s.weights.defined()) g.dv = weigh(tensor::expand(g.dv, dout.shape()), s.weights);
    return g;
  }

 private:
  /// w of (1): [B, N], zeros for a sequence without real tokens.
  static Tensor mean_weights(const Tensor& mask) {
    const Tensor count = tensor::sum(mask, 1).reshape({mask.size(0), 1});  // [B, 1]
    const Tensor at_least_one =  // max(count, 1) for whole numbers: no division by zero
        tensor::affine(tensor::unary(tensor::Unary::relu, tensor::affine(count, 1, -1)), 1, 1);
    return tensor::divide(mask, at_least_one);
  }
  /// x: [B, H, N, D] -> [B, H, 1, D].
  static Tensor sum_rows(const Tensor& x) {
    return tensor::sum(x, 2).reshape(x.shape().with(2, 1));
  }
  /// Rows times their weight. x: [B, H, N, D], weights: [B, N].
  static Tensor weigh(const Tensor& x, const Tensor& weights) {
    return tensor::mask_rows(x, weights);
  }
};

}  // namespace

Spec vmean_spec() {
  Spec spec;
  spec.name = "vmean";
  spec.paper = "Skeinformer (Chen et al. 2022), baseline V-Mean";
  spec.idea = "mean of the values for every position";
  spec.cost = "2 N D additions";
  spec.cost_at = [](const CostSizes&) { return Cost{}; };  // sums alone
  spec.combined_cost_at = [](const CostSizes& s, double columns) {
    return CombinedCost{1, {s.n * columns, s.n * columns}, {}};
  };
  spec.values_only = true;
  spec.memory = "none";
  spec.samples = {{}};
  spec.make = [](const LayerContext&, const OptionValues& values) -> std::unique_ptr<Method> {
    assign("vmean", {}, values);
    return std::make_unique<VMean>();
  };
  return spec;
}

}  // namespace skytape::attention
