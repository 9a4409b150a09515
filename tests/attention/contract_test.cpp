// The rest of the contract above class Method: who calls what in which order, calls that share a
// layer or a tape, what is left untouched, and the optional hooks.
#include <memory>
#include <string>
#include <vector>

#include "attention/strict_draws.hpp"
#include "attention/tiled/tiled.hpp"
#include "autograd/ops.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/close.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

using attention::Gradients;
using attention::Result;

/// The leaves of a call on a tape.
struct Leaves {
  attention::InputVars vars;
  Leaves(Tape& tape, const Inputs& in) {
    const auto leaf = [&](const Tensor& t) { return t.defined() ? tape.input(t) : Var(); };
    vars = {leaf(in.q), leaf(in.k), leaf(in.v), leaf(in.x)};
  }
};

/// dLoss/dx; zeros where nothing reached x.
Tensor gradient_of(const Tape& tape, Var x) {
  const Tensor gradient = tape.grad(x);
  return gradient.defined() ? gradient : zeros_like(x.value());
}

/// Writes down what is called. Its output is v.
class Recorder final : public Method {
 public:
  explicit Recorder(std::vector<std::string>& log) : log_(log) {}

  [[nodiscard]] Draws draw(const Inputs&, const Call&) const override {
    log_.push_back("draw");
    Draws draws;
    for (const char* name : {"own", "given"}) draws.set(name, number(1));
    return draws;
  }
  [[nodiscard]] Result forward(const Inputs& in, const Draws& draws, const Call&) const override {
    log_.push_back("forward");
    drawn = {draws.get("own").item(), draws.get("given").item()};
    auto saved = std::make_shared<int>(0);
    held = saved;
    return {in.v, [this, saved](const Tensor& dout) {
              log_.push_back("backward");
              Gradients g;
              g.dv = dout;
              return g;
            }};
  }
  [[nodiscard]] Var reference(const attention::InputVars& in, const Tensor&, const Draws&,
                              const Call&) const override {
    log_.push_back("reference");
    return in.v;
  }

  [[nodiscard]] static Tensor number(double value) {
    return Tensor::full({1}, value, DType::f64, Device::cpu);
  }

  mutable std::vector<double> drawn;
  mutable std::weak_ptr<int> held;  // by the closure

 private:
  std::vector<std::string>& log_;
};

}  // namespace

TEST_CASE("a call draws, runs, is shown and differentiated, once each and in this order") {
  const Problem problem = make_problem(attention::find("softmax"), {}, Padding::none);
  for (const Tape::Mode mode : {Tape::Mode::train, Tape::Mode::eval}) {
    std::vector<std::string> log;
    const Recorder method(log);
    Draws injected;
    injected.set("given", Recorder::number(7));
    Call call;
    call.injected = &injected;
    call.observe = [&](const Inputs&, const Tensor&) { log.push_back("observe"); };
    Tape tape(mode);
    const Leaves x(tape, problem.in);
    const Var out = attention::apply(method, x.vars, problem.in.mask, call);
    CHECK(log == std::vector<std::string>{"draw", "forward", "observe"});
    CHECK(method.drawn == std::vector<double>{1, 7});
    if (mode == Tape::Mode::eval) {
      CHECK(method.held.expired());
      continue;
    }
    CHECK_FALSE(method.held.expired());
    tape.backward(out, problem.dout);
    CHECK(log == std::vector<std::string>{"draw", "forward", "observe", "backward"});
    CHECK(method.held.expired());
  }
}

namespace {

/// Its output is v plus the sum of each row of x.
class InputReader final : public Method {
 public:
  [[nodiscard]] Result forward(const Inputs& in, const Draws&, const Call&) const override {
    const Tensor rows = tensor::sum(in.x, 2).reshape({in.x.size(0), 1, in.x.size(1), 1});
    return {tensor::add(in.v, rows), [shape = in.x.shape()](const Tensor& dout) {
              Gradients g;
              g.dv = dout;
              const Tensor drows = tensor::sum(tensor::sum(dout, 3), 1);  // [B, N]
              g.dx = tensor::expand(drows.reshape({shape[0], shape[1], 1}), shape);
              return g;
            }};
  }
  [[nodiscard]] Var reference(const attention::InputVars& in, const Tensor&, const Draws&,
                              const Call&) const override {
    return in.v + reshape(sum(in.x, 2), {in.x.size(0), 1, in.x.size(1), 1});
  }
};

}  // namespace

