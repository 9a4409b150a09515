// Parameters: named tensors and their gradients, packed into flat buffers, so that
// the optimiser and checkpoints work on a few long arrays instead of many short ones.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "tensor/core/tensor.hpp"

namespace skytape {

struct Random;

/// Each parameter starts at a multiple of so many bytes in the flat buffers.
inline constexpr std::int64_t kParameterAlignment = 64;

/// Fills a fresh f64 CPU tensor of the parameter's shape from a random sequence of its own
/// (initial_values.hpp has the usual ones).
using Initialiser = std::function<Tensor(const Shape& shape, const Random& random)>;

/// A tensor that outlives tapes, and its gradient: views into the store's flat buffers.
struct Parameter {
  std::string name;  // as in the papers' PyTorch model, e.g. "model.transformer_0.mha.W_q.weight"
  Shape shape;
  Initialiser initialise;
  bool trainable = true;      // false: in the checkpoint but not in the optimiser
  double decay = 0;           // of a running average, which is not trainable; 0: no average
  bool has_gradient = false;  // set when a backward pass reached it; the optimiser skips the others
  Tensor value;               // [shape]
  Tensor grad;                // [shape]; of an average, the sums of the step; undefined for a
                              // constant buffer
  std::int64_t offset = 0;    // of its first element in the flat buffers
};

/// All parameters of a model. First every module declares its own with add(), then pack() allocates
/// the flat buffers and initialises every value from the seed and the parameter's name, so that
/// adding a parameter changes no other's initial value.
class ParameterStore {
 public:
  ParameterStore() = default;
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  /// Declares a parameter; the reference stays valid. Throws if the name exists or after pack().
  Parameter& add(const std::string& name, const Shape& shape, Initialiser initialise,
                 bool trainable = true);
  /// Declares a running average: state without gradient that follows what the calls of a step add
  /// up, in the order and with the exchange of gradients. decay in (0, 1).
  Parameter& add_average(const std::string& name, const Shape& shape, Initialiser initialise,
                         double decay);
  /// The parameter of that name if it exists already (layers may share one), else nullptr.
  [[nodiscard]] Parameter* find(const std::string& name);

  /// Allocates values and gradients and draws every initial value (in f64 on the CPU, then
  /// converted: the same for all dtypes and devices). dtype is f32 or f64; runs once.
  void pack(DType dtype, Device device, std::uint64_t seed);
  [[nodiscard]] bool packed() const { return values_.defined(); }

  [[nodiscard]] std::deque<Parameter>& parameters() { return parameters_; }
  [[nodiscard]] const std::deque<Parameter>& parameters() const { return parameters_; }
  /// All values, flat: trainable parameters first, then averages, then constant buffers, each start
  /// 64-byte aligned, zeros between.
  [[nodiscard]] Tensor& values() { return values_; }
  /// All gradients, flat: trainable parameters and averages, at the offsets of the values.
  [[nodiscard]] Tensor& gradients() { return gradients_; }
  [[nodiscard]] std::int64_t trainable_size() const { return trainable_size_; }  // flat elements
  [[nodiscard]] std::int64_t parameter_count() const;  // trainable scalars, padding not counted
  void zero_gradients();  // zeroes the flat gradient and every has_gradient flag
  /// Once a step, in addition to the optimiser: value <- decay value + (1 - decay) sums of the
  /// step, for every average that a backward pass reached.
  void update_averages();

 private:
  void draw_initial_values(std::uint64_t seed);  // in initial_values.cpp

  std::deque<Parameter> parameters_;
  Tensor values_, gradients_;
  std::int64_t trainable_size_ = 0;
};

}  // namespace skytape
