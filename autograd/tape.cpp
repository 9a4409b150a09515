#include "autograd/tape.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "tensor/core/gpu_count.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/gather.hpp"

namespace skytape {

// ---- Var ---------------------------------------------------------------------------------------

const Tensor& Var::value() const {
  const Tape::Node& node = tape().nodes_[static_cast<std::size_t>(index_)];
  ENSURE(node.value.defined(), node.name,
         ": its value was released by Tape::backward; read it before");
  return node.value;
}

bool Var::needs_grad() const {
  return defined() && tape().nodes_[static_cast<std::size_t>(index_)].needs_grad;
}

// ---- leaves and nodes --------------------------------------------------------------------------

namespace {

void require_float(const char* caller, const Tensor& t) {
  ENSURE(t.defined() && t.dtype() != DType::i32, caller, ": expected a f32 or f64 tensor, got ", t);
}

}  // namespace

Var Tape::append(Node node) {
  nodes_.push_back(std::move(node));
  return Var(this, static_cast<int>(nodes_.size()) - 1, number_);
}

Var Tape::parameter(Parameter& parameter) {
  ENSURE(parameter.value.defined(), "Tape::parameter: parameter ", parameter.name,
         " has no value yet; ParameterStore::pack comes first");
  if (check_finite_ && !tensor::all_finite(parameter.value)) {
    throw NonFiniteError(
        join("parameter ", parameter.name, ": value ", parameter.value, " is not finite"));
  }
  Node leaf;
  leaf.value = parameter.value;
  // A running average has no gradient. It borrows the gradient's buffer for its sums.
  const bool average = parameter.decay > 0;
  leaf.needs_grad = mode_ == Mode::train && (parameter.trainable || average);
  leaf.parameter = &parameter;
  return append(std::move(leaf));
}

Var Tape::input(Tensor value) {
  require_float("Tape::input", value);
  Node leaf;
  leaf.value = std::move(value);
  leaf.needs_grad = mode_ == Mode::train;
  leaf.is_input = true;
  return append(std::move(leaf));
}

Var Tape::constant(Tensor value) {
  require_float("Tape::constant", value);
  Node leaf;
  leaf.value = std::move(value);
  return append(std::move(leaf));
}

Var Tape::record(const char* name, std::span<const Var> inputs, Tensor value, Backward backward) {
  require_float(name, value);
  Node node;
  node.name = name;
  node.inputs.reserve(inputs.size());
  for (const Var& input : inputs) {
    node.inputs.push_back(input.index_);
    if (!input.defined()) continue;
    ENSURE(&input.tape() == this, name, ": input ", node.inputs.size() - 1,
           " is on another tape than the first");
    const Tensor& x = input.value();
    ENSURE(x.dtype() == value.dtype() && x.device() == value.device(), name,
           ": dtype or device of input ", node.inputs.size() - 1, " differs from the result's: ", x,
           ", ", value);
    node.needs_grad = node.needs_grad || input.needs_grad();
  }
  if (check_finite_ && !tensor::all_finite(value)) {
    throw NonFiniteError(
        join(name, ": output ", value, " is not finite (node ", nodes_.size(), ")"));
  }
  if (seconds_ != nullptr) add_time(name, value.device());
  node.value = std::move(value);
  if (node.needs_grad) node.backward = std::move(backward);
  return append(std::move(node));
}

Var record(const char* name, std::initializer_list<Var> inputs, Tensor value, Backward backward) {
  for (const Var& input : inputs) {
    if (!input.defined()) continue;
    return input.tape().record(name, std::span<const Var>(inputs.begin(), inputs.size()),
                               std::move(value), std::move(backward));
  }
  throw Error(join(name, ": every input is undefined"));
}

std::vector<Var> record_several(const char* name, const std::vector<Var>& inputs,
                                const std::vector<Tensor>& values, BackwardOfSeveral backward) {
  const auto left =
      std::make_shared<std::vector<Tensor>>(values.size());  // gradients of the outputs
  const Tensor nothing = empty_like(values[0], {0});
  const Var all = inputs[0].tape().record(
      name, inputs, nothing,
      [left, backward = std::move(backward)](const Tensor&, Grads& g) { backward(*left, g); });
  std::vector<Var> outputs;
  for (std::size_t i = 0; i < values.size(); ++i) {
    outputs.push_back(
        record(name, {all}, values[i], [left, i, nothing](const Tensor& dy, Grads& g) {
          (*left)[i] = dy;
          g.add(0, nothing);  // its turn comes
        }));
  }
  return outputs;
}

// ---- backward ----------------------------------------------------------------------------------

void Tape::backward(Var output, Tensor cotangent) {
  const Node& last = node_of("Tape::backward", output);
  ENSURE(mode_ == Mode::train,
         "Tape::backward: this tape is in eval mode and recorded no backward");
  ENSURE(!consumed_, "Tape::backward: runs once per tape, and this one is consumed");
  ENSURE(last.needs_grad, "Tape::backward: output '", last.name, "' ", last.value,
         " depends on no parameter or input");
  if (!cotangent.defined()) {
    ENSURE(last.value.numel() == 1,
           "Tape::backward: without a cotangent the output must be one element, ", "got ",
           last.value);
    cotangent = ones_like(last.value, last.value.shape());
  }
  ENSURE(cotangent.shape() == last.value.shape() && cotangent.dtype() == last.value.dtype() &&
             cotangent.device() == last.value.device(),
         "Tape::backward: cotangent ", cotangent, " for output ", last.value);
  consumed_ = true;
  const Tensor result = last.value;
  accumulate(nodes_[static_cast<std::size_t>(output.index_)], std::move(cotangent));
  for (int i = static_cast<int>(nodes_.size()) - 1; i >= 0; --i) {
    Node& node = nodes_[static_cast<std::size_t>(i)];
    if (!node.inputs.empty()) consume(node, i);  // leaves keep their value and gradient
  }
  if (!pending_.empty()) {
    accumulate_pending();
    if (seconds_ != nullptr) add_time("gradients", result.device());
  }
  nodes_[static_cast<std::size_t>(output.index_)].value = result;
}

void Tape::consume(Node& node, int index) {
  consuming_ = index;
  const Backward backward = std::exchange(node.backward, nullptr);
  const Tensor dy = std::exchange(node.gradient, Tensor());
  node.value = Tensor();
  if (!dy.defined() || !backward) return;
  Grads grads(*this, index);
  backward(dy, grads);
  if (seconds_ != nullptr) add_time(node.name, dy.device());
}

bool Grads::needs(int i) const {
  const Tape::Node& node = tape_.nodes_[static_cast<std::size_t>(node_)];
  ENSURE(i >= 0 && i < static_cast<int>(node.inputs.size()), node.name,
         ": backward asks for input ", i, " of ", node.inputs.size());
  const int input = node.inputs[static_cast<std::size_t>(i)];
  return input >= 0 && tape_.nodes_[static_cast<std::size_t>(input)].needs_grad;
}

void Grads::add(int i, Tensor gradient) {
  if (!needs(i) || !gradient.defined()) return;
  const Tape::Node& node = tape_.nodes_[static_cast<std::size_t>(node_)];
  const int input_index = node.inputs[static_cast<std::size_t>(i)];
  Tape::Node& input = tape_.nodes_[static_cast<std::size_t>(input_index)];
  if (gradient.shape() != input.value.shape() || gradient.dtype() != input.value.dtype() ||
      gradient.device() != input.value.device()) {
    throw GradientError(join(node.name, ": gradient of input ", i, " is ", gradient,
                             ", the input is ", input.value,
                             "; a program continues after it only with try and catch (const "
                             "skytape::GradientError&) around Tape::backward"));
  }
  if (tape_.check_finite_ && !tensor::all_finite(gradient)) {
    throw NonFiniteError(join(node.name, ": gradient ", gradient, " of input ", i,
                              " is not finite (node ", node_, ")"));
  }
  tape_.accumulate(input, std::move(gradient));
}

void Grads::add_rows(int i, const Tensor& index, const Tensor& rows) {
  if (!needs(i)) return;
  const Tape::Node& node = tape_.nodes_[static_cast<std::size_t>(node_)];
  const Tape::Node& input =
      tape_.nodes_[static_cast<std::size_t>(node.inputs[static_cast<std::size_t>(i)])];
  if (input.parameter == nullptr || tape_.check_finite_) {
    Tensor gradient = zeros_like(rows, input.value.shape());  // [S, E]
    tensor::scatter_add_rows(gradient, index, rows);
    return add(i, std::move(gradient));
  }
  tape_.accumulate_pending();  // in the order in which gradients came
  tensor::scatter_add_rows(input.parameter->grad, index, rows);
  input.parameter->has_gradient = true;
}

// A parameter's gradient waits until a few of them can be added in one launch, which for many small
// ones is most of the cost. What waits stays in memory, hence a limit.
constexpr std::int64_t kPendingBytes = 1 << 20;

// The first gradient is kept as it comes, without a copy. It may be shared (a + b hands dy to both
// inputs, reshape hands on a view), so the second one makes a fresh sum; only that is added to in
// place.
void Tape::accumulate(Node& node, Tensor gradient) {
  if (node.parameter != nullptr) {
    const auto same = [&](const Pending& waiting) { return waiting.parameter == node.parameter; };
    if (std::any_of(pending_.begin(), pending_.end(), same)) accumulate_pending();
    pending_bytes_ += static_cast<std::int64_t>(gradient.bytes());
    pending_.push_back({node.parameter, std::move(gradient)});
    node.parameter->has_gradient = true;
    if (pending_bytes_ > kPendingBytes) accumulate_pending();
  } else if (!node.gradient.defined()) {
    node.gradient = std::move(gradient);
  } else if (!node.gradient_is_ours) {
    node.gradient = tensor::add(node.gradient, gradient);
    node.gradient_is_ours = true;
  } else {
    tensor::accumulate(node.gradient, gradient);
  }
}

void Tape::accumulate_pending() {
  std::vector<tensor::Addition> additions;
  additions.reserve(pending_.size());
  for (Pending& waiting : pending_) {
    additions.push_back({waiting.parameter->grad, std::move(waiting.gradient)});
  }
  tensor::accumulate_all(additions);
  pending_.clear();
  pending_bytes_ = 0;
}

Tensor Tape::grad(Var v) const {
  const Node& node = node_of("Tape::grad", v);
  ENSURE(node.is_input,
         "Tape::grad: only leaves made by Tape::input keep their gradient, this is '", node.name,
         "'");
  return node.gradient;
}

// ---- messages and timing ------------------------------------------------------------------------

const Tape::Node& Tape::node_of(const char* caller, Var v) const {
  ENSURE(v.defined(), caller, ": the Var is undefined");
  ENSURE(&v.tape() == this, caller, ": the Var is on another tape");
  return nodes_[static_cast<std::size_t>(v.index_)];
}

std::string Tape::position() const {
  if (consuming_ >= 0) {
    return join("in the backward of '", nodes_[static_cast<std::size_t>(consuming_)].name, "'");
  }
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    if (!node->inputs.empty()) return join("after op '", node->name, "'");
  }
  return "before the first op";
}