TEST_CASE("a method may read the layer's input, which gets its gradient") {
  const Problem problem = make_problem(attention::find("softmax"), {}, Padding::none);
  const InputReader method;
  Tensor x = tensor::normal({3, 37, 5}, Random{9, {}}, DType::f64, Device::cpu);  // [B, N, E]
  Tensor found[2][2];
  for (const bool slow : {false, true}) {
    Tape tape;
    Leaves leaves(tape, problem.in);
    leaves.vars.x = tape.input(x);
    const Var out = slow ? method.reference(leaves.vars, problem.in.mask, {}, {})
                         : attention::apply(method, leaves.vars, problem.in.mask, {});
    found[slow][0] = out.value();
    tape.backward(out, problem.dout);
    found[slow][1] = tape.grad(leaves.vars.x);
  }
  for (const int array : {0, 1}) {
    CHECK(distance(found[0][array], found[1][array]) <= 1e-14 * norm(found[1][array]));
  }

  Tape tape;
  Leaves leaves(tape, problem.in);
  leaves.vars.x = tape.input(x.slice(0, 2));
  CHECK_THROWS_WITH_AS((void)attention::apply(method, leaves.vars, problem.in.mask, {}),
                       doctest::Contains("x must be [B, N, E] = [3, 37, E]"), Error);
}

TEST_CASE(
    "inputs that do not belong together are errors that name them, in an empty batch as well") {
  const std::unique_ptr<Method> method = attention::find("softmax").make({}, {});
  for (const std::int64_t batch : {3, 0}) {
    const Problem problem =
        make_problem(attention::find("softmax"), {.batch = batch, .n = 7, .width = 4}, {});
    const auto refused = [&](const std::function<void(Inputs&)>& spoil) {
      Problem p = problem;
      spoil(p.in);
      Tape tape;
      const Leaves x(tape, p.in);
      return error_text([&] { (void)attention::apply(*method, x.vars, p.in.mask, {}); });
    };
    CAPTURE(batch);
    CHECK(refused([](Inputs&) {}).empty());
    CHECK(refused([](Inputs& in) { in.q = Tensor(); }) ==
          "attention: k is there, but q is missing");
    CHECK(refused([](Inputs& in) {
            in.q = tensor::narrow(in.q, 2, 0, 6);
          }).starts_with(join("attention: q must be [B, H, N, D] = ", problem.in.v.shape())));
    CHECK(refused([](Inputs& in) {
            in.k = tensor::narrow(in.k, 3, 0, 3);
          }).starts_with("attention: k must have v's shape: k f64"));
    CHECK(refused([](Inputs& in) {
            in.mask = tensor::narrow(in.mask, 1, 0, 6);
          }).starts_with(join("attention: mask must be [B, N] = [", batch, ", 7], got f64")));
    CHECK(refused([](Inputs& in) { in.mask = in.mask.to(DType::f32); }).starts_with("attention: "));
  }
}

TEST_CASE("only strict calls refuse injected arrays that the method does not read") {
  const Problem problem = make_problem(attention::find("softmax"), {}, Padding::none);
  Draws injected;
  injected.set("kept", Tensor::full({3, 2, 37, 37}, 1, DType::f64, Device::cpu));
  Call call;
  call.injected = &injected;
  const auto refused = [&](const char* name) {
    const Layer layer = make_layer(attention::find(name), {}, {}, DType::f64);
    return error_text([&] { (void)run(layer, problem, call); });
  };
  {
    const attention::StrictDraws strict;
    CHECK(refused("softmax").find("did you mean 'keep'") != std::string::npos);
    CHECK(refused("vmean") == "draws: the method draws nothing in this setting, got 'kept'");
  }
  CHECK(refused("softmax").empty());
}

TEST_CASE("methods that are random give something else by another key, and the others the same") {
  for (const Spec& spec : attention::registry()) {
    bool differs = false;
    for (const OptionValues& options : spec.samples) {
      const Sizes sizes = first_served(spec, options);
      const Layer layer = make_layer(spec, options, sizes, DType::f64);
      const Problem problem = make_problem(spec, sizes, Padding::mixed);
      Call call = training_call(problem.in);
      const Tensor first = at(run(layer, problem, call), "out");
      ++call.random.key;
      differs = differs || distance(at(run(layer, problem, call), "out"), first) > 0;
    }
    INFO(spec.name);
    CHECK(differs == (spec.random || spec.has_option("redraw")));
  }
}

