// The tape: nodes in creation order, which is a topological order; backward walks it from the back.
//
//   Tape tape;
//   const Var x = tape.input(value);   // a leaf to differentiate by
//   const Var y = sum_all(square(x));  // each op computes its value and appends a node (ops.hpp)
//   tape.backward(y);                  // from the last node to the first
//   tape.grad(x);                      // 2 x
//
// A Tensor is a handle on shared memory: a node that keeps one copies no numbers.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "autograd/gradient_sums.hpp"
#include "autograd/parameter.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape {

class Tape;
class TapePlace;   // tape_place.hpp
struct TapeEvent;  // observers.hpp
using TapeObserver = std::function<void(const TapeEvent&)>;

/// A backward function gave a gradient that does not have its input's shape, dtype and device.
/// Tape::backward and gradcheck throw it.
struct GradientError : Error {
  using Error::Error;
};

/// A value on a tape; copying is free. A default-made Var is undefined and stands for an absent
/// input. One whose tape is gone is an Error in every member but defined().
class Var {
 public:
  Var() = default;
  /// The reference stays valid while the tape grows. Backward empties the value of every op on the
  /// tape, reached or not; only leaves and the output that it began at keep theirs.
  [[nodiscard]] const Tensor& value() const;
  [[nodiscard]] const Shape& shape() const { return value().shape(); }
  [[nodiscard]] std::int64_t size(int axis) const { return value().size(axis); }
  [[nodiscard]] bool needs_grad() const;
  [[nodiscard]] bool defined() const { return place_ != nullptr; }
  [[nodiscard]] Tape& tape() const;

 private:
  friend class Tape;
  const TapePlace* place_ = nullptr;
  std::uint32_t generation_ = 0;  // of the place when the Var was made
  int node_ = -1, output_ = 0;
};

/// Collects the gradients of a backward function, one per input. Each is a fresh or a shared
/// tensor; the tape adds up the gradients that several nodes give to one input.
class Grads {
 public:
  /// A gradient for input i, in the input's shape, dtype and device; undefined means zero. The tape
  /// reads it until backward ends, and nobody writes into it: one tensor may be given to several
  /// inputs, and dy itself may be passed on.
  void add(int i, Tensor gradient);
  /// A sparse gradient for input i, a table [S, E] such as an embedding: rows[j], of [T, E],
  /// belongs to row index[j], of i32[T], and what no entry names is zero. A parameter's own buffer
  /// is then touched at these rows only, which is what makes large tables affordable. Undefined
  /// rows: zero.
  void add_rows(int i, const Tensor& index, const Tensor& rows);
  /// False when input i is absent or needs no gradient: guards costly terms.
  [[nodiscard]] bool needs(int i) const;

 private:
  friend class Tape;
  Grads(Tape& tape, int node) : tape_(tape), node_(node) {}
  Tape& tape_;
  int node_;
};

/// Turns dLoss/dvalue of a node into gradients of its inputs. It lives in the node until backward
/// has passed: what it captures by value stays alive, but what it reaches through a pointer, a
/// reference or `this` must outlive Tape::backward. A model, its layers, their attention::Method
/// objects and the ParameterStore are therefore made before the tape and outlive it.
using Backward = std::function<void(const Tensor& dy, Grads& g)>;
/// Turns the gradients of several outputs into those of the inputs. dy[i] is undefined where no
/// gradient reached output i; at least one is defined.
using BackwardOfSeveral = std::function<void(std::span<const Tensor> dy, Grads& g)>;

/// Names a value on the tape: an output of a node; node -1: absent.
struct ValueIndex {
  int node = -1, output = 0;
};

/// A node as a reader sees it, for printing (tape_print.hpp).
struct NodeView {
  const char* name;                    // of the op; "leaf"
  std::span<const ValueIndex> inputs;  // of earlier nodes
  std::vector<const Tensor*> values;   // as Var::value(), but undefined where that is an Error
  const Parameter* parameter;          // of a leaf made by Tape::parameter; nullptr otherwise
  bool needs_grad;
  bool is_input;  // a leaf made by Tape::input
};

class Tape {
 public:
  enum class Mode { train, eval };  // eval records no backward
  explicit Tape(Mode mode = Mode::train);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  [[nodiscard]] Mode mode() const { return mode_; }

