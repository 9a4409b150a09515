#include "autograd/gradcheck.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>

#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/random/random.hpp"

namespace skytape {

namespace {

/// Something whose gradient is checked: an input, or a parameter's value in place.
struct Subject {
  std::string name;
  Tensor x;                      // perturbed in place
  std::vector<double> gradient;  // what backward said
};

/// Puts the subject's values back, also when the function throws.
class Restore {
 public:
  explicit Restore(const Tensor& x) : x_(x), saved_(x.clone()) {}
  ~Restore() { x_.copy_from(saved_); }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;
  [[nodiscard]] const double* saved() const { return saved_.data<double>(); }

 private:
  Tensor x_, saved_;
};

/// Zeroes a parameter's gradient for the check and puts the old one back.
class BorrowGradient {
 public:
  explicit BorrowGradient(Parameter& p)
      : parameter_(p), saved_(p.grad.clone()), had_gradient_(p.has_gradient) {
    p.grad.fill(0);
  }
  ~BorrowGradient() {
    parameter_.grad.copy_from(saved_);
    parameter_.has_gradient = had_gradient_;
  }
  BorrowGradient(const BorrowGradient&) = delete;
  BorrowGradient& operator=(const BorrowGradient&) = delete;

 private:
  Parameter& parameter_;
  Tensor saved_;
  bool had_gradient_;
};

void require_checkable(const std::string& what, const Tensor& x) {
  ENSURE(x.defined() && x.dtype() == DType::f64 && x.device() == Device::cpu,
         "gradcheck: expected f64 on the cpu, ", what, " is ", x);
}

class Checker {
 public:
  Checker(const Function& f, std::span<const Tensor> inputs, const GradcheckOptions& options)
      : f_(f), inputs_(inputs.begin(), inputs.end()), options_(options) {}

  /// Runs backward once: fills every subject's gradient, remembers the output and its choices.
  void differentiate(std::vector<Subject>& subjects, std::span<Parameter* const> parameters);
  [[nodiscard]] GradcheckEntry check(const Subject& subject) const;

 private:
  struct Evaluation {
    std::vector<double> y;
    std::uint64_t choices = 0;
  };
  [[nodiscard]] Evaluation evaluate() const;
  [[nodiscard]] std::vector<Var> leaves(Tape& tape) const;
  /// Slope of <f, C> along `direction`, in units of one; nothing when a discrete choice changes.
  [[nodiscard]] std::optional<double> slope(const Subject& subject,
                                            std::span<const double> direction) const;
  void compare(GradcheckEntry& entry, const Subject& subject, std::int64_t index,
               std::span<const double> direction) const;

