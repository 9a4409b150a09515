// The interface of an attention method: one coarse operation with its own backward.
//
// Letters: B batch, H heads, N queries and keys, D head width. M combined rows, E model
// width. A method sees q, k, v as [B, H, N, D] and the mask as [B, N] (1 = real token, 0 = padding,
// in q's dtype; the ones need not come first).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/options.hpp"
#include "autograd/parameter.hpp"
#include "autograd/tape.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/random/random.hpp"

namespace skytape::attention {

/// What the factory knows when a layer is built. Parameters and constant buffers (features, tables)
/// are added to `store` under `prefix` ("model.transformer_0.mha.attn.").
struct LayerContext {
  int layer = 0;
  std::int64_t heads = 2;           // H
  std::int64_t head_width = 32;     // D
  std::int64_t nominal_length = 0;  // N before trimming, which positions, poolings and buckets keep
  std::string prefix;
  ParameterStore* store = nullptr;
};

struct Inputs {
  Tensor q, k, v;         // [B, H, N, D]; k is undefined for methods that share queries and keys
  Tensor mask;            // [B, N]
  bool combined = false;  // k and v are [B, H, M, D], of Method::combine_rows; q and k are then
                          // undefined for methods that look at values alone
};

/// What keys and values are projected from in place of the rows of x: C x, with M rows.
struct CombinedRows {
  Var rows;  // C x: [B, M, E]
  Var sums;  // C 1, what a bias is to be multiplied by: [B, M, 1]
};

/// Random arrays of one call by name ("landmarks", "keep", …). A method draws them itself; tests
/// and goldens inject theirs.
class Draws {
 public:
  void set(const std::string& name, Tensor value);
  [[nodiscard]] const Tensor* find(const std::string& name) const;  ///< nullptr if absent
  [[nodiscard]] const Tensor& get(const std::string& name) const;   ///< throws Error if absent
  [[nodiscard]] const std::vector<std::pair<std::string, Tensor>>& all() const { return all_; }

  /// What drawing had to compute from its inputs and forward() of the same inputs would compute
  /// again; never injected, so forward() must do without.
  void cache(const std::string& name, Tensor value) {
    cached_.emplace_back(name, std::move(value));
  }
  [[nodiscard]] const Tensor* cached(const std::string& name) const;  ///< nullptr if absent

 private:
  std::vector<std::pair<std::string, Tensor>> all_, cached_;
};

/// The circumstances of one call, besides its inputs.
struct Call {
  bool training = false;            // dropout on
  Random random;                    // of this step and layer
  std::int64_t first_example = 0;   // index of batch entry 0 in the full batch (accumulation)
  Tensor fewest_tokens;             // i32[1] on the device: smallest number of real tokens of an
                                    // example in the full batch; undefined: that of the mask
  const Draws* injected = nullptr;  // replace what the method would draw
  /// Sees what goes in and what comes out (approximation studies); usually empty.
  std::function<void(const Inputs& inputs, const Tensor& out)> observe;
};

/// Gradients of a call. Undefined tensors mean zero; `parameters` in the order of
/// Method::parameters().
struct Gradients {
  Tensor dq, dk, dv;  // [B, H, N, D]
  std::vector<Tensor> parameters;
};

/// Output of a call and the function that differentiates it; the closure holds what was saved.
struct Result {
  Tensor out;  // [B, H, N, D]
  std::function<Gradients(const Tensor& dout)> backward;
};

class Method {
 public:
  virtual ~Method() = default;

  /// Trainable parameters of this layer (often none).
  [[nodiscard]] virtual std::vector<Parameter*> parameters() const { return {}; }

  /// True where a batch must be computed at once, since its examples enter each other's results
  /// beyond the budget that Call::fewest_tokens gives to all.
  [[nodiscard]] virtual bool needs_whole_batch() const { return false; }

