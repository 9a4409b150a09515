// V-Mean: every position gets the mean of the values (the baseline of Skeinformer, Chen et al.
// 2022, sec. 5): attention with uniform weights, which tells how much a task needs attention at
// all. It is the smallest method that has every part of one, in the usual order: copy this file to
// begin another.
//
//   time     2 N D additions per head
//   memory   nothing saved but the mask
//
// Deviations and choices:
//   - As in the papers' code, the mean is over real tokens (the paper divides by N and has no
//     mask), and padded positions get it too.
//   - Queries and keys get no gradient, so their projections are never trained, and in a model not
//     even computed.
//   - A sequence without real tokens gives zero output and zero gradients.
//
// Shapes: B batch, H heads, N positions, D head width, E model width.
#include "attention/registry.hpp"
#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {
namespace {

/// The settings of a user; here there are none. A method with options has a field for each, with
/// its default and the value used on LRA, and one line for each in options():
///   std::int64_t features = 128;  // L; LRA: 128
///   … return {Option::integer("features", features, 1, 4096, "landmarks")};
/// An option that another one leaves without effect ends in .idle_if(exact, {"exact"}).
struct Config {
  std::vector<Option> options() { return {}; }
};

class VMean final : public Method {
 public:
  VMean(const LayerContext&, const Config&) {}

  // ---- parameters ------------------------------------------------------------------------------
  // None. A method with some adds them in its constructor, and keeps what it gets:
  //   weight_(&context.store->add(context.prefix + "weight", {context.heads, 3}, normal_init(0.1)))
  [[nodiscard]] std::vector<Parameter*> parameters() const override { return {}; }

  // ---- reference -------------------------------------------------------------------------------
  Var reference(const InputVars& in, const Tensor& mask, const Draws&, const Call&) const override {
    const Tensor w = mean_weights(mask).reshape({mask.size(0), 1, mask.size(1), 1});
    const Var weights = in.v.tape().constant(w);                // [B, 1, N, 1]
    return expand(sum(in.v * weights, 2, true), in.v.shape());  // [B, H, N, D]
  }

  // ---- derivation ------------------------------------------------------------------------------
  //   w_j  = mask_j / sum_j mask_j                 (1)
  //   m    = sum_j w_j V_j                         (2)
  //   O_i  = m                 for every i         (3)
  // With G = dout:
  //   dm   = sum_i G_i                             from (3)
  //   dV_j = w_j dm                                from (2)

  // ---- forward ---------------------------------------------------------------------------------
  struct Saved {
    Tensor weights;  // w, [B, N]; undefined where the mean was given. Nothing is computed again.
  };

  Result forward(const Inputs& in, const Draws&, const Call&) const override {
    Saved saved;
    Tensor mean = in.v;  // m, [B, H, 1, D]: given if combined
    if (!in.combined) {
      saved.weights = mean_weights(in.mask);                    // (1)
      mean = tensor::sum(weigh(in.v, saved.weights), 2, true);  // (2)
    }
    const Tensor out =                                                // [B, H, N, D]
        tensor::expand(mean, in.v.shape().with(2, in.mask.size(1)));  // (3)
    return {out, [saved](const Tensor& dout) { return backward(saved, dout); }};
  }

  // ---- backward --------------------------------------------------------------------------------
  static Gradients backward(const Saved& s, const Tensor& dout) {
    Gradients g;                                      // dq and dk stay undefined: they are zero
    const Tensor dmean = tensor::sum(dout, 2, true);  // (3): [B, H, 1, D]
    g.dv = dmean;
    if (s.weights.defined()) g.dv = weigh(tensor::expand(dmean, dout.shape()), s.weights);  // (2)
    return g;
  }

  // ---- optional hook: row combination (most methods have none) ---------------------------------
  // (2) is one linear combination of rows: the mean of projected rows is the projected mean of the
  // rows, and a model projects only that.
  std::optional<CombinedRows> combine_rows(Var x, const Tensor& mask) const override {
    const Tensor w = mean_weights(mask).reshape({mask.size(0), 1, mask.size(1)});  // [B, 1, N]
    const Tensor total = tensor::sum(w, 2, true);  // [B, 1, 1]: 1, or 0
    return CombinedRows{matmul(x.tape().constant(w), x), x.tape().constant(total)};
  }

 private:
  /// w of (1): [B, N], zeros for a sequence without real tokens.
  static Tensor mean_weights(const Tensor& mask) {
    return tensor::divide(mask, tensor::token_counts(mask));
  }
  /// Rows times their weight. x: [B, H, N, D], weights: [B, N].
  static Tensor weigh(const Tensor& x, const Tensor& weights) {
    return tensor::mask_rows(x, weights);
  }
};

}  // namespace

// ---- spec --------------------------------------------------------------------------------------
Spec vmean_spec() {
  Spec spec;
  spec.name = "vmean";
  spec.paper = "Skeinformer (Chen et al. 2022), baseline V-Mean";
  spec.idea = "mean of the values for every position";
  spec.cost = "2 N D additions";
  spec.memory = "none";
  spec.samples = {{}};  // settings that the tests run, as {{"features", "16"}}; {}: the defaults.
                        // Each option stands in one of them, with a value that changes the result
  spec.cost_at = [](const CostSizes&) { return Cost{}; };  // multiply-adds alone count: none

  // Traits that are the usual ones need no line; these are written for the reader.
  spec.approximates = "softmax";
  spec.values_only = true;     // neither queries nor keys enter: delete it if yours reads them
  spec.random = false;         // draws nothing
  spec.reads_padding = false;  // so batches are trimmed
  spec.per_example = true;
  spec.exact = {};  // never; a method that can be exact says when: {"landmarks = all rows", …}

  // combine_rows above needs this; a method without it has none.
  spec.combined_cost_at = [](const CostSizes& s, double columns) {
    return CombinedCost{1, {s.n * columns, s.n * columns}, {}};
  };
  return register_method<VMean, Config>(std::move(spec));
}

}  // namespace skytape::attention
