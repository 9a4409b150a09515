// The mathematics of every attention method, and most of the contract above class Method: loops
// over the registry, which serve a new method without an edit here. contract_test.cpp has the rest.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "autograd/gradcheck.hpp"
#include "autograd/ops.hpp"
#include "tensor/core/storage.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/layout.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

namespace skytape::test {
namespace {

constexpr std::int64_t kExactLength = 64;  // N = 64, D = 8, H = 2: where Spec::exact must hold

/// All draws of a call, made in f64 so that every dtype sees the same.
Draws draw(const Layer& layer, const Problem& problem, const Call& call) {
  return layer.method->draw(problem.in, call);
}

bool all_finite(const Outcome& outcome) {
  for (const auto& [name, tensor] : outcome) {
    if (!tensor::all_finite(tensor)) return false;
  }
  return true;
}

/// dout with zeros at padded positions, as the model's masks produce it.
Problem without_padded_cotangent(Problem p) {
  p.dout = tensor::mask_rows(p.dout, p.in.mask);
  return p;
}

/// Adds noise to q, k, v and x of padded positions.
Problem disturb_padding(const Problem& p, const Problem& noise) {
  const Tensor padded = tensor::affine(p.in.mask, -1, 1);  // [B, N]
  const auto disturb = [&](const Tensor& x, const Tensor& y) {
    return x.defined() ? tensor::add(x, weigh_positions(y, padded)) : x;
  };
  return {{disturb(p.in.q, noise.in.q), disturb(p.in.k, noise.in.k), disturb(p.in.v, noise.in.v),
           p.in.mask, false, disturb(p.in.x, noise.in.x)},
          p.dout};
}

/// Norm of the rows of padded positions.
double norm_at_padding(const Tensor& x, const Tensor& mask) {
  return norm(weigh_positions(x, tensor::affine(mask, -1, 1)));
}

/// Arrays [N, D] of each head that a method keeps, as Spec::memory says: 2 of "2 N D + 26 L^2".
std::int64_t arrays_kept(const std::string& memory) {
  const std::pair<const char*, std::int64_t> in_other_words[] = {
      {"N D", 1}, {"2 (N + L) D", 2}, {"(R + 1) N D", 3}, {"C w D", 1}};  // R = 2, C w = N
  for (const auto& [beginning, arrays] : in_other_words) {
    if (memory.starts_with(beginning)) return arrays;
  }
  return memory.substr(1).starts_with(" N D") ? memory[0] - '0' : 0;
}

/// Rule of the optimised code at the products' present precision: at most three times the error of
/// the plain composition in f32, whose truth is f64, plus a floor.
void check_f32_errors(double relative_floor) {
  each_sample([&](const Spec& spec, const OptionValues& options) {
    const Sizes sizes = first_served(spec, options);
    const Layer exact = make_layer(spec, options, sizes, DType::f64);
    const Layer rough = make_layer(spec, options, sizes, DType::f32);
    const Problem p64 = make_problem(spec, sizes, Padding::mixed);
    const Problem p32 = convert(p64, DType::f32);
    const Problem rounded = convert(p32, DType::f64);  // all three see the same numbers
    Call call = training_call(p64.in);
    const Draws draws64 = draw(exact, rounded, call);
    const Draws draws32 = convert(draws64, DType::f32);
    call.injected = &draws64;
    const Outcome truth = run_reference(exact, rounded, call);
    call.injected = &draws32;
    const Outcome plain = run_reference(rough, p32, call);
    const Outcome ours = run(rough, p32, call);
    const double scale = smallest_scale(truth);
    for (const auto& [name, expected] : truth) {
      INFO(name);
      const double floor = relative_floor * std::max(norm(expected), name == "out" ? 0 : scale);
      CHECK(distance(at(ours, name).to(DType::f64), expected) <=
            3 * distance(at(plain, name).to(DType::f64), expected) + floor);
    }
  });
}

}  // namespace

TEST_CASE("every method equals its reference in f64, forward and backward") {
  each_sample([](const Spec& spec, const OptionValues& options) {
    int served = 0;
    for (const std::int64_t n : kLengths) {
      Sizes sizes;
      sizes.n = n;
      if (served > 0 && (n == 256 || options != spec.samples.front())) continue;  // quick
      if (!serves(spec, options, sizes)) continue;
      ++served;
      const Layer layer = make_layer(spec, options, sizes, DType::f64);
      const Problem problem = make_problem(spec, sizes, Padding::mixed);
      Call call = training_call(problem.in);
      const Draws draws = draw(layer, problem, call);
      call.injected = &draws;
      const Worst worst = compare(run(layer, problem, call), run_reference(layer, problem, call));
      INFO("N = ", n, ", worst in ", worst.name);
      CHECK(worst.error <= 1e-10);
    }
    CHECK_MESSAGE(served > 0, "serves none of the test lengths");
  });
}

TEST_CASE("a call that draws for itself is the call that is given those draws") {
  each_sample([](const Spec& spec, const OptionValues& options) {
    const Sizes sizes = first_served(spec, options);
    const Layer layer = make_layer(spec, options, sizes, DType::f64);
    const Problem problem = make_problem(spec, sizes, Padding::mixed);
    Call call = training_call(problem.in);
    const Outcome alone = run(layer, problem, call);  // may use what drawing has cached
    const Draws draws = draw(layer, problem, call);
    call.injected = &draws;
    const Worst worst = compare(alone, run(layer, problem, call));
    INFO("worst in ", worst.name);
    CHECK(worst.error <= 1e-13);
  });
}

TEST_CASE("f32 errors are at most three times those of the f32 reference") {
  check_f32_errors(5e-7);
}

TEST_CASE("bf16 errors are at most three times those of the reference with bf16 products") {
  if (!cpu_bf16_or_skip()) return;
  const PrecisionScope scope(Device::cpu, Precision::bf16);
  check_f32_errors(5e-7);
}

TEST_CASE("every method passes gradcheck with a random cotangent") {
  each_sample([](const Spec& spec, const OptionValues& options) {
    const Sizes sizes = first_served(spec, options, {.batch = 1, .heads = 2, .width = 4});
    const Layer layer = make_layer(spec, options, sizes, DType::f64);
    Problem problem = make_problem(spec, {3, 2, sizes.n, 4}, Padding::mixed);
    problem = example(problem, 2);  // the one with holes
    Call call = training_call(problem.in);
    const Draws draws = draw(layer, problem, call);
    call.injected = &draws;
    std::vector<Tensor> inputs;
    for (const Tensor& input : {problem.in.q, problem.in.v, problem.in.k, problem.in.x}) {
      if (input.defined()) inputs.push_back(input);
    }
    const Function f = [&](Tape&, std::span<const Var> x) {
      const Var k = spec.shared_qk ? Var() : x[2];
      const attention::InputVars in{x[0], k, x[1], spec.reads_x ? x.back() : Var()};
      return attention::apply(*layer.method, in, problem.in.mask, call);
    };
    const std::vector<Parameter*> parameters = layer.trainable();
    GradcheckOptions quick;  // the comparison with the reference has seen every coordinate
    quick.all_coordinates_below = 32;
    quick.directions = 6;
    const GradcheckReport report = gradcheck(f, inputs, quick, {}, parameters);
    CHECK_MESSAGE(report.passed, report.to_string());
  });
}

TEST_CASE("a method equals another one where its Spec says so") {
  for (const Spec& spec : attention::registry()) {
    for (const attention::Exact& exact : spec.exact) {
      INFO(spec.name, " equals ", exact.equals, " when ", exact.when);
      const Sizes sizes{.batch = 2, .heads = 2, .n = kExactLength, .width = 8};
      const Layer layer = make_layer(spec, exact.options, sizes, DType::f64);
      const Spec& other = attention::find(exact.equals);
      const Layer truth = make_layer(other, {}, sizes, DType::f64);
      const Problem problem = make_problem(spec, sizes, Padding::none);
      Call call = training_call(problem.in);
      call.training = false;
      const Outcome expected = run(truth, problem, call);
      Draws draws = draw(layer, problem, call);
      if (exact.draws) {
        const Draws special = exact.draws(problem.in);
        for (const auto& [name, value] : special.all()) draws.set(name, value);
      }
      call.injected = &draws;
      Outcome ours = run(layer, problem, call);
      ours.resize(expected.size());  // x and parameters of this method have no counterpart
      const Worst worst = compare(ours, expected);
      INFO("worst in ", worst.name);
      CHECK(worst.error <= exact.tolerance);
    }
  }
}

TEST_CASE("padded positions have no influence and no gradient") {
  each_sample([](const Spec& spec, const OptionValues& options) {
    if (spec.reads_padding) return;
    const Sizes sizes = first_served(spec, options);
    const Layer layer = make_layer(spec, options, sizes, DType::f64);
    const Problem problem = without_padded_cotangent(make_problem(spec, sizes, Padding::mixed));
    Call call = training_call(problem.in);
    const Draws draws = draw(layer, problem, call);
    call.injected = &draws;
    const Problem noise = make_problem(spec, sizes, Padding::mixed, 77);
    for (const bool by_itself : {false, true}) {  // draws may depend on the inputs
      if (by_itself) call.injected = nullptr;
      CAPTURE(by_itself);
      const Outcome calm = run(layer, problem, call);
      const Outcome disturbed = run(layer, disturb_padding(problem, noise), call);
      for (const auto& [name, tensor] : calm) {
        INFO(name);
        const auto real = [&, per_token = of_tokens(name)](const Tensor& t) {
          return per_token ? weigh_positions(t, problem.in.mask) : t;
        };
        CHECK(distance(real(tensor), real(at(disturbed, name))) <= 1e-10 * norm(real(tensor)));
        if (name != "out" && of_tokens(name)) CHECK(norm_at_padding(tensor, problem.in.mask) == 0);
      }
    }
  });
}

TEST_CASE("padded keys have no gradient even where padded queries have one") {
  each_sample([](const Spec& spec, const OptionValues& options) {
    if (spec.reads_padding || spec.shared_qk) return;
    const Sizes sizes = first_served(spec, options);
    const Layer layer = make_layer(spec, options, sizes, DType::f64);
    const Problem problem = make_problem(spec, sizes, Padding::mixed);
    const Outcome outcome = run(layer, problem, training_call(problem.in));
    CHECK(norm_at_padding(at(outcome, "dk"), problem.in.mask) == 0);
    CHECK(norm_at_padding(at(outcome, "dv"), problem.in.mask) == 0);
  });
}

TEST_CASE("a batch without any real token stays finite") {
  each_sample([](const Spec& spec, const OptionValues& options) {
    const Sizes sizes = first_served(spec, options);
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Layer layer = make_layer(spec, options, sizes, dtype);
      const Problem problem = convert(make_problem(spec, sizes, Padding::all), dtype);
      CHECK(all_finite(run(layer, problem, training_call(problem.in))));
    }
  });
}

