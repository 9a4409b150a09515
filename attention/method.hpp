// The interface of an attention method: one coarse operation with its own backward.
//
// Read call.hpp first (what goes in and comes out), then this file, then spec.hpp (a method's row
// in the registry). methods/vmean.cpp shows every part that a method has.
//
// Notation: B batch, H heads, N queries and keys, D head width, M combined rows, E width of the
// layer's input.
#pragma once

#include <optional>
#include <vector>

#include "attention/call.hpp"
#include "attention/spec.hpp"
#include "attention/tiled_options.hpp"
#include "autograd/tape.hpp"

namespace skytape::attention {

/// Inputs on a tape. Any of them may be undefined where Inputs says so.
struct InputVars {
  Var q, k, v;     // [B, H, N, D]; combined k and v: [B, H, M, D]
  Var x = {};      // [B, N, E]
  Var state = {};  // [B, ..]
};

/// The outputs of a layer.
struct OutputVars {
  Var out;    // [B, H, N, D]
  Var state;  // [B, ..]; undefined unless the method carries one
};

/// The rows that keys and values are projected from in place of the rows of x: C x, with M rows.
struct CombinedRows {
  Var rows;  // C x: [B, M, E]
  Var sums;  // C 1, what a bias is to be multiplied by: [B, M, 1]
};

/// One layer's attention. Each sentence of this contract is a test case over all methods
/// (tests/attention/methods_test.cpp and contract_test.cpp, unless another file is named).
///
/// Padding         A padded key has no weight: what numbers stand at padded positions changes no
///                 real position's output, and they get a gradient of exactly zero. Infinity and
///                 NaN are no numbers: a weight of zero times either is NaN. What comes out at
///                 padded queries is up to the method; their cotangent, where the caller leaves
///                 one, may reach real keys and values. (Not with Spec::reads_padding.)
/// Empty sequence  An example without any real token gives finite output and gradients.
/// Trimming        A batch cut to its longest example gives what the padded one gives: whatever
///                 depends on a length goes by LayerContext::nominal_length. (Not with
///                 Spec::reads_padding.)
/// Batch           An example's output does not depend on the others, nor on its place in the
///                 batch, but for rounding; draws go by its index in the full batch,
///                 Call::first_example + b. (Not with Spec::per_example false, where
///                 Call::fewest_tokens enters, nor where needs_whole_batch().)
/// Alone           With Call::alone each example, whatever the method, gives what it gives as a
///                 batch of its own, but for rounding: draws as example 0, its own budget and
///                 maxima.
/// State           One that goes from layer to layer is made by the first, is a function of the
///                 example alone, and takes gradients back.
/// Averages        State that the whole batch shares changes between steps alone: what a call adds
///                 to it is a sum over its examples' real tokens (tests/train/step/).
/// Repeatability   A call is a function of its inputs, draws and Call: the same bits each time, on
///                 the same device with as many threads. Calls leave nothing behind in the method,
///                 so two of them on one tape do not disturb each other; nor do they write into
///                 their inputs or into dout.
/// Kinds           f32 and f64, on the CPU and on CUDA. In f32 and bf16 products the error is at
///                 most three times that of reference().
/// Cost            Spec::cost_at is the number of multiply-adds of the matrix products on a CPU
///                 (tests/attention/cost_test.cpp, where the build has oneDNN).
///                 Memory of a training step is linear in N (tests/train/step/methods_test.cpp).
/// Exact           What exact_attention() describes has the bits of forward().
///
/// Who calls what  apply() calls draw(), puts injected arrays in the place of its own, calls
///                 forward() and then Call::observe. The tape calls Result::backward once, or never
///                 when nothing needs a gradient (evaluation), and drops it. reference() is called
///                 by tests and studies, never in training.
/// Lifetimes       Result::backward may hold `this` and what the method points to (its
///                 parameters): whoever makes a method keeps it and its ParameterStore alive, and
///                 the method at its address, until the tapes of its calls are gone. nn::Model
///                 does. Inputs, Draws and Call end with forward(): the closure copies the tensors
///                 that it needs, which costs nothing.
class Method {
 public:
  virtual ~Method() = default;

  // ---- what every method defines ---------------------------------------------------------------

  /// Forward pass; `draws` holds what draw() returned, with injected arrays in place.
  [[nodiscard]] virtual Result forward(const Inputs& inputs, const Draws& draws,
                                       const Call& call) const = 0;

  /// The same mathematics composed from basic differentiable ops, slow and obvious: the oracle of
  /// forward and backward. Parameters enter with tape.parameter().
  [[nodiscard]] virtual Var reference(const InputVars& in, const Tensor& mask, const Draws& draws,
                                      const Call& call) const = 0;

  // ---- optional hooks --------------------------------------------------------------------------
  // Most methods need parameters and draws at most. Two more hooks are no functions: Draws::cache()
  // for what drawing computed anyway, and Call::observe, which apply() serves for every method.

  /// Parameters of this layer that forward() differentiates, in the order of Gradients::parameters
  /// (among them some that are frozen). Default: none.
  [[nodiscard]] virtual std::vector<Parameter*> parameters() const { return {}; }

  /// Running averages of this layer (ParameterStore::add_average), in the order of Gradients::sums:
  /// state without gradient that moves once a step, by the sums over the whole batch. Default:
  /// none.
  [[nodiscard]] virtual std::vector<Parameter*> averages() const { return {}; }

  /// Draws every random array of a call that is stored rather than regenerated. Default: none.
  [[nodiscard]] virtual Draws draw(const Inputs&, const Call&) const { return {}; }

  /// True if a batch must be computed as a whole, since its examples enter each other's results
  /// beyond the budget that Call::fewest_tokens gives to all. Default: false.
  [[nodiscard]] virtual bool needs_whole_batch() const { return false; }

  /// For methods that form linear combinations of keys and of values along the sequence, C K and
  /// C V with one C for all heads: since C (x Wᵀ + 1 bᵀ) = (C x) Wᵀ + (C 1) bᵀ, fewer rows need
  /// to be projected. x: [B, N, E], mask: [B, N]. forward() then sees Inputs::combined. Default:
  /// nothing, C K and C V are formed as they are written.
  [[nodiscard]] virtual std::optional<CombinedRows> combine_rows(Var, const Tensor&) const {
    return std::nullopt;
  }

  /// For methods that are exact attention and no more: the options by which tiled attention computes
  /// a call, so that a model may compute the layer as one operation (tiled/tiled_layer.hpp).
  /// Default: nothing, forward() is the method.
  [[nodiscard]] virtual std::optional<TiledOptions> exact_attention(std::int64_t,
                                                                    const Call&) const {
    return std::nullopt;
  }

  /// reference() of Result::state, for methods that carry one. Default: undefined.
  [[nodiscard]] virtual Var reference_state(const InputVars&, const Tensor&, const Draws&,
                                            const Call&) const {
    return {};
  }
};

/// Runs a method as one node of the tape; where it carries a state, as two, of which one only keeps
/// the output's gradient until that of the state is there.
[[nodiscard]] OutputVars apply_with_state(const Method& method, const InputVars& vars,
                                          const Tensor& mask, const Call& call,
                                          bool combined = false);

/// Runs a method in the same way on rows that are not combined. Returns the output alone.
[[nodiscard]] Var apply(const Method& method, const InputVars& vars, const Tensor& mask,
                        const Call& call);

}  // namespace skytape::attention
