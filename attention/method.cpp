#include "attention/method.hpp"

#include <algorithm>

#include "tensor/core/error.hpp"

namespace skytape::attention {
namespace {

const Tensor* find_in(const std::vector<std::pair<std::string, Tensor>>& named,
                      const std::string& name) {
  for (const auto& [known, tensor] : named) {
    if (known == name) return &tensor;
  }
  return nullptr;
}

}  // namespace

void Draws::set(const std::string& name, Tensor value) {
  for (auto& [known, tensor] : all_) {
    if (known == name) {
      tensor = std::move(value);
      return;
    }
  }
  all_.emplace_back(name, std::move(value));
}

const Tensor* Draws::find(const std::string& name) const { return find_in(all_, name); }
const Tensor* Draws::cached(const std::string& name) const { return find_in(cached_, name); }

const Tensor& Draws::get(const std::string& name) const {
  const Tensor* tensor = find(name);
  ENSURE(tensor != nullptr, "attention: random array \"", name, "\" is missing");
  return *tensor;
}

bool Spec::has_option(std::string_view key) const {
  return std::any_of(options.begin(), options.end(),
                     [&](const OptionInfo& option) { return option.goes_by(key); });
}

namespace {

void check_inputs(const Inputs& in) {
  ENSURE(in.v.rank() == 4, "attention: v must be [B, H, N, D], got ", in.v);
  const Shape shape = in.combined ? in.v.shape().with(2, in.mask.size(1)) : in.v.shape();
  ENSURE(in.q.defined() || in.combined, "attention: q is missing");
  ENSURE(!in.q.defined() || in.q.shape() == shape, "attention: q must be [B, H, N, D] = ", shape,
         ", got ", in.q);
  ENSURE(!in.k.defined() || in.k.shape() == in.v.shape(), "attention: k must have v's shape: k ",
         in.k, ", v ", in.v);
  ENSURE(in.mask.shape() == Shape({shape[0], shape[2]}), "attention: mask must be [B, N] = [",
         shape[0], ", ", shape[2], "], got ", in.mask);
  ENSURE(
      !in.x.defined() || (in.x.rank() == 3 && in.x.size(0) == shape[0] && in.x.size(1) == shape[2]),
      "attention: x must be [B, N, E] = [", shape[0], ", ", shape[2], ", E], got ", in.x);
  for (const Tensor* t : {&in.q, &in.k, &in.mask, &in.x}) {
    if (t->defined()) require_same_kind("attention", {&in.v, t});
  }
}

/// The value of an input that may be absent.
Tensor value_of(Var x) { return x.defined() ? x.value() : Tensor(); }

}  // namespace

Var apply(const Method& method, const InputVars& vars, const Tensor& mask, const Call& call,
          bool combined) {
  const auto& [q, k, v, x] = vars;
  const Inputs in{value_of(q), value_of(k), v.value(), mask, combined, value_of(x)};
  check_inputs(in);

  Draws draws = method.draw(in, call);
  if (call.injected != nullptr) {
    for (const auto& [name, value] : call.injected->all()) draws.set(name, value);
  }
  Result result = method.forward(in, draws, call);
  if (call.observe) call.observe(in, result.out);

  std::vector<Var> inputs = {q, k, v, x};  // those that are undefined stand for absent inputs
  for (Parameter* p : method.parameters()) inputs.push_back(v.tape().parameter(*p));

  return v.tape().record("attention", inputs, result.out,
                         [backward = std::move(result.backward)](const Tensor& dout, Grads& g) {
                           Gradients d = backward(dout);
                           int input = 0;
                           for (Tensor* gradient : {&d.dq, &d.dk, &d.dv, &d.dx})
                             g.add(input++, std::move(*gradient));
                           for (Tensor& gradient : d.parameters)
                             g.add(input++, std::move(gradient));
                         });
}

}  // namespace skytape::attention