TEST_CASE("an example alone gives what it gives in its batch") {
  each_sample([](const Spec& spec, const OptionValues& options) {
    const Sizes sizes = first_served(spec, options);
    const Layer layer = make_layer(spec, options, sizes, DType::f64);
    if (!spec.per_example || layer.method->needs_whole_batch()) return;
    const Problem problem = make_problem(spec, sizes, Padding::mixed);
    Call call = training_call(problem.in);
    const Outcome whole = run(layer, problem, call);
    for (std::int64_t b = 0; b < sizes.batch; ++b) {
      call.first_example = b;
      const Outcome alone = run(layer, example(problem, b), call);
      for (const auto& [name, tensor] : whole) {
        if (!of_tokens(name)) continue;
        INFO("example ", b, ", ", name);
        const Tensor expected = permute(tensor, {b});
        CHECK(distance(at(alone, name), expected) <= 1e-10 * norm(expected));
      }
    }
  });
}

TEST_CASE("with Call::alone an example of any method gives what it gives as a separate batch") {
  each_sample([](const Spec& spec, const OptionValues& options) {
    const Sizes sizes = first_served(spec, options);
    const Layer layer = make_layer(spec, options, sizes, DType::f64);
    const Problem problem = make_problem(spec, sizes, Padding::mixed);
    const auto call_on = [](const Inputs& in) {
      Call call = training_call(in);
      call.training = false;
      call.alone = true;
      return call;
    };
    Call call = call_on(problem.in);
    const Outcome whole = run(layer, problem, call);
    for (std::int64_t b = 0; b < sizes.batch; ++b) {
      const Problem own = example(problem, b);
      const Outcome alone = run(layer, own, call_on(own.in));
      for (const auto& [name, tensor] : whole) {
        if (!of_tokens(name)) continue;
        INFO("example ", b, ", ", name);
        const Tensor expected = permute(tensor, {b});
        CHECK(distance(at(alone, name), expected) <= 1e-10 * norm(expected));
      }
    }
    const Draws draws = draw(layer, problem, call);
    call.injected = &draws;
    const Worst worst = compare(whole, run_reference(layer, problem, call));
    INFO("worst in ", worst.name);
    CHECK(worst.error <= 1e-10);
  });
}