  /// A leaf whose gradient goes to the parameter's own buffer (added to what is there). It shares
  /// the parameter's value, which nothing may write before backward has ended. A constant buffer
  /// receives no gradient.
  [[nodiscard]] Var parameter(Parameter& parameter);
  /// A leaf to differentiate by, whose gradient is read with grad() after backward. A model's data
  /// are constants.
  [[nodiscard]] Var input(Tensor value);
  /// A leaf that receives none.
  [[nodiscard]] Var constant(Tensor value);

  /// Appends a node: its inputs, its value, and how dLoss/dvalue becomes gradients of the inputs.
  /// `name` must outlive the tape (a literal). Inputs may be undefined (absent); the others are on
  /// this tape, with the value's dtype and device. The closure is dropped when no input needs a
  /// gradient.
  [[nodiscard]] Var record(const char* name, std::span<const Var> inputs, Tensor value,
                           Backward backward);
  /// Appends a node of several outputs, as record() does one of a single output.
  [[nodiscard]] std::vector<Var> record_several(const char* name, std::span<const Var> inputs,
                                                std::vector<Tensor> values,
                                                BackwardOfSeveral backward);

  /// Starts from the cotangent dLoss/dvalue of `output` and walks back. Absent: 1, and `output`
  /// must have one element. Runs once per tape: nodes release what they saved, and their values, as
  /// they are consumed. If it throws, the tape is used up all the same, and parameters may hold
  /// part of the gradients, which zero_gradients() clears.
  void backward(Var output, Tensor cotangent = {});

  /// In eval mode, releases the values of the ops from node `first` on, but for `kept`: a forward
  /// pass then holds one layer's values, not all layers'. No effect in train mode: backward reads
  /// them.
  void release_since(int first, std::span<const Var> kept);

  /// dLoss/dv of an `input` leaf; undefined when nothing reached it. Error before backward.
  [[nodiscard]] Tensor grad(Var v) const;

  /// Adds the gradients that wait (gradient_sums.hpp) to their parameters' buffers: an observer
  /// that reads these during backward calls it first.
  void add_waiting_gradients() { sums_.add_waiting(); }

  /// Calls the observer at each event from now on, after the observers that are there.
  void observe(TapeObserver observer) { observers_.push_back(std::move(observer)); }

  /// Returns the tape's position, for messages: "after op 'linear'" or "in the backward of
  /// 'linear'".
  [[nodiscard]] std::string position() const;
  [[nodiscard]] int size() const { return static_cast<int>(nodes_.size()); }  ///< nodes
  /// Stays valid while the tape grows.
  [[nodiscard]] NodeView node(int index) const;

 private:
  friend class Var;
  friend class Grads;
  struct Output {
    Tensor value;
    Tensor gradient;                // dLoss/dvalue as far as the walk has come
    bool gradient_is_ours = false;  // the tape allocated it and adds in place; else it is shared
  };
  struct Node {
    const char* name = "leaf";
    std::vector<ValueIndex> inputs;  // of earlier nodes
    std::vector<Output> outputs;
    BackwardOfSeveral backward;
    Parameter* parameter = nullptr;  // of a leaf; receives the gradient where one is needed
    bool needs_grad = false;
    bool is_input = false;
  };
  Var leaf(Tensor value, bool needs_grad, Parameter* parameter = nullptr, bool is_input = false);
  [[nodiscard]] Var var(int node, int output) const;
  [[nodiscard]] Node& node_at(int index) { return nodes_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] Output& output_of(ValueIndex at) {
    return node_at(at.node).outputs[static_cast<std::size_t>(at.output)];
  }
  [[nodiscard]] ValueIndex index_of(const char* caller, Var v) const;
  void accumulate(ValueIndex at, Tensor gradient);
  void consume(int index);
  void notify(const TapeEvent& event);

  std::deque<Node> nodes_;  // a deque: references to values survive appending
  Mode mode_;
  TapePlace& place_;
  GradientSums sums_;  // of parameters
  std::vector<TapeObserver> observers_;
  bool consumed_ = false, finished_ = false;  // backward has begun, has ended
  int consuming_ = -1;                        // node whose backward runs, or has thrown; else -1
};

/// Records on the tape of the first defined input (see Tape::record).
[[nodiscard]] Var record(const char* name, std::initializer_list<Var> inputs, Tensor value,
                         Backward backward);

}  // namespace skytape
