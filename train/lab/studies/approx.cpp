#include "train/lab/studies/approx.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "attention/registry.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/linear_algebra.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/layout.hpp"
#include "tensor/random/random.hpp"
#include "train/lab/studies/exact_attention.hpp"
#include "train/process/progress.hpp"

namespace skytape::train {
namespace {

using attention::OptionValues;
using attention::Spec;

/// Options of the study where they are not the method's defaults: the figure inverts the landmarks'
/// matrix exactly, which has no gradient and so is no default.
const std::map<std::string, OptionValues> kStudyOptions = {{"nystrom_sm", {{"solver", "exact"}}}};

/// A method at some number of features.
struct Candidate {
  const Spec* spec;
  std::optional<std::int64_t> features;
  OptionValues options;
};

std::vector<Candidate> candidates(const ApproxOptions& options) {
  std::vector<Candidate> all;
  for (const std::string& name : options.methods) {
    const Spec& spec = attention::find(name);
    if (spec.approximates.empty()) {
      throw UsageError(
          fmt::format("approx: {} is no approximation of another attention; expected one", name));
    }
    OptionValues values;
    for (const auto* given : {&kStudyOptions, &options.method_options}) {
      const auto found = given->find(name);
      if (found == given->end()) continue;
      for (const auto& [key, value] : found->second) values[key] = value;
    }
    if (values.contains("features")) {
      throw UsageError(fmt::format("{}.features: --features says it in this study", name));
    }
    if (!spec.has_option("features")) {
      all.push_back({&spec, std::nullopt, values});
      continue;
    }
    for (const std::int64_t d : options.features) {
      values["features"] = std::to_string(d);
      all.push_back({&spec, d, values});
    }
  }
  return all;
}

/// Returns the context for building a method for inputs of these shapes.
attention::LayerContext layer_context(const attention::Inputs& in, std::int64_t n,
                                      ParameterStore& store) {
  attention::LayerContext context{0, in.q.size(1), in.q.size(3), n, "", &store};
  if (in.x.defined()) context.width = in.x.size(2);
  return context;
}

/// Builds every method at every length without running it, so that nothing fails halfway.
void check(const InputSource& source, const ApproxOptions& options,
           const std::vector<Candidate>& all, const attention::Inputs& probe) {
  for (const auto& [name, values] : options.method_options) {
    if (std::find(options.methods.begin(), options.methods.end(), name) == options.methods.end()) {
      throw UsageError(fmt::format("{}.{}: {} is not among the methods of --attention", name,
                                   values.begin()->first, name));
    }
  }
  for (const std::int64_t n : options.lengths) {
    for (const std::int64_t d : options.features) {
      if (d > n) {
        throw UsageError(fmt::format("--features: expected at most n = {}, got {}", n, d));
      }
    }
    for (const Candidate& c : all) {
      if (c.spec->reads_x && !probe.x.defined()) {
        throw UsageError(fmt::format(
            "approx: {} reads the layer's input, which {} do not have; expected a model",
            c.spec->name, source.name));
      }
      ParameterStore scratch;
      (void)c.spec->make(layer_context(probe, n, scratch), c.options);
    }
  }
}

/// Output of a method with its own initial values and draws.
Tensor run_method(const Candidate& c, const attention::Inputs& in, const Random& random) {
  ParameterStore store;
  const auto method = c.spec->make(layer_context(in, in.q.size(2), store), c.options);
  store.pack(DType::f64, Device::cpu, fork(random, Purpose::initialise).key);
  attention::Call call;
  call.random = fork(random, Purpose::attention);
  attention::Inputs given = in;
  if (c.spec->shared_qk) given.k = {};
  return method->forward(given, method->draw(given, call), call).out;
}

/// Spectral norm of the difference at real tokens, for each head; NaN where it is not finite. a, b:
/// [1, H, N, D].
std::vector<double> distances(const Tensor& a, const Tensor& b, const Tensor& mask) {
  const Tensor difference = tensor::mask_rows(tensor::subtract(a, b), mask);
  std::vector<double> norms;
  for (std::int64_t h = 0; h < difference.size(1); ++h) {
    const Tensor own = difference[0][h];  // [N, D]
    norms.push_back(tensor::all_finite(own) ? tensor::spectral_norm(own)
                                            : std::numeric_limits<double>::quiet_NaN());
  }
  return norms;
}

/// Errors of P_d V for every d, by head: P_d V = U_d U_d^T P V with P's left singular vectors U.
std::vector<std::vector<double>> best_rank_norms(const std::string& target,
                                                 const attention::Inputs& in, const Tensor& exact,
                                                 const std::vector<std::int64_t>& features) {
  const std::int64_t most = *std::max_element(features.begin(), features.end());
  const Tensor tokens_only = tensor::mask_rows(exact, in.mask);  // [1, H, N, D]
  std::vector<std::vector<double>> norms(features.size());
  for (std::int64_t h = 0; h < in.q.size(1); ++h) {
    const Tensor matrix = attention_matrix(target, in, h);              // [N, N]
    const Tensor vectors = tensor::leading_left_vectors(matrix, most);  // [N, most]
    const Tensor out = tokens_only[0][h];                               // [N, D]
    const Tensor inside = tensor::matmul(vectors, out, Op::transpose);  // [most, D]
    const Tensor across = tensor::transpose(vectors);                   // [most, N]
    for (std::size_t i = 0; i < features.size(); ++i) {
      const std::int64_t d = features[i];
      Tensor rest = out.clone();
      tensor::gemm(across.slice(0, d), Op::transpose, inside.slice(0, d), Op::none, rest, -1, 1);
      norms[i].push_back(tensor::spectral_norm(rest));
    }
  }
  return norms;
}

/// A cell of one length while its trials run.
struct Row {
  const Candidate* candidate;  // null: the best rank
  std::string target;
  std::optional<std::int64_t> features;
  std::vector<double> absolute = {}, relative = {}, exact_norm = {};  // a value for each trial