TEST_CASE("what is not a number in a query, a key or a value is seen in the output that reads it") {
  for_each_device([](Device device) {
    each_sample([&](const Spec& spec, const OptionValues& options) {
      const Sizes sizes = first_served(spec, options);
      const Layer layer = make_layer(spec, options, sizes, DType::f32, device);
      const Problem sound = convert(make_problem(spec, sizes, Padding::mixed), DType::f32);
      for (const std::int64_t position : {1, 6, 17}) {  // real in every example
        for (const char which : {'q', 'k', 'v'}) {
          INFO(std::string(1, which), " at ", position);
          /// Outputs of the examples where a row of example 1 is so.
          const auto outputs_with = [&](double value) {
            Problem p = sound;
            Tensor& changed = which == 'q' ? p.in.q : which == 'k' ? p.in.k : p.in.v;
            if (!changed.defined()) return std::vector<Tensor>();
            changed = changed.clone();
            Tensor head = changed[1][1];  // [N, D]
            head[position].fill(value);
            const Problem there = convert(p, DType::f32, device);
            Call call = training_call(there.in);
            call.training = false;
            call.alone = true;
            const Draws draws = draw(layer, there, call);
            const Tensor out = layer.method->forward(there.in, draws, call).out.to(Device::cpu);
            std::vector<Tensor> examples;
            for (const std::int64_t b : {0, 1, 2}) {
              examples.push_back(weigh_positions(permute(out, {b}), permute(p.in.mask, {b})));
            }
            return examples;
          };
          const std::vector<Tensor> one = outputs_with(1), two = outputs_with(2);
          if (one.empty() || distance(one[1], two[1]) == 0) continue;  // no output reads it
          const std::vector<Tensor> none = outputs_with(std::numeric_limits<double>::quiet_NaN());
          CHECK(std::isfinite(norm(none[0])));
          CHECK_FALSE(std::isfinite(norm(none[1])));
          CHECK(std::isfinite(norm(none[2])));
        }
      }
    });
  });
}

