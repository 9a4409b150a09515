// Problems for the loop over the registry: inputs, masks, draws, and what a method makes of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/registry.hpp"

namespace skytape::test {

using attention::Call;
using attention::Draws;
using attention::Inputs;
using attention::Method;
using attention::OptionValues;
using attention::Spec;

/// Sizes of a problem; nominal 0 means that nothing is trimmed (= n).
struct Sizes {
  std::int64_t batch = 3, heads = 2, n = 37, width = 8, nominal = 0;
};

/// The padding of a batch's examples: 0 not at all, 1 at the end, 2 with holes, and so on.
enum class Padding { none, mixed, all };

/// A method with packed parameters.
struct Layer {
  std::unique_ptr<ParameterStore> store;
  std::unique_ptr<Method> method;
  [[nodiscard]] std::vector<Parameter*> trainable() const;  // without frozen ones
};
[[nodiscard]] Layer make_layer(const Spec& spec, const OptionValues& options, const Sizes& sizes,
                               DType dtype, Device device = Device::cpu);

/// False when the factory refuses these options at this length (UsageError): some methods need
/// lengths that are multiples of something.
[[nodiscard]] bool serves(const Spec& spec, const OptionValues& options, const Sizes& sizes);

/// No multiple of anything; a power of two; longer than a tile, even and odd.
inline constexpr std::int64_t kLengths[] = {37, 64, 256, 300};

/// Calls f for every method and each of its sample settings.
void each_sample(const std::function<void(const Spec&, const OptionValues&)>& f);

/// `sizes` with the first of kLengths that the method serves.
[[nodiscard]] Sizes first_served(const Spec& spec, const OptionValues& options, Sizes sizes = {});

struct Problem {
  Inputs in;    // q, k, v: [B, H, N, D], mask: [B, N], x: [B, N, E]; k undefined for shared
                // queries and keys, x unless the method reads it
  Tensor dout;  // [B, H, N, D]
};
/// Normal q, k, v, x and dout, f64 on the CPU. Different seeds, different numbers.
[[nodiscard]] Problem make_problem(const Spec& spec, const Sizes& sizes, Padding padding,
                                   std::uint64_t seed = 1);
/// The same numbers elsewhere; integers keep their type.
[[nodiscard]] Problem convert(const Problem& problem, DType dtype, Device device = Device::cpu);
[[nodiscard]] Draws convert(const Draws& draws, DType dtype, Device device = Device::cpu);

/// A training call with a fixed key; fewest_tokens counted from the mask.
[[nodiscard]] Call training_call(const Inputs& in);

/// Output and gradients by name: out, dq, dk, dv, dx, then parameters; without dk or dx where the
/// method takes no k or x. Undefined gradients are zeros.
using Outcome = std::vector<std::pair<std::string, Tensor>>;
[[nodiscard]] const Tensor& at(const Outcome& outcome, const std::string& name);

/// Returns whether an array of an outcome has a row for each position: the output and the inputs'
/// gradients.
[[nodiscard]] bool of_tokens(const std::string& name);

/// x [B, H, N, D] or [B, N, E] with each position times its weight. weights: [B, N].
[[nodiscard]] Tensor weigh_positions(const Tensor& x, const Tensor& weights);

/// Runs a method through the tape.
[[nodiscard]] Outcome run(const Layer& layer, const Problem& problem, const Call& call);
/// Runs its reference; call.injected must hold every draw.
[[nodiscard]] Outcome run_reference(const Layer& layer, const Problem& problem, const Call& call);

/// Frobenius norm, and norm of a difference, in f64 on the host.
[[nodiscard]] double norm(const Tensor& x);
[[nodiscard]] double distance(const Tensor& x, const Tensor& y);

/// Largest ||x - y|| / max(||y||, 1e-3 * largest norm of a gradient) over all arrays, with its
/// name: arrays that are zero in theory are measured against the others.
struct Worst {
  double error = 0;
  std::string name;
};
[[nodiscard]] Worst compare(const Outcome& x, const Outcome& y);

/// Norm below which an array of this outcome counts as zero (see compare).
[[nodiscard]] double smallest_scale(const Outcome& outcome);

/// x with entries [begin, end) of an axis.
[[nodiscard]] Problem narrow(const Problem& problem, std::int64_t length);  // of N
[[nodiscard]] Problem example(const Problem& problem, std::int64_t index);  // of B
[[nodiscard]] Problem permute(const Problem& problem, const std::vector<std::int64_t>& order);
[[nodiscard]] Tensor permute(const Tensor& x, const std::vector<std::int64_t>& order);
[[nodiscard]] Outcome narrow(const Outcome& outcome, std::int64_t length);

/// "linformer {features=16}" for messages.
[[nodiscard]] std::string describe(const Spec& spec, const OptionValues& options);

}  // namespace skytape::test