TEST_CASE("methods that look at values alone do without queries and keys") {
  each_sample([](const Spec& spec, const OptionValues& options) {
    if (!spec.values_only) return;
    const Sizes sizes = first_served(spec, options);
    const Layer layer = make_layer(spec, options, sizes, DType::f64);
    const Problem problem = make_problem(spec, sizes, Padding::mixed);
    const Outcome given = run(layer, problem, training_call(problem.in));
    CHECK(norm(at(given, "dq")) == 0);
    CHECK(norm(at(given, "dk")) == 0);
    Tape tape;
    attention::InputVars vars = Leaves(tape, problem.in).vars;
    vars.q = vars.k = Var();
    const Var out =
        attention::apply(*layer.method, vars, problem.in.mask, training_call(problem.in));
    CHECK(distance(out.value(), at(given, "out")) == 0);
    tape.backward(out, problem.dout);
    CHECK(distance(gradient_of(tape, vars.v), at(given, "dv")) == 0);
  });
}

namespace {

/// Two layers of a method that carries a state, on other inputs each: gradients of the first one's
/// inputs and of the parameters of both, for cotangents of both outputs and of the last state.
Outcome two_layers(const Spec& spec, const OptionValues& options, const Problem (&problems)[2],
                   const Tensor& dstate, bool reference) {
  const Sizes sizes = first_served(spec, options);
  ParameterStore store;
  std::vector<std::unique_ptr<Method>> layers;
  for (const int layer : {0, 1}) {
    const attention::LayerContext context{
        layer, sizes.heads, sizes.width, sizes.n, "layer" + std::to_string(layer) + ".", &store};
    layers.push_back(spec.make(context, options));
  }
  store.pack(DType::f64, Device::cpu, 3);
  store.zero_gradients();
  Tape tape;
  std::vector<Leaves> leaves;
  Var state, loss;
  Outcome outcome;
  for (const std::size_t l : {0U, 1U}) {
    const Problem& p = problems[l];
    leaves.emplace_back(tape, p.in);
    leaves[l].vars.state = state;
    const Call call = training_call(p.in);
    attention::OutputVars left;
    if (reference) {
      left = {layers[l]->reference(leaves[l].vars, p.in.mask, {}, call),
              layers[l]->reference_state(leaves[l].vars, p.in.mask, {}, call)};
    } else {
      left = attention::apply_with_state(*layers[l], leaves[l].vars, p.in.mask, call);
    }
    const Var part = sum_all(left.out * tape.constant(p.dout));
    loss = l == 0 ? part : loss + part;
    state = left.state;
    outcome.emplace_back("out", left.out.value());
  }
  outcome.emplace_back("state", state.value());
  if (dstate.defined()) loss = loss + sum_all(state * tape.constant(dstate));
  tape.backward(loss);
  for (const Leaves& x : leaves) {
    outcome.emplace_back("dq", gradient_of(tape, x.vars.q));
    outcome.emplace_back("dk", gradient_of(tape, x.vars.k));
    outcome.emplace_back("dv", gradient_of(tape, x.vars.v));
  }
  for (const Parameter& p : store.parameters()) outcome.emplace_back("d" + p.name, p.grad.clone());
  return outcome;
}

}  // namespace

TEST_CASE("a state that goes from layer to layer carries values and gradients as the reference's") {
  int carrying = 0;
  each_sample([&](const Spec& spec, const OptionValues& options) {
    if (!spec.carries_state) return;
    ++carrying;
    const Sizes sizes = first_served(spec, options);
    const Problem problems[] = {make_problem(spec, sizes, Padding::mixed, 1),
                                make_problem(spec, sizes, Padding::mixed, 2)};
    const Tensor last = at(two_layers(spec, options, problems, {}, true), "state");
    const Tensor dstate = tensor::normal(last.shape(), Random{5, {}}, DType::f64, Device::cpu);
    for (const Tensor& cotangent : {Tensor(), dstate}) {
      const Worst worst = compare(two_layers(spec, options, problems, cotangent, false),
                                  two_layers(spec, options, problems, cotangent, true));
      INFO("worst in ", worst.name);
      CHECK(worst.error <= 1e-10);
    }
    // The second layer's loss reaches the first one's keys.
    Problem silent[] = {problems[0], problems[1]};
    silent[0].dout = zeros_like(silent[0].dout);
    CHECK(norm(at(two_layers(spec, options, silent, {}, false), "dk")) > 0);
  });
  CHECK(carrying > 0);
}