TEST_CASE("with Call::alone both devices draw the same") {
  if (!test::cuda_or_skip()) return;
  each_sample([](const Spec& spec, const OptionValues& options) {
    const Sizes sizes = first_served(spec, options);
    const Problem problem = convert(make_problem(spec, sizes, Padding::mixed), DType::f32);
    const auto drawn = [&](Device device) {
      const Problem there = convert(problem, DType::f32, device);
      Call call = training_call(there.in);
      call.training = false;
      call.alone = true;
      return draw(make_layer(spec, options, sizes, DType::f32, device), there, call);
    };
    const Draws host = drawn(Device::cpu), device = drawn(Device::cuda);
    for (const auto& [name, values] : host.all()) {
      INFO(name);
      CHECK(distance(device.get(name).to(Device::cpu), values) <= 1e-5 * norm(values));
    }
  });
}

TEST_CASE("a call keeps as many arrays for its backward as the table of costs says") {
  for (const Spec& spec : attention::registry()) {
    const auto kept = [&](std::int64_t n) {  // numbers of a head
      const Sizes sizes{.batch = 1, .heads = 2, .n = n, .width = 64};
      const OptionValues options =
          spec.has_option("features") ? OptionValues{{"features", "8"}} : OptionValues{};
      const Layer layer = make_layer(spec, options, sizes, DType::f32);
      const Problem p = convert(make_problem(spec, sizes, Padding::none), DType::f32);
      const Call call = training_call(p.in);
      (void)layer.method->forward(p.in, draw(layer, p, call), call);  // patterns are made once
      const std::int64_t before = memory_stats(Device::cpu).live_bytes;
      const attention::Result result = layer.method->forward(p.in, draw(layer, p, call), call);
      const std::int64_t bytes = memory_stats(Device::cpu).live_bytes - before;
      return static_cast<double>(bytes / 4 - result.out.numel()) / 2;
    };
    // Beside the arrays there are at most a few numbers of each token.
    const double arrays = (kept(1024) - kept(512)) / (512 * 64);
    CHECK_MESSAGE(
        std::lround(arrays) == arrays_kept(spec.memory), spec.name,
        ": arrays [N, D] of a head that backward holds beside q, k, v and the output (none may be "
        "[N, N]), and Spec::memory: ",
        spec.memory);
  }
}

