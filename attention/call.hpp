// One call of a method: what goes in, its circumstances, and what comes back.
//
// Notation: B batch, H heads, N queries and keys, D head width, M combined rows, E width of the
// layer's input.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/parameter.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/random/random.hpp"

namespace skytape::attention {

/// The context in which the factory (Spec::make) builds a layer. Parameters and constant buffers
/// (features, tables) are added to `store` under `prefix` ("model.transformer_0.mha.attn.").
struct LayerContext {
  int layer = 0;
  std::int64_t heads = 2;           // H
  std::int64_t head_width = 32;     // D
  std::int64_t nominal_length = 0;  // N before trimming: positions, poolings and buckets go by it
  std::string prefix;
  ParameterStore* store = nullptr;
  std::int64_t width = 64;  // E: for methods that read the layer's input
};

/// The mask has q's dtype: 1 = real token, 0 = padding. The ones need not come first.
struct Inputs {
  Tensor q, k, v;         // [B, H, N, D]; k is undefined for methods that share queries and keys; q
                          // and k may be for those that look at values alone
  Tensor mask;            // [B, N]
  bool combined = false;  // k and v are [B, H, M, D], of Method::combine_rows
  Tensor x = {};          // [B, N, E]: what q, k and v are projected from; undefined unless
                          // Spec::reads_x asks for it
  Tensor state = {};      // [B, ..]: what the layer before left, Result::state; undefined for the
                          // first layer
};

/// 1 / sqrt D, by which products of queries [.., D] and keys become scores.
[[nodiscard]] inline double score_scale(const Tensor& q) {
  return 1 / std::sqrt(static_cast<double>(q.size(3)));
}

/// Batch and heads as one axis: [B, H, n, p] -> [B H, n, p].
[[nodiscard]] inline Tensor joined(const Tensor& x) {
  return x.reshape({x.size(0) * x.size(1), x.size(2), x.size(3)});
}

/// Returns the bias of scores, log(mask_j) for a key j that counts mask_j times and -inf for
/// padding: [B, N] -> [B, 1, 1, N].
[[nodiscard]] Tensor key_bias(const Tensor& mask);
/// 1 for an example without real tokens, else 0: [B, 1, 1, 1]. Added to a divisor, 0 / 0 is 0 / 1.
[[nodiscard]] Tensor no_token(const Tensor& mask);

/// Random arrays of one call by name ("landmarks", "keep", …). A method draws them itself; tests
/// and goldens inject theirs.
class Draws {
 public:
  void set(const std::string& name, Tensor value);
  [[nodiscard]] const Tensor* find(const std::string& name) const;  ///< nullptr if absent
  [[nodiscard]] const Tensor& get(const std::string& name) const;   ///< throws Error if absent
  [[nodiscard]] const std::vector<std::pair<std::string, Tensor>>& all() const { return all_; }

  /// Optional: what drawing had to compute from its inputs and forward() of the same inputs would
  /// compute again. Never injected, so forward() must do without.
  void cache(const std::string& name, Tensor value) {
    cached_.emplace_back(name, std::move(value));
  }
  [[nodiscard]] const Tensor* cached(const std::string& name) const;  ///< nullptr if absent

 private:
  std::vector<std::pair<std::string, Tensor>> all_, cached_;
};

/// The circumstances of one call, besides its inputs.
struct Call {
  bool training = false;           // dropout on
  Random random;                   // of this step and layer
  std::int64_t first_example = 0;  // index of batch entry 0 in the full batch (accumulation)
  bool alone = false;    // every example as if it were the batch, as answers about it need
  Tensor fewest_tokens;  // i32[1] on the device: smallest number of real tokens of an
                         // example in the full batch; undefined: that of the mask
  const Draws* injected = nullptr;  // replace what the method would draw
  /// Returns the injected array of that name, nullptr if there is none.
  [[nodiscard]] const Tensor* given(const std::string& name) const {
    return injected == nullptr ? nullptr : injected->find(name);
  }
  /// Sees what goes in and what comes out (approximation studies); usually empty.
  std::function<void(const Inputs& inputs, const Tensor& out)> observe;
};

/// Gradients of a call. Undefined tensors mean zero; `parameters` in the order of
/// Method::parameters().
struct Gradients {
  Tensor dq, dk, dv;  // [B, H, N, D]; of combined rows dk, dv: [B, H, M, D]
  std::vector<Tensor> parameters;
  Tensor dx = {};      // [B, N, E]
  Tensor dstate = {};  // [B, ..], of the state that came in
  /// No gradients: what a training call adds to the sums of Method::averages(), in their order.
  std::vector<Tensor> sums = {};
};

/// Output of a call and the function that differentiates it; the closure holds what was saved.
struct Result {
  Tensor out;  // [B, H, N, D]
  std::function<Gradients(const Tensor& dout)> backward;

  /// The next layer's Inputs::state, for methods that hand one on (Spec::carries_state); their
  /// gradients come from both.
  Tensor state = {};  // [B, ..]
  std::function<Gradients(const Tensor& dout, const Tensor& dstate)> backward_with_state = {};
};

}  // namespace skytape::attention
