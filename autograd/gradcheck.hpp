// gradcheck: compares a function's gradients with central differences, in f64.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "autograd/tape.hpp"

namespace skytape {

/// A differentiable function: takes leaves on the tape, returns any tensor.
using Function = std::function<Var(Tape& tape, std::span<const Var> inputs)>;

struct GradcheckOptions {
  double tolerance = 1e-6;                   // on |analytic - numeric| / (1 + |numeric|)
  double step = 1e-6;                        // h = step * max(1, |x|)
  std::int64_t all_coordinates_below = 500;  // larger inputs: random directions instead
  int directions = 16;
  std::uint64_t seed = 1;  // of the cotangent and the directions
  /// Called after every evaluation if set: returns a fingerprint of the discrete choices (top-k,
  /// buckets) it made. Coordinates where a step changes it are skipped and counted.
  std::function<std::uint64_t()> discrete_choices;
};

/// The worst coordinate of one input, and how many were looked at.
struct GradcheckEntry {
  std::string input;
  std::int64_t index = 0;  // flat; -1: a random direction, with derivatives along it
  double analytic = 0, numeric = 0, error = 0;
  std::int64_t checked = 0, skipped = 0;
};

struct GradcheckReport {
  std::vector<GradcheckEntry> inputs;  // then the parameters
  double worst = 0;                    // infinite where a number is NaN
  double tolerance = 0;
  bool passed = false;  // worst <= tolerance, and no input had all its coordinates skipped
  [[nodiscard]] std::string to_string() const;  ///< a table: input, index, analytic, numeric, error
};

/// Checks d<f(inputs), C>/dinputs for a random cotangent C. Inputs are f64 on the CPU, and their
/// copies are perturbed; `names` label them in the report (input0, input1, … if empty). Parameters
/// (f64, CPU, packed) are checked as well: each is perturbed in place, its gradient left as it was.
/// Throws when f's output is not finite, or when it gives two values for the same inputs: fix its
/// random draws first.
[[nodiscard]] GradcheckReport gradcheck(const Function& f, std::vector<Tensor> inputs,
                                        const GradcheckOptions& options = {},
                                        std::vector<std::string> names = {},
                                        std::span<Parameter* const> parameters = {});

}  // namespace skytape