  const Function& f_;
  std::vector<Tensor> inputs_;
  const GradcheckOptions& options_;
  std::vector<double> cotangent_;  // C, in the output's shape
  Evaluation base_;
};

std::vector<Var> Checker::leaves(Tape& tape) const {
  std::vector<Var> vars;
  for (const Tensor& x : inputs_) vars.push_back(tape.input(x));
  return vars;
}

Checker::Evaluation Checker::evaluate() const {
  Tape tape;
  Evaluation result;
  result.y = f_(tape, leaves(tape)).value().to_vector();
  if (options_.discrete_choices) result.choices = options_.discrete_choices();
  return result;
}

void Checker::differentiate(std::vector<Subject>& subjects,
                            std::span<Parameter* const> parameters) {
  std::deque<BorrowGradient> borrowed;
  for (Parameter* p : parameters) borrowed.emplace_back(*p);

  Tape tape;
  const std::vector<Var> vars = leaves(tape);
  const Var out = f_(tape, vars);
  require_checkable("the function's output", out.value());
  const Tensor c = tensor::normal(out.shape(), Random{options_.seed, {}}, DType::f64, Device::cpu);
  cotangent_ = c.to_vector();
  base_.y = out.value().to_vector();
  if (options_.discrete_choices) base_.choices = options_.discrete_choices();
  for (std::size_t i = 0; i < base_.y.size(); ++i) {
    ENSURE(std::isfinite(base_.y[i]), "gradcheck: the function's output is not finite: entry ", i,
           " of ", out.value().shape(), " is ", base_.y[i]);
  }
  ENSURE(evaluate().y == base_.y, "gradcheck: the function gives different values for the same ",
         "inputs; fix its random draws");
  const bool depends = out.needs_grad();  // on an input or a parameter
  if (depends) tape.backward(out, c);

  for (std::size_t i = 0; i < subjects.size(); ++i) {
    Tensor gradient;
    if (i >= vars.size()) {
      gradient = parameters[i - vars.size()]->grad;
    } else if (depends) {
      gradient = tape.grad(vars[i]);
    }
    subjects[i].gradient = (gradient.defined() ? gradient : zeros_like(subjects[i].x)).to_vector();
  }
}

std::optional<double> Checker::slope(const Subject& subject,
                                     std::span<const double> direction) const {
  const Restore restore(subject.x);
  double* const x = subject.x.data<double>();
  const auto step_to = [&](double h) {
    for (std::size_t i = 0; i < direction.size(); ++i) x[i] = restore.saved()[i] + h * direction[i];
    return evaluate();
  };
  const Evaluation above = step_to(options_.step), below = step_to(-options_.step);
  if (above.choices != base_.choices || below.choices != base_.choices) return std::nullopt;
  // Differences entry by entry, before the sum: the sum of a large output would round them away.
  double difference = 0;
  for (std::size_t i = 0; i < cotangent_.size(); ++i) {
    difference += cotangent_[i] * (above.y[i] - below.y[i]);
  }
  return difference / (2 * options_.step);
}

void Checker::compare(GradcheckEntry& entry, const Subject& subject, std::int64_t index,
                      std::span<const double> direction) const {
  // A coordinate moves by h = step · scale; its slope is per unit of x, a direction's is along it.
  const double scale = index >= 0 ? direction[static_cast<std::size_t>(index)] : 1;
  const std::optional<double> along = slope(subject, direction);
  if (!along) {
    ++entry.skipped;
    return;
  }
  double analytic = 0;
  for (std::size_t i = 0; i < direction.size(); ++i) {
    if (direction[i] != 0) analytic += subject.gradient[i] * direction[i];
  }
  analytic /= scale;
  const double numeric = *along / scale;
  double error = std::abs(analytic - numeric) / (1 + std::abs(numeric));
  if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
  if (entry.checked++ == 0 || error > entry.error) {
    entry.index = index;
    entry.analytic = analytic;
    entry.numeric = numeric;
    entry.error = error;
  }
}

GradcheckEntry Checker::check(const Subject& subject) const {
  GradcheckEntry entry;
  entry.input = subject.name;
  const std::vector<double> x = subject.x.to_vector();
  const std::size_t n = x.size();
  const auto scale = [&](std::size_t i) { return std::max(1.0, std::abs(x[i])); };
  std::vector<double> direction(n, 0.0);
  if (subject.x.numel() < options_.all_coordinates_below) {
    for (std::size_t i = 0; i < n; ++i) {
      direction[i] = scale(i);
      compare(entry, subject, static_cast<std::int64_t>(i), direction);
      direction[i] = 0;
    }
    return entry;
  }
  // Random signs: every coordinate takes part in every direction.
  const Random random = Random{options_.seed, {}}.fork(1);
  for (int d = 0; d < options_.directions; ++d) {
    const auto first = static_cast<std::int64_t>(n) * d;
    const std::vector<double> u =
        tensor::uniform(subject.x.shape(), random, DType::f64, Device::cpu, first).to_vector();
    for (std::size_t i = 0; i < n; ++i) direction[i] = u[i] > 0.5 ? scale(i) : -scale(i);
    compare(entry, subject, -1, direction);
  }
  return entry;
}

}  // namespace

GradcheckReport gradcheck(const Function& f, std::vector<Tensor> inputs,
                          const GradcheckOptions& options, std::vector<std::string> names,
                          std::span<Parameter* const> parameters) {
  ENSURE(static_cast<bool>(f), "gradcheck: the function is empty");
  ENSURE(!inputs.empty() || !parameters.empty(),
         "gradcheck: expected an input or a parameter to differentiate by, got none");
  ENSURE(names.empty() || names.size() == inputs.size(), "gradcheck: ", inputs.size(),
         " inputs, but ", names.size(), " names");
  std::vector<Subject> subjects;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = names.empty() ? join("input", i) : names[i];
    require_checkable(name, inputs[i]);
    inputs[i] = inputs[i].clone();  // q, k and v may be one tensor
    subjects.push_back({name, inputs[i], {}});
  }
  for (const Parameter* p : parameters) {
    ENSURE(p->trainable, "gradcheck: parameter ", p->name, " is a constant buffer");
    require_checkable(p->name, p->value);
    subjects.push_back({p->name, p->value, {}});
  }

  Checker checker(f, inputs, options);
  checker.differentiate(subjects, parameters);
  GradcheckReport report;
  report.tolerance = options.tolerance;
  report.passed = true;
  for (const Subject& subject : subjects) {
    const GradcheckEntry& entry = report.inputs.emplace_back(checker.check(subject));
    report.worst = std::max(report.worst, entry.error);
    const bool looked_at = entry.checked > 0 || subject.x.numel() == 0;
    report.passed = report.passed && looked_at && entry.error <= options.tolerance;
  }
  return report;
}

std::string GradcheckReport::to_string() const {
  std::size_t width = 5;  // of the first column
  for (const GradcheckEntry& e : inputs) width = std::max(width, e.input.size());
  std::string text = fmt::format("{:<{}}{:>11}{:>18}{:>18}{:>11}{:>8}{:>8}\n", "input", width,
                                 "index", "analytic", "numeric", "error", "checked", "skipped");
  for (const GradcheckEntry& e : inputs) {
    text += fmt::format("{:<{}}{:>11}{:>18.9e}{:>18.9e}{:>11.2e}{:>8}{:>8}\n", e.input, width,
                        e.index < 0 ? "direction" : std::to_string(e.index), e.analytic, e.numeric,
                        e.error, e.checked, e.skipped);
  }
  return text + fmt::format("gradcheck {}: worst error {:.2e}, tolerance {:.2e}\n",
                            passed ? "passed" : "FAILED", worst, tolerance);
}

}  // namespace skytape