TEST_CASE("permuting the batch permutes the result") {
  each_sample([](const Spec& spec, const OptionValues& options) {
    const Sizes sizes = first_served(spec, options);
    const Layer layer = make_layer(spec, options, sizes, DType::f64);
    if (!spec.per_example || layer.method->needs_whole_batch()) return;
    const Problem problem = make_problem(spec, sizes, Padding::mixed);
    const std::vector<std::int64_t> order = {2, 0, 1};
    Call call = training_call(problem.in);
    call.training = false;
    const Draws draws = draw(layer, problem, call);
    Draws permuted;  // arrays with a batch axis move with their examples
    for (const auto& [name, value] : draws.all()) {
      const bool batched = value.rank() > 1 && value.size(0) == sizes.batch;
      permuted.set(name, batched ? permute(value, order) : value);
    }
    call.injected = &draws;
    const Outcome straight = run(layer, problem, call);
    call.injected = &permuted;
    const Outcome moved = run(layer, permute(problem, order), call);
    for (const auto& [name, tensor] : straight) {
      if (!of_tokens(name)) continue;
      INFO(name);
      const Tensor expected = permute(tensor, order);
      CHECK(distance(at(moved, name), expected) <= 1e-10 * norm(expected));
    }
  });
}

TEST_CASE("a trimmed batch gives what the padded one gives") {
  const auto check = [](const Spec& spec, const OptionValues& options, const Sizes& sizes,
                        std::int64_t kept) {
    const Layer layer = make_layer(spec, options, sizes, DType::f64);
    Problem padded = make_problem(spec, sizes, Padding::none);
    std::vector<double> mask;
    for (std::int64_t e = 0; e < 2 * sizes.n; ++e) {
      mask.push_back(e % sizes.n < kept - (e < sizes.n ? 0 : 5) ? 1 : 0);
    }
    padded.in.mask = Tensor::from(mask, {2, sizes.n}, DType::f64, Device::cpu);
    padded = without_padded_cotangent(padded);
    const Call call = training_call(padded.in);
    const Problem trimmed = narrow(padded, kept);
    const Outcome whole = narrow(run(layer, padded, call), kept);
    const Outcome cut = run(layer, trimmed, call);
    for (const auto& [name, expected] : whole) {
      INFO(name);
      const auto real = [&, per_token = of_tokens(name)](const Tensor& t) {
        return per_token ? weigh_positions(t, trimmed.in.mask) : t;
      };
      const double scale =  // an array that is zero in theory is measured against the others
          std::max(norm(real(expected)), name == "out" ? 0 : smallest_scale(whole));
      CHECK(distance(real(at(cut, name)), real(expected)) <= 1e-10 * scale);
    }
  };
  each_sample([&](const Spec& spec, const OptionValues& options) {
    if (spec.reads_padding) return;
    Sizes sizes = first_served(spec, options, {.batch = 2});
    sizes.nominal = sizes.n;
    const std::int64_t kept = sizes.n - sizes.n / 4;
    check(spec, options, sizes, kept);
    if (!spec.has_option("features")) return;
    // As many features as the trimmed batch has positions, fewer than the padded one: what is exact
    // from some length on must be so by the nominal one.
    OptionValues many = options;
    many["features"] = std::to_string(kept);
    INFO(many["features"]);
    if (serves(spec, many, sizes)) check(spec, many, sizes, kept);
  });
}

