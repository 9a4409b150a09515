#include "attention/method.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <utility>

#include "attention/strict_draws.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"

namespace skytape::attention {
namespace {

const Tensor* find_in(const std::vector<std::pair<std::string, Tensor>>& named,
                      const std::string& name) {
  for (const auto& [known, tensor] : named) {
    if (known == name) return &tensor;
  }
  return nullptr;
}

/// The names that a call with injected draws has looked for so far; null elsewhere.
thread_local std::set<std::string>* asked = nullptr;
thread_local int strict = 0;  // living StrictDraws

}  // namespace

StrictDraws::StrictDraws() { ++strict; }
StrictDraws::~StrictDraws() { --strict; }

Tensor key_bias(const Tensor& mask) {
  return tensor::unary(tensor::Unary::log, mask).reshape({mask.size(0), 1, 1, mask.size(1)});
}

Tensor no_token(const Tensor& mask) {
  const Tensor lacking = tensor::affine(tensor::sum(mask, 1), -1, 1);  // [B]: 1 - tokens
  return tensor::unary(tensor::Unary::relu, lacking).reshape({mask.size(0), 1, 1, 1});
}

void Draws::set(const std::string& name, Tensor value) {
  for (auto& [known, tensor] : all_) {
    if (known == name) {
      tensor = std::move(value);
      return;
    }
  }
  all_.emplace_back(name, std::move(value));
}

const Tensor* Draws::find(const std::string& name) const {
  if (asked != nullptr) asked->insert(name);
  return find_in(all_, name);
}
const Tensor* Draws::cached(const std::string& name) const { return find_in(cached_, name); }

const Tensor& Draws::get(const std::string& name) const {
  const Tensor* tensor = find(name);
  ENSURE(tensor != nullptr, "attention: random array \"", name, "\" is missing");
  return *tensor;
}

bool Spec::has_option(std::string_view key) const {
  return std::any_of(options.begin(), options.end(),
                     [&](const OptionInfo& option) { return option.key == key; });
}

namespace {

void check_inputs(const Inputs& in) {
  ENSURE(in.v.rank() == 4, "attention: v must be [B, H, N, D], got ", in.v);
  const Shape shape = in.combined ? in.v.shape().with(2, in.mask.size(1)) : in.v.shape();
  ENSURE(in.q.defined() || !in.k.defined(), "attention: k is there, but q is missing");
  ENSURE(!in.q.defined() || in.q.shape() == shape, "attention: q must be [B, H, N, D] = ", shape,
         ", got ", in.q);
  ENSURE(!in.k.defined() || in.k.shape() == in.v.shape(), "attention: k must have v's shape: k ",
         in.k, ", v ", in.v);
  ENSURE(in.mask.shape() == Shape({shape[0], shape[2]}), "attention: mask must be [B, N] = [",
         shape[0], ", ", shape[2], "], got ", in.mask);
  ENSURE(
      !in.x.defined() || (in.x.rank() == 3 && in.x.size(0) == shape[0] && in.x.size(1) == shape[2]),
      "attention: x must be [B, N, E] = [", shape[0], ", ", shape[2], ", E], got ", in.x);
  for (const Tensor* t : {&in.q, &in.k, &in.mask, &in.x, &in.state}) {
    if (t->defined()) require_same_kind("attention", {&in.v, t});
  }
}

/// Throws where an injected array has a name that neither drawing nor forward asked for: it would
/// be without effect.
void require_read(const Draws& injected, const std::set<std::string>& read) {
  for (const auto& [name, value] : injected.all()) {
    if (read.contains(name)) continue;
    throw UsageError(read.empty()
                         ? join("draws: the method draws nothing in this setting, got '", name, "'")
                         : unknown_name("array of draws", name,
                                        std::vector<std::string>(read.begin(), read.end())));
  }
}

/// Forward of a method that draws, with injected arrays in the place of its own.
Result drawn_forward(const Method& method, const Inputs& in, const Call& call) {
  if (call.injected == nullptr) return method.forward(in, method.draw(in, call), call);
  std::set<std::string> read;
  const auto before = std::exchange(asked, &read);
  const std::shared_ptr<void> after(nullptr, [before](void*) { asked = before; });
  Draws draws = method.draw(in, call);
  for (const auto& [name, value] : call.injected->all()) draws.set(name, value);
  Result result = method.forward(in, draws, call);
  if (strict > 0) require_read(*call.injected, read);
  return result;
}

/// The value of an input that may be absent.
Tensor value_of(Var x) { return x.defined() ? x.value() : Tensor(); }

/// Gradients and sums in the order of a node's inputs.
void hand_over(Gradients d, std::size_t parameters, Grads& g) {
  int input = 0;
  d.parameters.resize(parameters);  // undefined ones mean zero
  for (Tensor* gradient : {&d.dq, &d.dk, &d.dv, &d.dx, &d.dstate}) {
    g.add(input++, std::move(*gradient));
  }
  for (Tensor& gradient : d.parameters) g.add(input++, std::move(gradient));
  for (Tensor& sum : d.sums) g.add(input++, std::move(sum));
}

}  // namespace

OutputVars apply_with_state(const Method& method, const InputVars& vars, const Tensor& mask,
                            const Call& call, bool combined) {
  const auto& [q, k, v, x, carried] = vars;
  const Inputs in{value_of(q), value_of(k), v.value(),        mask,
                  combined,    value_of(x), value_of(carried)};
  check_inputs(in);

  Result result = drawn_forward(method, in, call);
  const Shape expected = in.v.shape().with(2, mask.size(1));  // v's rows may be combined ones
  ENSURE(result.out.shape() == expected, "attention: forward gave ", result.out, ", expected ",
         expected, " for v ", in.v);
  if (call.observe) call.observe(in, result.out);

  Tape& tape = v.tape();
  std::vector<Var> inputs = {q, k, v, x, carried};  // undefined ones stand for absent inputs
  const std::vector<Parameter*> parameters = method.parameters();
  for (Parameter* p : parameters) inputs.push_back(tape.parameter(*p));
  for (Parameter* p : method.averages()) inputs.push_back(tape.parameter(*p));
  const std::size_t count = parameters.size();
  if (!result.state.defined()) {
    const Var out =
        tape.record("attention", inputs, result.out,
                    [backward = std::move(result.backward), count](const Tensor& dout, Grads& g) {
                      hand_over(backward(dout), count, g);
                    });
    return {out, {}};
  }
  const std::vector<Var> outputs =
      tape.record_several("attention", inputs, {result.out, result.state},
                          [backward = std::move(result.backward_with_state), out = result.out,
                           state = result.state, count](std::span<const Tensor> d, Grads& g) {
                            const auto gradient = [&](std::size_t i, const Tensor& like) {
                              return d[i].defined() ? d[i] : zeros_like(like);
                            };
                            hand_over(backward(gradient(0, out), gradient(1, state)), count, g);
                          });
  return {outputs[0], outputs[1]};
}

Var apply(const Method& method, const InputVars& vars, const Tensor& mask, const Call& call) {
  if (const Tensor& v = vars.v.value(); v.numel() == 0) {  // methods divide by what is absent here
    check_inputs({value_of(vars.q), value_of(vars.k), v, mask, false, value_of(vars.x), {}});
    const std::array<Var, 4> inputs = {vars.q, vars.k, vars.v, vars.x};
    return vars.v.tape().record("attention", inputs, v, [](const Tensor&, Grads&) {});
  }
  return apply_with_state(method, vars, mask, call).out;
}

}  // namespace skytape::attention
