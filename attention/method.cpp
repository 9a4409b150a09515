#include "attention/method.hpp"

#include <algorithm>

#include "tensor/error.hpp"

namespace skytape::attention {

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
  for (const auto& [known, tensor] : all_) {
    if (known == name) return &tensor;
  }
  return nullptr;
}

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
  ENSURE(in.q.rank() == 4, "attention: q must be [B, H, N, D], got ", in.q);
  ENSURE(in.v.shape() == in.q.shape() && (!in.k.defined() || in.k.shape() == in.q.shape()),
         "attention: q, k, v must have one shape: q ", in.q, ", k ", in.k, ", v ", in.v);
  ENSURE(in.mask.shape() == Shape({in.q.size(0), in.q.size(2)}),
         "attention: mask must be [B, N] = [", in.q.size(0), ", ", in.q.size(2), "], got ",
         in.mask);
  require_same_kind("attention", {&in.q, &in.v, &in.mask});
  if (in.k.defined()) require_same_kind("attention", {&in.q, &in.k});
}

}  // namespace

Var apply(const Method& method, Var q, Var k, Var v, const Tensor& mask, const Call& call) {
  const Inputs in{q.value(), k.defined() ? k.value() : Tensor(), v.value(), mask};
  check_inputs(in);

  Draws draws = method.draw(in, call);
  if (call.injected != nullptr) {
    for (const auto& [name, value] : call.injected->all()) draws.set(name, value);
  }
  Result result = method.forward(in, draws, call);
  if (call.observe) call.observe(in, result.out);

  std::vector<Var> inputs = {q};
  const int k_at = k.defined() ? static_cast<int>(inputs.size()) : -1;
  if (k.defined()) inputs.push_back(k);
  const int v_at = static_cast<int>(inputs.size());
  inputs.push_back(v);
  for (Parameter* p : method.parameters()) inputs.push_back(q.tape().use(*p));

  return q.tape().record(
      "attention", inputs, result.out,
      [backward = std::move(result.backward), k_at, v_at](const Tensor& dout, Grads& g) {
        Gradients d = backward(dout);
        g.add(0, std::move(d.dq));
        if (k_at >= 0) g.add(k_at, std::move(d.dk));
        g.add(v_at, std::move(d.dv));
        for (std::size_t i = 0; i < d.parameters.size(); ++i) {
          g.add(v_at + 1 + static_cast<int>(i), std::move(d.parameters[i]));
        }
      });
}

}  // namespace skytape::attention