  /// Adds a trial: norms of the differences and of the exact outputs, by head.
  void add(const std::vector<double>& norms, const std::vector<double>& exact_norms) {
    std::vector<double> shares;
    for (std::size_t h = 0; h < norms.size(); ++h) shares.push_back(norms[h] / exact_norms[h]);
    absolute.push_back(estimate(norms).mean);
    relative.push_back(estimate(shares).mean);
    exact_norm.push_back(estimate(exact_norms).mean);
  }
};

/// The rows of each target, in the order of their first methods: these, then the best ranks.
std::vector<std::vector<Row>> rows_by_target(const ApproxOptions& options,
                                             const std::vector<Candidate>& all) {
  std::vector<std::vector<Row>> targets;
  for (const Candidate& c : all) {
    const std::string& target = c.spec->approximates;
    auto rows = std::find_if(targets.begin(), targets.end(),
                             [&](const auto& some) { return some.front().target == target; });
    if (rows == targets.end()) rows = targets.emplace(rows);
    rows->push_back({&c, target, c.features});
  }
  for (std::vector<Row>& rows : targets) {
    const std::string target = rows.front().target;
    if (options.best_rank_trials == 0 || !has_matrix(target)) continue;
    for (const std::int64_t d : options.features) rows.push_back({nullptr, target, d});
  }
  return targets;
}

/// One example of n positions. The best rank's norms are computed together, for all d.
void run_trial(std::vector<Row>& rows, const attention::Inputs& in, std::int64_t n,
               std::int64_t index, const ApproxOptions& options) {
  const Random random = Random{options.seed, {}}
                            .fork(static_cast<std::uint64_t>(n))
                            .fork(static_cast<std::uint64_t>(index));
  const std::string& target = rows.front().target;
  const Tensor exact = exact_output(target, in);  // [1, H, N, D]
  const std::vector<double> exact_norms = distances(exact, zeros_like(exact), in.mask);
  std::vector<std::vector<double>> best;
  if (index < options.best_rank_trials && has_matrix(target)) {
    best = best_rank_norms(target, in, exact, options.features);
  }
  auto next_best = best.begin();
  for (Row& row : rows) {
    if (row.candidate != nullptr) {
      const Tensor out = run_method(*row.candidate, in, random.fork(row.features.value_or(0)));
      row.add(distances(out, exact, in.mask), exact_norms);
    } else if (next_best != best.end()) {
      row.add(*next_best++, exact_norms);
    }
  }
}

}  // namespace

std::vector<std::string> approximating_methods(bool with_x) {
  std::vector<std::string> names;
  for (const Spec& spec : attention::registry()) {
    if (!spec.approximates.empty() && (with_x || !spec.reads_x)) names.push_back(spec.name);
  }
  return names;
}

std::vector<ApproxCell> run_approx(const InputSource& source, const ApproxOptions& options) {
  const auto layer =
      static_cast<std::size_t>(check_layer(options.layer, source.layers, source.name));
  const std::vector<Candidate> all = candidates(options);
  for (const std::int64_t n : options.lengths) check_length(source, n);
  check(source, options, all, source.example(options.lengths.front(), 0)[layer].in);

  const auto lengths = static_cast<std::int64_t>(options.lengths.size());
  std::vector<ApproxCell> cells;
  Progress progress;
  std::int64_t done = 0;
  for (const std::int64_t n : options.lengths) {
    std::vector<std::vector<Row>> targets = rows_by_target(options, all);
    std::set<std::int64_t> examples;
    for (std::int64_t trial = 0; trial < options.trials; ++trial) {
      const LayerInputs inputs = source.example(n, trial)[layer];
      examples.insert(inputs.example);
      for (std::vector<Row>& rows : targets) run_trial(rows, inputs.in, n, trial, options);
      progress.at("trials", ++done, lengths * options.trials);
    }
    for (const std::vector<Row>& rows : targets) {
      for (const Row& row : rows) {
        cells.push_back({row.candidate != nullptr ? row.candidate->spec->name : kBestRank,
                         row.target, n, row.features, std::ssize(row.absolute),
                         std::min(std::ssize(row.absolute), std::ssize(examples)),
                         estimate(row.absolute), estimate(row.relative), estimate(row.exact_norm)});
      }
    }
  }
  return cells;
}

}  // namespace skytape::train