  /// For methods that form linear combinations of keys and of values along the sequence, C K and
  /// C V with one C for all heads: since C (x Wᵀ + 1 bᵀ) = (C x) Wᵀ + (C 1) bᵀ, fewer rows need
  /// to be projected. x: [B, N, E], mask: [B, N]. Nothing where C K and C V must be formed as they
  /// are written.
  [[nodiscard]] virtual std::optional<CombinedRows> combine_rows(Var, const Tensor&) const {
    return std::nullopt;
  }

  /// Draws every random array of a call that is stored rather than regenerated.
  [[nodiscard]] virtual Draws draw(const Inputs&, const Call&) const { return {}; }

  /// Forward pass; `draws` holds what draw() returned, with injected arrays in place.
  [[nodiscard]] virtual Result forward(const Inputs& inputs, const Draws& draws,
                                       const Call& call) const = 0;

  /// The same mathematics composed from basic differentiable ops, slow and obvious: the oracle of
  /// forward and backward. Parameters enter with tape.parameter().
  [[nodiscard]] virtual Var reference(Var q, Var k, Var v, const Tensor& mask, const Draws& draws,
                                      const Call& call) const = 0;
};

/// A setting in which a method must equal another one, for the registry-driven test.
struct Exact {
  std::string when;    // in words: "landmarks = all rows"
  std::string equals;  // "softmax" or "kernelized"
  OptionValues options;
  std::function<Draws(const Inputs&)> draws;  // what to inject (may be empty)
  double tolerance = 1e-10;                   // relative, f64
};

/// What a cost depends on, as numbers that formulas can be evaluated and solved with.
struct CostSizes {
  double n = 0;         // N
  double features = 0;  // of methods with that option
  double width = 0;     // D
};

/// Multiply-adds of all scalar products, for one head of one example, with options other than
/// `features` at their defaults. Exponentials, sums and sorting are not counted.
struct Cost {
  double forward = 0, backward = 0;
  friend Cost operator+(Cost a, Cost b) { return {a.forward + b.forward, a.backward + b.backward}; }
};

/// Multiply-adds of a layer that projects combined rows, for one example.
struct CombinedCost {
  double rows = 0;  // M
  Cost combining;   // C x and C 1
  Cost attention;   // of one head, in place of Spec::cost_at
};

/// One row of the registry: everything the rest of the program knows about a method.
struct Spec {
  std::string name;
  std::string paper;                     // paper and equation
  std::string idea;                      // one line
  std::string cost;                      // leading forward multiply-adds per head
  std::string memory;                    // beyond q, k, v, out
  std::string approximates = "softmax";  // the exact attention that it stands for: "softmax",
                                         // "kernelized", "shared_qk"; empty: it is exact itself
  bool shared_qk = false;                // takes no W_k: queries serve as keys
  bool values_only = false;              // neither queries nor keys enter: W_q, W_k stay untrained
  bool random = false;                   // draws anew at every call
  bool reads_padding = false;  // padded positions enter the result: batches are not trimmed
  bool per_example = true;     // false: how much an example may use, its budget, depends on the
                               // shortest one of the batch (Call::fewest_tokens)
  std::vector<Exact> exact;    // empty: never
  std::vector<OptionValues> samples;  // settings that tests run, the default among them
  std::vector<OptionInfo> options;    // keys, defaults, ranges, meanings
  std::function<std::unique_ptr<Method>(const LayerContext&, const OptionValues&)> make;

  /// Every term of the cost. A test compares it with a count.
  std::function<Cost(const CostSizes&)> cost_at;
  /// The same where Method::combine_rows gives something at default options; empty: nowhere.
  std::function<CombinedCost(const CostSizes&, double columns)> combined_cost_at;
  /// Forward multiply-adds as the Skeinformer paper's Table 3 states them; empty: not in it.
  std::function<double(const CostSizes&)> paper_cost;
  /// Operations that must wait for one another, as Linformer's Table 1 counts them.
  std::string sequential = "O(1)";

  [[nodiscard]] bool has_option(std::string_view key) const;
};

/// Runs a method as one node of the tape; which of q, k and v may be undefined: see Inputs.
[[nodiscard]] Var apply(const Method& method, Var q, Var k, Var v, const Tensor& mask,
                        const Call& call, bool combined = false);

}  // namespace skytape::attention
