#include "autograd/tape.hpp"

#include <algorithm>
#include <utility>

#include "autograd/observers.hpp"
#include "autograd/tape_place.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/gather.hpp"

namespace skytape {

// ---- Var ---------------------------------------------------------------------------------------

Tape& Var::tape() const {
  ENSURE(defined(), "Var: undefined; Tape::parameter, input, constant and ops make defined ones");
  ENSURE(place_->generation() == generation_,
         "Var: its Tape is gone; keep the Tape as long as its Vars, or the Tensor of value()");
  return place_->tape();
}

const Tensor& Var::value() const {
  Tape& on = tape();
  const Tensor& value = on.output_of({node_, output_}).value;
  ENSURE(value.defined(), on.node_at(node_).name,
         ": its value was released by Tape::backward or release_since; read it before");
  return value;
}

bool Var::needs_grad() const { return defined() && tape().node_at(node_).needs_grad; }

// ---- leaves and nodes --------------------------------------------------------------------------

Tape::Tape(Mode mode) : mode_(mode), place_(TapePlace::take(this)) {}
Tape::~Tape() { place_.leave(); }

void Tape::notify(const TapeEvent& event) {
  for (const TapeObserver& observer : observers_) observer(event);
}

Var Tape::var(int node, int output) const {
  Var v;
  v.place_ = &place_;
  v.generation_ = place_.generation();
  v.node_ = node;
  v.output_ = output;
  return v;
}

Var Tape::leaf(Tensor value, bool needs_grad, Parameter* parameter, bool is_input) {
  Node node;
  node.outputs.push_back({std::move(value), {}});
  node.needs_grad = mode_ == Mode::train && needs_grad;
  node.parameter = parameter;
  node.is_input = is_input;
  nodes_.push_back(std::move(node));
  return var(size() - 1, 0);
}

Var Tape::parameter(Parameter& parameter) {
  ENSURE(parameter.value.defined(), "Tape::parameter: parameter ", parameter.name,
         " has no value yet; ParameterStore::pack comes first");
  notify({TapeEvent::Kind::parameter, parameter.name.c_str(), size(), 0, parameter.value});
  // A running average takes part as if it needed a gradient: what ops give to Grads::add are its
  // sums, which collect in `grad` until ParameterStore::update_averages.
  return leaf(parameter.value, parameter.trainable || parameter.decay > 0, &parameter);
}

Var Tape::input(Tensor value) {
  tensor::require_float("Tape::input", value);
  return leaf(std::move(value), true, nullptr, true);
}

Var Tape::constant(Tensor value) {
  tensor::require_float("Tape::constant", value);
  return leaf(std::move(value), false);
}

std::vector<Var> Tape::record_several(const char* name, std::span<const Var> inputs,
                                      std::vector<Tensor> values, BackwardOfSeveral backward) {
  ENSURE(!values.empty(), name, ": expected at least one output, got none");
  for (const Tensor& value : values) tensor::require_float(name, value);
  Node node;
  node.name = name;
  for (const Var& input : inputs) {
    node.inputs.push_back({input.node_, input.output_});
    if (!input.defined()) continue;
    ENSURE(&input.tape() == this, name, ": input ", node.inputs.size() - 1,
           " is not on this tape, as another input is");
    const Tensor& x = input.value();
    for (const Tensor& value : values) {
      ENSURE(x.dtype() == value.dtype() && x.device() == value.device(), name,
             ": dtype or device of input ", node.inputs.size() - 1,
             " differs from the result's: ", x, ", ", value);
    }
    node.needs_grad = node.needs_grad || input.needs_grad();
  }
  ENSURE(backward != nullptr || !node.needs_grad || mode_ == Mode::eval, name,
         ": an input needs a gradient, and there is no backward function");
  if (node.needs_grad) node.backward = std::move(backward);
  std::vector<Var> outputs;
  for (Tensor& value : values) {
    const int index = static_cast<int>(outputs.size());
    notify({TapeEvent::Kind::output, name, size(), index, value});
    node.outputs.push_back({std::move(value), {}});
    outputs.push_back(var(size(), index));
  }
  nodes_.push_back(std::move(node));
  return outputs;
}

Var Tape::record(const char* name, std::span<const Var> inputs, Tensor value, Backward backward) {
  BackwardOfSeveral of_one;
  if (backward) {
    of_one = [backward = std::move(backward)](std::span<const Tensor> dy, Grads& g) {
      backward(dy[0], g);
    };
  }
  return record_several(name, inputs, {std::move(value)}, std::move(of_one))[0];
}

Var record(const char* name, std::initializer_list<Var> inputs, Tensor value, Backward backward) {
  for (const Var& input : inputs) {
    if (!input.defined()) continue;
    return input.tape().record(name, std::span<const Var>(inputs.begin(), inputs.size()),
                               std::move(value), std::move(backward));
  }
  throw Error(join(name, ": every input is undefined"));
}

// ---- backward ----------------------------------------------------------------------------------

void Tape::backward(Var output, Tensor cotangent) {
  const ValueIndex at = index_of("Tape::backward", output);
  ENSURE(mode_ == Mode::train,
         "Tape::backward: this tape is in eval mode and recorded no backward");
  ENSURE(!consumed_, "Tape::backward: runs once per tape, and this one is consumed");
  const Tensor result = output_of(at).value;
  ENSURE(output.needs_grad(), "Tape::backward: output '", node_at(at.node).name, "' ", result,
         " depends on no parameter or input");
  if (!cotangent.defined()) {
    ENSURE(result.numel() == 1,
           "Tape::backward: without a cotangent the output must be one element, got ", result);
    cotangent = ones_like(result, result.shape());
  }
  ENSURE(cotangent.shape() == result.shape() && cotangent.dtype() == result.dtype() &&
             cotangent.device() == result.device(),
         "Tape::backward: cotangent ", cotangent, " for output ", result);
  consumed_ = true;
  accumulate(at, std::move(cotangent));
  for (int i = size() - 1; i >= 0; --i) consume(i);
  consuming_ = -1;
  if (sums_.add_waiting()) {
    notify({TapeEvent::Kind::backward, "gradients", at.node, at.output, result});
  }
  output_of(at).value = result;
  finished_ = true;
}

void Tape::consume(int index) {
  Node& node = node_at(index);
  if (node.inputs.empty()) return;  // leaves keep their value and gradient
  const BackwardOfSeveral backward = std::exchange(node.backward, nullptr);
  std::vector<Tensor> dy;
  Tensor reached;  // the last of dy that is defined
  for (Output& output : node.outputs) {
    dy.push_back(std::exchange(output.gradient, Tensor()));
    output.value = Tensor();
    if (dy.back().defined()) reached = dy.back();
  }
  if (!reached.defined() || !backward) return;
  consuming_ = index;
  Grads grads(*this, index);
  backward(dy, grads);
  notify({TapeEvent::Kind::backward, node.name, index, 0, reached});
}

bool Grads::needs(int i) const {
  const Tape::Node& node = tape_.node_at(node_);
  ENSURE(i >= 0 && i < static_cast<int>(node.inputs.size()), node.name,
         ": backward asks for input ", i, " of ", node.inputs.size());
  const ValueIndex input = node.inputs[static_cast<std::size_t>(i)];
  return input.node >= 0 && tape_.node_at(input.node).needs_grad;
}

void Grads::add(int i, Tensor gradient) {
  if (!needs(i) || !gradient.defined()) return;
  const Tape::Node& node = tape_.node_at(node_);
  const ValueIndex input = node.inputs[static_cast<std::size_t>(i)];
  const Tensor& value = tape_.output_of(input).value;
  if (gradient.shape() != value.shape() || gradient.dtype() != value.dtype() ||
      gradient.device() != value.device()) {
    throw GradientError(
        join(node.name, ": gradient of input ", i, " is ", gradient, ", the input is ", value));
  }
  tape_.notify({TapeEvent::Kind::gradient, node.name, node_, i, gradient});
  tape_.accumulate(input, std::move(gradient));
}

void Grads::add_rows(int i, const Tensor& index, const Tensor& rows) {
  if (!needs(i) || !rows.defined()) return;
  const Tape::Node& node = tape_.node_at(node_);
  const ValueIndex input = node.inputs[static_cast<std::size_t>(i)];
  const Tensor& table = tape_.output_of(input).value;  // [S, E]
  if (table.rank() != 2 || index.rank() != 1 ||
      rows.shape() != Shape{index.numel(), table.size(1)} || rows.dtype() != table.dtype() ||
      rows.device() != table.device()) {
    throw GradientError(join(node.name, ": gradient of input ", i, " is rows ", rows, " at ", index,
                             ", the input is ", table));
  }
  if (Parameter* const parameter = tape_.node_at(input.node).parameter) {
    tape_.notify({TapeEvent::Kind::gradient, node.name, node_, i, rows});
    return tape_.sums_.add_rows(*parameter, index, rows);
  }
  Tensor gradient = zeros_like(table, table.shape());  // [S, E]
  tensor::scatter_add_rows(gradient, index, rows);
  add(i, std::move(gradient));
}

// The first gradient is kept as it comes, without a copy. It may be shared (a + b hands dy to both
// inputs, reshape hands on a view), so the second one makes a fresh sum; only that is added to in
// place.
void Tape::accumulate(ValueIndex at, Tensor gradient) {
  if (Parameter* const parameter = node_at(at.node).parameter) {
    return sums_.add(*parameter, std::move(gradient));
  }
  Output& output = output_of(at);
  if (!output.gradient.defined()) {
    output.gradient = std::move(gradient);
  } else if (!output.gradient_is_ours) {
    output.gradient = tensor::add(output.gradient, gradient);
    output.gradient_is_ours = true;
  } else {
    tensor::accumulate(output.gradient, gradient);
  }
}

void Tape::release_since(int first, std::span<const Var> kept) {
  if (mode_ == Mode::train) return;
  std::vector<Tensor> values;
  for (const Var& v : kept) values.push_back(v.defined() ? v.value() : Tensor());
  for (int i = std::max(first, 0); i < size(); ++i) {
    if (node_at(i).inputs.empty()) continue;  // leaves keep theirs
    for (Output& output : node_at(i).outputs) output.value = Tensor();
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (kept[i].defined()) output_of({kept[i].node_, kept[i].output_}).value = values[i];
  }
}

Tensor Tape::grad(Var v) const {
  const ValueIndex at = index_of("Tape::grad", v);
  const Node& node = nodes_[static_cast<std::size_t>(at.node)];
  ENSURE(node.is_input,
         "Tape::grad: only leaves made by Tape::input keep their gradient, this is '", node.name,
         "'");
  ENSURE(finished_, "Tape::grad: Tape::backward has not ended on this tape");
  return node.outputs[0].gradient;
}

// ---- for readers -------------------------------------------------------------------------------

ValueIndex Tape::index_of(const char* caller, Var v) const {
  ENSURE(v.defined(), caller, ": the Var is undefined");
  ENSURE(&v.tape() == this, caller, ": the Var is on another tape");
  return {v.node_, v.output_};
}

std::string Tape::position() const {
  if (consuming_ >= 0) return join("in the backward of '", node(consuming_).name, "'");
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    if (!node->inputs.empty()) return join("after op '", node->name, "'");
  }
  return "before the first op";
}

NodeView Tape::node(int index) const {
  ENSURE(index >= 0 && index < size(), "Tape::node: expected an index below ", size(), ", got ",
         index);
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  std::vector<const Tensor*> values;
  for (const Output& output : node.outputs) values.push_back(&output.value);
  return {node.name, node.inputs, values, node.parameter, node.needs_grad, node.is_input};
}

}  // namespace skytape
