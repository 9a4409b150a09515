#include "tests/attention/methods_support.hpp"

#include <algorithm>
#include <cmath>

#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/layout.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

constexpr std::uint64_t kKey = 0x5ca1ab1e;

std::int64_t nominal_of(const Sizes& sizes) { return sizes.nominal == 0 ? sizes.n : sizes.nominal; }

/// E: a separate width, so that no method takes it for that of its heads.
std::int64_t input_width(const Sizes& sizes) { return sizes.heads * sizes.width + 3; }

/// 1 = real token. Example 0 is whole, 1 is padded at the end, 2 has holes, then again.
Tensor make_mask(const Sizes& sizes, Padding padding) {
  std::vector<double> mask;
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    for (std::int64_t i = 0; i < sizes.n; ++i) {
      bool real = padding != Padding::all;
      if (padding == Padding::mixed && b % 3 == 1) real = i < (2 * sizes.n + 2) / 3;
      if (padding == Padding::mixed && b % 3 == 2) real = i % 4 != 0 && i % 11 != 5;
      mask.push_back(real ? 1 : 0);
    }
  }
  return Tensor::from(mask, {sizes.batch, sizes.n}, DType::f64, Device::cpu);
}

void zero_if_missing(Outcome& outcome, const std::string& name, const Tensor& gradient,
                     const Tensor& like) {
  outcome.emplace_back(name, gradient.defined() ? gradient.clone() : zeros_like(like));
}

Outcome differentiate(const Layer& layer, const Problem& p, const Call& call, bool reference) {
  layer.store->zero_gradients();
  Tape tape;
  const Var q = tape.input(p.in.q);
  const Var k = p.in.k.defined() ? tape.input(p.in.k) : Var();
  const Var v = tape.input(p.in.v);
  const Var x = p.in.x.defined() ? tape.input(p.in.x) : Var();
  const attention::InputVars in{q, k, v, x};
  const Var out = reference ? layer.method->reference(in, p.in.mask, *call.injected, call)
                            : attention::apply(*layer.method, in, p.in.mask, call);
  Outcome outcome{{"out", out.value()}};
  tape.backward(out, p.dout);
  zero_if_missing(outcome, "dq", tape.grad(q), p.in.q);
  if (k.defined()) zero_if_missing(outcome, "dk", tape.grad(k), p.in.k);
  zero_if_missing(outcome, "dv", tape.grad(v), p.in.v);
  if (x.defined()) zero_if_missing(outcome, "dx", tape.grad(x), p.in.x);
  for (const Parameter* parameter : layer.trainable()) {
    outcome.emplace_back("d" + parameter->name, parameter->grad.clone());
  }
  return outcome;
}

}  // namespace

std::vector<Parameter*> Layer::trainable() const {
  std::vector<Parameter*> parameters = method->parameters();
  std::erase_if(parameters, [](const Parameter* p) { return !p->trainable; });
  return parameters;
}

Layer make_layer(const Spec& spec, const OptionValues& options, const Sizes& sizes, DType dtype,
                 Device device) {
  Layer layer{std::make_unique<ParameterStore>(), nullptr};
  attention::LayerContext context;
  context.heads = sizes.heads;
  context.head_width = sizes.width;
  context.nominal_length = nominal_of(sizes);
  context.prefix = "attn.";
  context.store = layer.store.get();
  context.width = input_width(sizes);
  layer.method = spec.make(context, options);
  layer.store->pack(dtype, device, 3);
  return layer;
}