TEST_CASE("evaluating twice gives the same bits") {
  each_sample([](const Spec& spec, const OptionValues& options) {
    const Sizes sizes = first_served(spec, options);
    const Layer layer = make_layer(spec, options, sizes, DType::f32);
    const Problem problem = convert(make_problem(spec, sizes, Padding::mixed), DType::f32);
    const Call call = training_call(problem.in);
    const Outcome first = run(layer, problem, call), second = run(layer, problem, call);
    for (const auto& [name, tensor] : first) {
      INFO(name);
      CHECK(tensor.to_vector() == at(second, name).to_vector());
    }
  });
}

TEST_CASE("CUDA agrees with the CPU") {
  if (!test::cuda_or_skip()) return;
  each_sample([](const Spec& spec, const OptionValues& options) {
    const Sizes sizes = first_served(spec, options);
    const Problem problem = make_problem(spec, sizes, Padding::mixed);
    const Layer host = make_layer(spec, options, sizes, DType::f64);
    Call call = training_call(problem.in);
    const Draws draws = draw(host, problem, call);
    call.injected = &draws;
    const Outcome expected = run(host, problem, call);
    const std::pair<DType, double> limits[] = {{DType::f64, 1e-9}, {DType::f32, 1e-4}};
    for (const auto& [dtype, limit] : limits) {
      const Layer device = make_layer(spec, options, sizes, dtype, Device::cuda);
      const Draws moved = convert(draws, dtype, Device::cuda);
      const Problem there = convert(problem, dtype, Device::cuda);
      Call call_there = training_call(there.in);
      call_there.injected = &moved;
      Outcome ours = run(device, there, call_there);
      for (auto& [name, tensor] : ours) tensor = tensor.to(Device::cpu).to(DType::f64);
      const Worst worst = compare(ours, expected);
      INFO(name(dtype), ", worst in ", worst.name);
      CHECK(worst.error <= limit);
    }
  });
}

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("every method runs where blocks have the least shared memory, 99 KB (8.6, 8.9, 12.0)") {
  struct Kind {
    Precision precision;
    DType dtype;
    std::int64_t width;  // of a head
    double limit;        // another order of sums, or a composition in place of a kernel
  };
  constexpr Kind kKinds[] = {
      {Precision::fp32, DType::f32, 32, 5e-5},   {Precision::fp32, DType::f32, 64, 5e-5},
      {Precision::fp32, DType::f32, 128, 5e-5},  {Precision::fp32, DType::f64, 64, 1e-12},
      {Precision::fp32, DType::f64, 128, 1e-12}, {Precision::tf32, DType::f32, 64, 5e-3},
      {Precision::bf16, DType::f32, 32, 1e-3},   {Precision::bf16, DType::f32, 64, 1e-3}};
  for (const Spec& spec : attention::registry()) {
    for (const Kind& kind : kKinds) {
      const PrecisionScope scope(Device::cuda, kind.precision);
      const OptionValues& options = spec.samples.front();
      const Sizes sizes =
          first_served(spec, options, {.batch = 2, .heads = 1, .width = kind.width});
      const Problem problem = make_problem(spec, sizes, Padding::mixed);
      const Layer layer = make_layer(spec, options, sizes, kind.dtype, Device::cuda);
      const Problem there = convert(problem, kind.dtype, Device::cuda);
      const Layer host = make_layer(spec, options, sizes, DType::f64);
      const Draws draws =
          convert(draw(host, problem, training_call(problem.in)), kind.dtype, Device::cuda);
      Call call = training_call(there.in);
      call.injected = &draws;
      const auto results = [&] {
        Outcome all = run(layer, there, call);
        for (auto& [name, tensor] : all) tensor = tensor.to(Device::cpu).to(DType::f64);
        return all;
      };
      const Outcome roomy = results();
      const cuda_simulator::ComputeCapability sm_86(8, 6);
      const Worst worst = compare(results(), roomy);
      INFO(spec.name, ", ", "precision ", static_cast<int>(kind.precision), ", ",
           std::string(name(kind.dtype)), ", heads of ", kind.width, ", worst in ", worst.name);
      CHECK(worst.error <= kind.limit);
    }
  }
}
#endif