TEST_CASE("two calls of a layer on one tape give what each gives alone") {
  each_sample([](const Spec& spec, const OptionValues& options) {
    const Sizes sizes = first_served(spec, options);
    const Layer layer = make_layer(spec, options, sizes, DType::f64);
    const Problem problems[] = {make_problem(spec, sizes, Padding::mixed, 1),
                                make_problem(spec, sizes, Padding::mixed, 2)};
    Tape tape;
    std::vector<Leaves> leaves;
    std::vector<Tensor> outs;
    Var loss;
    for (const Problem& p : problems) {
      leaves.emplace_back(tape, p.in);
      const Leaves& x = leaves.back();
      const Var out = attention::apply(*layer.method, x.vars, p.in.mask, training_call(p.in));
      outs.push_back(out.value());
      const Var part = sum_all(out * tape.constant(p.dout));
      loss = loss.defined() ? loss + part : part;
    }
    tape.backward(loss);
    for (std::size_t i = 0; i < 2; ++i) {
      INFO("call ", i);
      const Outcome alone = run(layer, problems[i], training_call(problems[i].in));
      CHECK(distance(outs[i], at(alone, "out")) == 0);
      CHECK(distance(gradient_of(tape, leaves[i].vars.q), at(alone, "dq")) == 0);
      CHECK(distance(gradient_of(tape, leaves[i].vars.v), at(alone, "dv")) == 0);
      if (!spec.reads_x) continue;
      CHECK(distance(gradient_of(tape, leaves[i].vars.x), at(alone, "dx")) == 0);
    }
  });
}

TEST_CASE("no method writes into its inputs, its draws or the gradient of its output") {
  each_sample([](const Spec& spec, const OptionValues& options) {
    const Sizes sizes = first_served(spec, options);
    const Layer layer = make_layer(spec, options, sizes, DType::f32);
    const Problem p = convert(make_problem(spec, sizes, Padding::mixed), DType::f32);
    Call call = training_call(p.in);
    const Draws draws = layer.method->draw(p.in, call);
    call.injected = &draws;
    std::vector<std::pair<std::string, Tensor>> given = draws.all();
    given.insert(given.end(),
                 {{"q", p.in.q}, {"v", p.in.v}, {"mask", p.in.mask}, {"dout", p.dout}});
    if (p.in.k.defined()) given.emplace_back("k", p.in.k);
    if (p.in.x.defined()) given.emplace_back("x", p.in.x);
    std::vector<std::vector<double>> before;
    for (const auto& [name, tensor] : given) before.push_back(tensor.to_vector());
    (void)run(layer, p, call);
    for (std::size_t i = 0; i < given.size(); ++i) {
      INFO(given[i].first);
      CHECK(given[i].second.to_vector() == before[i]);
    }
  });
}

TEST_CASE("an example without any real token stays finite among others") {
  each_sample([](const Spec& spec, const OptionValues& options) {
    const Sizes sizes = first_served(spec, options);
    Problem problem = make_problem(spec, sizes, Padding::mixed);
    std::vector<double> mask = problem.in.mask.to_vector();
    std::fill(mask.begin() + sizes.n, mask.begin() + 2 * sizes.n, 0.0);
    problem.in.mask = Tensor::from(mask, problem.in.mask.shape(), DType::f64, Device::cpu);
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Layer layer = make_layer(spec, options, sizes, dtype);
      const Problem p = convert(problem, dtype);
      for (const auto& [name, tensor] : run(layer, p, training_call(p.in))) {
        INFO(name);
        CHECK(tensor::all_finite(tensor));
      }
    }
  });
}