bool serves(const Spec& spec, const OptionValues& options, const Sizes& sizes) {
  try {
    (void)make_layer(spec, options, sizes, DType::f64);
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

void each_sample(const std::function<void(const Spec&, const OptionValues&)>& f) {
  for (const Spec& spec : attention::registry()) {
    REQUIRE_MESSAGE(!spec.samples.empty(), spec.name, " has no sample settings");
    for (const OptionValues& options : spec.samples) {
      INFO(describe(spec, options));
      f(spec, options);
    }
  }
}

Sizes first_served(const Spec& spec, const OptionValues& options, Sizes sizes) {
  for (const std::int64_t n : kLengths) {
    sizes.n = n;
    if (serves(spec, options, sizes)) return sizes;
  }
  FAIL(describe(spec, options) << " serves none of the test lengths");
  return sizes;
}

Problem make_problem(const Spec& spec, const Sizes& sizes, Padding padding, std::uint64_t seed) {
  const Shape shape{sizes.batch, sizes.heads, sizes.n, sizes.width};
  const Random random{seed, {}};
  const auto numbers = [&](std::uint64_t which) {
    return tensor::normal(shape, random.fork(which), DType::f64, Device::cpu);
  };
  Problem p{{numbers(1), spec.shared_qk ? Tensor() : numbers(2), numbers(3), {}}, numbers(4)};
  p.in.mask = make_mask(sizes, padding);
  if (spec.reads_x) {
    p.in.x = tensor::normal({sizes.batch, sizes.n, input_width(sizes)}, random.fork(5), DType::f64,
                            Device::cpu);
  }
  return p;
}

Problem convert(const Problem& p, DType dtype, Device device) {
  const auto move = [&](const Tensor& t) { return t.defined() ? t.to(dtype).to(device) : t; };
  const Inputs& in = p.in;
  return {{move(in.q), move(in.k), move(in.v), move(in.mask), false, move(in.x)}, move(p.dout)};
}

Draws convert(const Draws& draws, DType dtype, Device device) {
  Draws converted;
  for (const auto& [name, value] : draws.all()) {
    const Tensor typed = value.dtype() == DType::i32 ? value : value.to(dtype);
    converted.set(name, typed.to(device));
  }
  return converted;
}

Call training_call(const Inputs& in) {
  Call call;
  call.training = true;
  call.random.key = kKey;
  std::int64_t fewest = in.mask.size(1);
  const std::vector<double> mask = in.mask.to_vector();
  for (std::int64_t b = 0; b < in.mask.size(0); ++b) {
    const auto row = mask.begin() + b * in.mask.size(1);
    const auto tokens = std::count(row, row + in.mask.size(1), 1.0);
    fewest = std::min<std::int64_t>(fewest, tokens);
  }
  call.fewest_tokens = Tensor::full({1}, static_cast<double>(fewest), DType::i32, in.mask.device());
  return call;
}

const Tensor& at(const Outcome& outcome, const std::string& name) {
  for (const auto& [known, tensor] : outcome) {
    if (known == name) return tensor;
  }
  throw Error("test: no array " + name);
}

Outcome run(const Layer& layer, const Problem& problem, const Call& call) {
  return differentiate(layer, problem, call, false);
}
Outcome run_reference(const Layer& layer, const Problem& problem, const Call& call) {
  return differentiate(layer, problem, call, true);
}

double norm(const Tensor& x) {
  double sum = 0;
  for (const double value : x.to_vector()) sum += value * value;
  return std::sqrt(sum);
}

double distance(const Tensor& x, const Tensor& y) {
  ENSURE(x.shape() == y.shape(), "test: shapes differ: ", x, ", ", y);
  const std::vector<double> a = x.to_vector(), b = y.to_vector();
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);  // NaN if anything is, and no comparison with NaN passes
}

double smallest_scale(const Outcome& outcome) {
  double largest = 0;
  for (const auto& [name, tensor] : outcome) {
    if (name != "out") largest = std::max(largest, norm(tensor));
  }
  return 1e-3 * largest;
}

Worst compare(const Outcome& x, const Outcome& y) {
  ENSURE(x.size() == y.size(), "test: ", x.size(), " arrays against ", y.size());
  const double scale = smallest_scale(y);
  Worst worst;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto& [name, expected] = y[i];
    const double divisor = std::max({norm(expected), name == "out" ? 0 : scale, 1e-300});
    const double error = distance(x[i].second, expected) / divisor;
    if (!(error <= worst.error)) worst = {error, name};
  }
  return worst;
}

Problem narrow(const Problem& p, std::int64_t length) {
  const auto cut = [&](const Tensor& t, int axis) {
    return t.defined() ? tensor::narrow(t, axis, 0, length) : t;
  };
  const Inputs& in = p.in;
  return {{cut(in.q, 2), cut(in.k, 2), cut(in.v, 2), cut(in.mask, 1), false, cut(in.x, 1)},
          cut(p.dout, 2)};
}

Outcome narrow(const Outcome& outcome, std::int64_t length) {
  Outcome result;
  for (const auto& [name, tensor] : outcome) {
    const int axis = name == "dx" ? 1 : 2;  // of positions
    result.emplace_back(name, of_tokens(name) ? tensor::narrow(tensor, axis, 0, length) : tensor);
  }
  return result;
}

bool of_tokens(const std::string& name) {
  return name == "out" || name == "dq" || name == "dk" || name == "dv" || name == "dx";
}

Tensor weigh_positions(const Tensor& x, const Tensor& weights) {
  const Tensor with_heads = x.rank() == 4 ? x : x.reshape({x.size(0), 1, x.size(1), x.size(2)});
  return tensor::mask_rows(with_heads, weights).reshape(x.shape());
}

Problem example(const Problem& p, std::int64_t index) { return permute(p, {index}); }

Tensor permute(const Tensor& x, const std::vector<std::int64_t>& order) {
  if (!x.defined()) return x;
  std::vector<Tensor> parts;
  for (const std::int64_t index : order) parts.push_back(x.slice(index, index + 1));
  return tensor::concat(parts, 0);
}

Problem permute(const Problem& p, const std::vector<std::int64_t>& order) {
  const Inputs& in = p.in;
  return {{permute(in.q, order), permute(in.k, order), permute(in.v, order),
           permute(in.mask, order), false, permute(in.x, order)},
          permute(p.dout, order)};
}

std::string describe(const Spec& spec, const OptionValues& options) {
  std::string text = spec.name + " {";
  for (const auto& [key, value] : options) {
    text += (text.back() == '{' ? "" : ", ") + key + "=" + value;
  }
  return text + "}";
}

}  // namespace skytape::test
