// The tape: nodes in creation order, which is a topological order; backward walks it from the back.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "autograd/parameter.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape {

class Tape;

/// A backward function gave a gradient that does not have its input's shape, dtype and device.
/// Tape::backward and gradcheck throw it; the tape is used up then, its parameters are not: a
/// program that catches it may correct the function and record anew.
struct GradientError : Error {
  using Error::Error;
};

/// A value on a tape; copying is free. A default-made Var is undefined and stands for an absent
/// input. One whose tape is gone is an Error wherever it is used.
class Var {
 public:
  Var() = default;
  /// Stays valid while the tape grows. Backward releases the values of ops it has passed: read
  /// them before; those of leaves and of the output remain.
  [[nodiscard]] const Tensor& value() const;
  [[nodiscard]] const Shape& shape() const { return value().shape(); }
  [[nodiscard]] std::int64_t size(int axis) const { return value().size(axis); }
  [[nodiscard]] bool needs_grad() const;
  [[nodiscard]] bool defined() const { return tape_ != nullptr; }
  [[nodiscard]] Tape& tape() const;

 private:
  friend class Tape;
  Var(Tape* tape, int index, std::uint32_t tape_number)
      : tape_(tape), index_(index), tape_number_(tape_number) {}
  Tape* tape_ = nullptr;
  int index_ = -1;
  std::uint32_t tape_number_ = 0;  // a new tape may have the address of a dead one
};

/// Collects the gradients of a backward function, one per input. Each is a fresh or a shared
/// tensor; the tape adds up the gradients that several nodes give to one input.
class Grads {
 public:
  /// A gradient for input i, in the input's shape, dtype and device; undefined means zero. The tape
  /// reads it and never writes into it, so one tensor may be given to several inputs, and dy itself
  /// may be passed on.
  void add(int i, Tensor gradient);
  /// A sparse gradient for input i, a table [S, E] such as an embedding: rows[j], of [T, E], belongs
  /// to row index[j], of i32[T], and what no entry names is zero. A parameter's own buffer is then
  /// touched at these rows only, which is what makes large tables affordable.
  void add_rows(int i, const Tensor& index, const Tensor& rows);
  /// False when input i is absent or needs no gradient: guards costly terms.
  [[nodiscard]] bool needs(int i) const;

 private:
  friend class Tape;
  Grads(Tape& tape, int node) : tape_(tape), node_(node) {}
  Tape& tape_;
  int node_;
};

/// Seconds by the op's name, forward and backward together.
using OpSeconds = std::map<std::string, double>;

/// Turns dLoss/dvalue of a node into gradients of its inputs. It lives in the node until backward
/// has passed: what it captures by value stays alive, but what it reaches through a pointer, a
/// reference or `this` must outlive Tape::backward. A model, its layers, their attention::Method
/// objects and the ParameterStore are therefore made before the tape and outlive it.
using Backward = std::function<void(const Tensor& dy, Grads& g)>;

/// A node as a reader sees it, for printing (tape_print.hpp).
struct NodeView {
  const char* name;             // of the op; "leaf"
  std::span<const int> inputs;  // indices of earlier nodes; -1: absent
  const Tensor& value;          // undefined once backward has passed
  const Parameter* parameter;   // of a leaf made by Tape::parameter; nullptr otherwise
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

  /// A leaf whose gradient goes to the parameter's own buffer (added to what is there).
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

  /// Starts from the cotangent dLoss/dvalue of `output` (one if absent; output is then a single
  /// element) and walks back. Runs once per tape: nodes release what they saved, and their values,
  /// as they are consumed.
  void backward(Var output, Tensor cotangent = {});

  /// dLoss/dv of an `input` leaf after backward; undefined when nothing reached it.
  [[nodiscard]] Tensor grad(Var v) const;

  /// Names the first op whose output (forward) or gradient (backward) is not finite, by throwing
  /// NonFiniteError. Reads back from the device after each op: for finding faults, not for speed.
  void check_finite(bool on) { check_finite_ = on; }

  /// Adds the time of each op to `seconds` from now on. Time between two ops is added to
  /// the later one. Waits for the device after each op.
  void time_ops(OpSeconds& seconds);

  /// Returns the tape's position, for messages: "after op 'linear'" or "in the backward of
  /// 'linear'".
  [[nodiscard]] std::string position() const;
  /// Name of every node in order, leaves as "leaf".
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] int size() const { return static_cast<int>(nodes_.size()); }  ///< nodes
  /// Stays valid while the tape grows.
  [[nodiscard]] NodeView node(int index) const;

 private:
  friend class Var;
  friend class Grads;
  struct Node {
    const char* name = "leaf";
    std::vector<int> inputs;  // indices of earlier nodes; -1: absent
    Tensor value;
    Tensor gradient;  // dLoss/dvalue as far as the walk has come
    Backward backward;
    Parameter* parameter = nullptr;  // of a leaf; receives the gradient where one is needed
    bool needs_grad = false;
    bool is_input = false;
    bool gradient_is_ours = false;  // a sum the tape made: nobody else reads it, add in place
  };
  Var append(Node node);
  [[nodiscard]] const Node& node_of(const char* caller, Var v) const;
  void accumulate(Node& node, Tensor gradient);
  void accumulate_pending();
  void consume(Node& node, int index);
  void add_time(const char* name, Device device);

  std::deque<Node> nodes_;  // a deque: references to values survive appending
  Mode mode_;
  std::uint32_t number_;  // no other living tape has it
  bool check_finite_ = false;
  bool consumed_ = false;
  struct Pending {
    Parameter* parameter;
    Tensor gradient;  // to be added to the parameter's
  };
  std::vector<Pending> pending_;  // each parameter once; added up to 1 MiB at a time
  std::int64_t pending_bytes_ = 0;
  int consuming_ = -1;                           // node whose backward was called last
  OpSeconds* seconds_ = nullptr;                 // where times are added; nullptr: none are taken
  std::chrono::steady_clock::time_point timed_;  // up to here
};

/// Records on the tape of the first defined input (see Tape::record).
[[nodiscard]] Var record(const char* name, std::initializer_list<Var> inputs, Tensor value,
                         Backward backward);

/// Turns the gradients of several outputs, undefined where nothing reads one, into the inputs'.
using BackwardOfSeveral = std::function<void(std::vector<Tensor>& dy, Grads& g)>;

/// An op of several outputs, on the tape of the first input. A node has one output, so the
/// outputs are nodes whose only input is an empty node, [0]. Their backward stores their gradients; the
/// empty node stands before them on the tape, so that its backward runs last and has all gradients.
[[nodiscard]] std::vector<Var> record_several(const char* name, const std::vector<Var>& inputs,
                                              const std::vector<Tensor>& values,
                                              BackwardOfSeveral backward);

}  // namespace skytape