TEST_CASE("rows that a method combines give what all rows give, forward and backward") {
  int combining = 0;
  each_sample([&](const Spec& spec, const OptionValues& options) {
    const Sizes sizes = first_served(spec, options);
    const Layer layer = make_layer(spec, options, sizes, DType::f64);
    const Problem problem = make_problem(spec, sizes, Padding::mixed);
    const std::int64_t b = sizes.batch, h = sizes.heads, d = sizes.width, e = 5;
    const Random random{11, {}};
    const auto numbers = [&](const Shape& shape, std::uint64_t which) {
      return tensor::normal(shape, random.fork(which), DType::f64, Device::cpu);
    };
    const auto outcome = [&](bool combine) {
      layer.store->zero_gradients();
      Tape tape;
      const Var x = tape.input(numbers({b, sizes.n, e}, 1));  // [B, N, E]
      const Var q = tape.input(problem.in.q);                 // [B, H, N, D]
      const std::optional<attention::CombinedRows> combined =
          layer.method->combine_rows(x, problem.in.mask);
      if (!combined) return Outcome{};
      const auto project = [&](std::uint64_t which) {  // W x + b: [B, H, N or M, D]
        const Var w = tape.constant(numbers({h * d, e}, which));
        const Var bias = tape.constant(numbers({h * d}, which + 1));
        const Var y =
            combine ? linear(combined->rows, w, Var()) + combined->sums * bias : linear(x, w, bias);
        return swap_middle(reshape(y, {b, y.size(1), h, d}));
      };
      const bool absent = combine && spec.values_only;
      const Var out =
          attention::apply_with_state(*layer.method,
                                      {absent ? Var() : q, absent ? Var() : project(2), project(4)},
                                      problem.in.mask, training_call(problem.in), combine)
              .out;
      Outcome result{{"out", out.value()}};
      tape.backward(out, problem.dout);
      result.emplace_back("dx", gradient_of(tape, x));
      result.emplace_back("dq", gradient_of(tape, q));
      for (const Parameter* p : layer.trainable()) {
        result.emplace_back("d" + p->name, p->grad.clone());
      }
      return result;
    };
    const Outcome all = outcome(false);
    if (all.empty()) return;  // nothing to combine with these options
    ++combining;
    const Worst worst = compare(outcome(true), all);
    INFO("worst in ", worst.name);
    CHECK(worst.error <= 1e-12);
  });
  CHECK(combining > 0);
}

TEST_CASE("the exact attention that a method says it is gives the bits of its call") {
  int exact = 0;
  each_sample([&](const Spec& spec, const OptionValues& options) {
    const Sizes sizes = first_served(spec, options);
    const Layer layer = make_layer(spec, options, sizes, DType::f64);
    const Problem problem = make_problem(spec, sizes, Padding::mixed);
    Call training = training_call(problem.in), evaluation = training;
    training.first_example = 2;
    evaluation.training = false;
    for (const Call& call : {training, evaluation}) {
      const auto said = layer.method->exact_attention(sizes.width, call);
      if (!said) continue;
      ++exact;
      const auto of_call = layer.method->forward(problem.in, {}, call);
      const auto as_said = attention::tiled_attention(problem.in, *said);
      CHECK(of_call.out.to_vector() == as_said.out.to_vector());
      CHECK(of_call.backward(problem.dout).dq.to_vector() ==
            as_said.backward(problem.dout).dq.to_vector());
    }
  });
  CHECK(exact > 0);
}

TEST_CASE("an output of another shape is refused, with both shapes") {
  /// Gives one token too few.
  class Shorter final : public Method {
   public:
    [[nodiscard]] attention::Result forward(const Inputs& in, const Draws&,
                                            const Call&) const override {
      return {tensor::narrow(in.v, 2, 0, in.v.size(2) - 1), {}};
    }
    [[nodiscard]] Var reference(const attention::InputVars& in, const Tensor&, const Draws&,
                                const Call&) const override {
      return in.v;
    }
  };
  const Spec& spec = attention::find("softmax");
  const Problem p = make_problem(spec, {.batch = 1, .heads = 2, .n = 9, .width = 3}, Padding::none);
  Tape tape;
  const attention::InputVars in{tape.constant(p.in.q), tape.constant(p.in.k),
                                tape.constant(p.in.v)};
  CHECK_THROWS_WITH_AS((void)attention::apply(Shorter(), in, p.in.mask, training_call(p.in)),
                       "attention: forward gave f64[1, 2, 8, 3]@cpu, expected [1, 2, 9, 3] for v "
                       "f64[1, 2, 9, 3]@cpu",
                       Error);
}

}  // namespace skytape::test
