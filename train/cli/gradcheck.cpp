#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>

#include "attention/registry.hpp"
#include "autograd/gradcheck.hpp"
#include "tensor/core/error.hpp"
#include "tensor/random/random.hpp"
#include "train/cli/cli.hpp"
#include "train/process/threads.hpp"

namespace skytape::train {
namespace {

constexpr std::uint64_t kSeed = 7;

// Sizes of the check: odd, no multiple of a block, and small enough for every coordinate. The
// layer's input has a separate width.
constexpr std::int64_t kBatch = 2, kHeads = 2, kPositions = 13, kWidth = 4, kInputWidth = 5;

/// The last example is padded at its end and has a hole.
Tensor sample_mask() {
  std::vector<double> mask(kBatch * kPositions, 1.0);
  for (std::int64_t i = kPositions - 3; i < kPositions; ++i) mask[kPositions + i] = 0;
  mask[kPositions + 2] = 0;
  return Tensor::from(mask, {kBatch, kPositions}, DType::f64, Device::cpu);  // [B, N]
}

std::string describe(const attention::OptionValues& options) {
  std::string text;
  for (const auto& [key, value] : options) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  }
  return text.empty() ? "defaults" : text;
}

/// One method with one set of options, in training mode, its draws held fixed.
GradcheckReport check(const attention::Spec& spec, const attention::OptionValues& options) {
  ParameterStore store;
  const std::unique_ptr<attention::Method> method =
      spec.make({0, kHeads, kWidth, kPositions, "attn.", &store, kInputWidth}, options);
  store.pack(DType::f64, Device::cpu, kSeed);

  const Shape shape{kBatch, kHeads, kPositions, kWidth};
  std::vector<Tensor> inputs;  // those that a model passes to it: q, k, v [B, H, N, D], x [B, N, E]
  std::vector<std::string> names;
  const auto add = [&](const char* name, const Shape& of) {
    inputs.push_back(tensor::normal(of, Random{kSeed + names.size(), {}}, DType::f64, Device::cpu));
    names.emplace_back(name);
  };
  if (!spec.values_only) add("q", shape);
  if (!spec.values_only && !spec.shared_qk) add("k", shape);
  add("v", shape);
  if (spec.reads_x) add("x", {kBatch, kPositions, kInputWidth});
  /// The array of that name among `from`, which are as `inputs`; what the method does not take is
  /// left undefined.
  const auto named = [&](const auto& from, const char* name) {
    const auto place = std::find(names.begin(), names.end(), name) - names.begin();
    using Value = std::remove_cvref_t<decltype(from[0])>;
    return place < std::ssize(names) ? from[static_cast<std::size_t>(place)] : Value();
  };
  const Tensor mask = sample_mask();
  attention::Call call;
  call.training = true;
  call.random.key = kSeed;
  call.fewest_tokens = Tensor::full({1}, kPositions - 4, DType::i32, Device::cpu);
  const attention::Draws draws = method->draw(
      {named(inputs, "q"), named(inputs, "k"), named(inputs, "v"), mask, false, named(inputs, "x")},
      call);
  call.injected = &draws;

  const Function f = [&](Tape&, std::span<const Var> vars) {
    return attention::apply(
        *method, {named(vars, "q"), named(vars, "k"), named(vars, "v"), named(vars, "x")}, mask,
        call);
  };
  std::vector<Parameter*> parameters = method->parameters();
  std::erase_if(parameters, [](const Parameter* p) { return !p->trainable; });
  return gradcheck(f, inputs, {}, names, parameters);
}

void print_report(const std::string& label, const GradcheckReport& report) {
  fmt::print("{}\n", label);
  for (const GradcheckEntry& e : report.inputs) {
    fmt::print("  {:<28} {:>8} {:>7} {:>16.8e} {:>16.8e} {:>9.1e}  {}\n", e.input,
               e.index < 0 ? "random" : std::to_string(e.index), e.checked, e.analytic, e.numeric,
               e.error, e.error <= report.tolerance ? "ok" : "FAILED");
  }
}

int run(const std::string& attention) {
  set_threads(1);  // the sizes are too small to share
  const std::vector<std::string> methods = method_list(attention);
  fmt::print("  {:<28} {:>8} {:>7} {:>16} {:>16} {:>9}\n", "input", "worst at", "checked",
             "analytic", "numeric", "error");
  int checks = 0;
  int failed = 0;
  for (const std::string& name : methods) {
    const attention::Spec& spec = attention::find(name);
    for (const attention::OptionValues& options : spec.samples) {
      const std::string label = fmt::format("{}, {}", name, describe(options));
      ++checks;
      try {
        const GradcheckReport report = check(spec, options);
        print_report(label, report);
        failed += report.passed ? 0 : 1;
      } catch (const UsageError& error) {
        // Settings that these sizes cannot serve are not a wrong gradient, and not a check either.
        fmt::print("{}\n  skipped: {}\n", label, error.what());
        --checks;
      } catch (const std::exception& error) {
        fmt::print("{}\n  FAILED: {}\n", label, error.what());
        ++failed;
      }
    }
  }
  fmt::print("{} checked, {} failed\n", checks, failed);
  return failed == 0 && checks > 0 ? 0 : 1;
}

}  // namespace

void add_gradcheck(const Command& program) {
  const Command command =
      program.add_command("gradcheck", "compare the gradients of methods with central differences");
  const auto attention = std::make_shared<std::string>("all");
  command.add_option("--attention", *attention, "methods a,b,… or all");
  command.runs([attention] { return run(*attention); });
}

}  // namespace skytape::train