namespace {

/// Another method with a small error in dk: what the checks above must notice.
class WrongBackward final : public Method {
 public:
  explicit WrongBackward(std::unique_ptr<Method> right) : right_(std::move(right)) {}
  [[nodiscard]] attention::Result forward(const Inputs& in, const Draws& draws,
                                          const Call& call) const override {
    attention::Result result = right_->forward(in, draws, call);
    return {result.out, [backward = result.backward](const Tensor& dout) {
              attention::Gradients g = backward(dout);
              g.dk = tensor::affine(g.dk, 1.001);
              return g;
            }};
  }
  [[nodiscard]] Var reference(const attention::InputVars& in, const Tensor& mask,
                              const Draws& draws, const Call& call) const override {
    return right_->reference(in, mask, draws, call);
  }

 private:
  std::unique_ptr<Method> right_;
};

}  // namespace

TEST_CASE("a wrong backward fails the comparison with the reference and gradcheck") {
  const Spec& spec = attention::find("softmax");
  const Sizes sizes{.batch = 1, .heads = 1, .n = 9, .width = 3};
  Layer layer = make_layer(spec, {}, sizes, DType::f64);
  layer.method = std::make_unique<WrongBackward>(std::move(layer.method));
  const Problem problem = make_problem(spec, sizes, Padding::mixed);
  Call call = training_call(problem.in);
  const Draws none;
  call.injected = &none;
  const Worst worst = compare(run(layer, problem, call), run_reference(layer, problem, call));
  CHECK(worst.error > 1e-4);
  CHECK(worst.name == "dk");
  const GradcheckReport report = gradcheck(
      [&](Tape&, std::span<const Var> x) {
        return attention::apply(*layer.method, {x[0], x[1], x[2]}, problem.in.mask, call);
      },
      {problem.in.q, problem.in.k, problem.in.v});
  CHECK(!report.passed);
}

}  // namespace skytape::test