void Tape::time_ops(OpSeconds& seconds) {
  seconds_ = &seconds;
  timed_ = std::chrono::steady_clock::now();
}

void Tape::add_time(const char* name, Device device) {
  synchronize(device);
  GpuCount::end_part(name);
  const auto now = std::chrono::steady_clock::now();
  (*seconds_)[name] += std::chrono::duration<double>(now - timed_).count();
  timed_ = now;
}

std::vector<std::string> Tape::names() const {
  std::vector<std::string> names;
  names.reserve(nodes_.size());
  for (const Node& node : nodes_) names.emplace_back(node.name);
  return names;
}

NodeView Tape::node(int index) const {
  ENSURE(index >= 0 && index < size(), "Tape::node: expected an index below ", size(), ", got ",
         index);
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  return {node.name, node.inputs, node.value, node.parameter, node.needs_grad, node.is_input};
}

// ---- living tapes ------------------------------------------------------------------------------

namespace {

// The numbers of the tapes that live. A Var looks for its tape's before it follows its pointer; a
// count of references would change with every copy of a Var.
struct LivingTapes {
  std::mutex mutex;
  std::unordered_set<std::uint32_t> numbers;
  std::uint32_t last = 0;
};

LivingTapes& living_tapes() {
  static LivingTapes tapes;
  return tapes;
}

}  // namespace

Tape::Tape(Mode mode) : mode_(mode) {
  LivingTapes& living = living_tapes();
  const std::lock_guard lock(living.mutex);
  do number_ = ++living.last;
  while (!living.numbers.insert(number_).second);
}

Tape::~Tape() {
  LivingTapes& living = living_tapes();
  const std::lock_guard lock(living.mutex);
  living.numbers.erase(number_);
}

Tape& Var::tape() const {
  ENSURE(defined(), "Var: undefined; Tape::parameter, input, constant and ops make defined ones");
  LivingTapes& living = living_tapes();
  const std::lock_guard lock(living.mutex);
  ENSURE(living.numbers.contains(tape_number_),
         "Var: its Tape is gone; keep the Tape as long as its Vars, or the Tensor of value()");
  return *tape_;
}

}  // namespace skytape
