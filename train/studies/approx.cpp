#include "train/studies/approx.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "attention/registry.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/linear_algebra.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/layout.hpp"
#include "tensor/random/random.hpp"
#include "train/studies/exact_attention.hpp"

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

/// What a method is made with for inputs of these shapes.
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
    check_length(source, n);
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

/// Output of a method with initial values and draws of its own.
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

/// What the trials of one cell found.
struct Trials {
  std::vector<double> absolute, relative, exact_norm;

  /// Adds a trial: norms of the differences and of the exact outputs, by head.
  void add(const std::vector<double>& norms, const std::vector<double>& exact_norms) {
    std::vector<double> shares;
    for (std::size_t h = 0; h < norms.size(); ++h) shares.push_back(norms[h] / exact_norms[h]);
    absolute.push_back(estimate(norms).mean);
    relative.push_back(estimate(shares).mean);
    exact_norm.push_back(estimate(exact_norms).mean);
  }
};

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

/// The study at one length.
class Study {
 public:
  Study(std::int64_t n, const ApproxOptions& options, const std::vector<Candidate>& all)
      : n_(n), options_(options), all_(all), trials_(all.size()) {
    for (const Candidate& c : all) {
      const std::string& target = c.spec->approximates;
      if (std::find(targets_.begin(), targets_.end(), target) == targets_.end()) {
        targets_.push_back(target);
      }
    }
  }

  void trial(const attention::Inputs& in, std::int64_t index) {
    const Random random = Random{options_.seed, {}}
                              .fork(static_cast<std::uint64_t>(n_))
                              .fork(static_cast<std::uint64_t>(index));
    for (const std::string& target : targets_) {
      const Tensor exact = exact_output(target, in);  // [1, H, N, D]
      const std::vector<double> exact_norms = distances(exact, zeros_like(exact), in.mask);
      for (std::size_t i = 0; i < all_.size(); ++i) {
        if (all_[i].spec->approximates != target) continue;
        const Tensor out = run_method(all_[i], in, random.fork(all_[i].features.value_or(0)));
        trials_[i].add(distances(out, exact, in.mask), exact_norms);
      }
      if (index < options_.best_rank_trials && has_matrix(target)) {
        std::vector<Trials>& best = best_rank_[target];
        best.resize(options_.features.size());
        const auto norms = best_rank_norms(target, in, exact, options_.features);
        for (std::size_t i = 0; i < norms.size(); ++i) best[i].add(norms[i], exact_norms);
      }
    }
  }

  void append_cells(std::vector<ApproxCell>& cells) const {
    for (const std::string& target : targets_) {
      for (std::size_t i = 0; i < all_.size(); ++i) {
        const Candidate& c = all_[i];
        if (c.spec->approximates != target) continue;
        cells.push_back(cell(c.spec->name, target, c.features, trials_[i]));
      }
      const auto best = best_rank_.find(target);
      if (best == best_rank_.end()) continue;
      for (std::size_t i = 0; i < best->second.size(); ++i) {
        cells.push_back(cell(kBestRank, target, options_.features[i], best->second[i]));
      }
    }
  }

 private:
  [[nodiscard]] ApproxCell cell(const std::string& method, const std::string& target,
                                std::optional<std::int64_t> features, const Trials& t) const {
    return {method,
            target,
            n_,
            features,
            static_cast<std::int64_t>(t.absolute.size()),
            estimate(t.absolute),
            estimate(t.relative),
            estimate(t.exact_norm)};
  }

  std::int64_t n_;
  const ApproxOptions& options_;
  const std::vector<Candidate>& all_;
  std::vector<std::string> targets_;
  std::vector<Trials> trials_;                            // of each candidate
  std::map<std::string, std::vector<Trials>> best_rank_;  // by target: of each d
};

}  // namespace

std::vector<std::string> approximating_methods(bool with_x) {
  std::vector<std::string> names;
  for (const Spec& spec : attention::registry()) {
    if (!spec.approximates.empty() && (with_x || !spec.reads_x)) names.push_back(spec.name);
  }
  return names;
}

std::vector<ApproxCell> run_approx(const InputSource& source, const ApproxOptions& options) {
  const auto layer = static_cast<std::size_t>(check_layer(source, options.layer));
  const std::vector<Candidate> all = candidates(options);
  for (const std::int64_t n : options.lengths) check_length(source, n);
  check(source, options, all, source.example(options.lengths.front(), 0)[layer].in);

  const auto lengths = static_cast<std::int64_t>(options.lengths.size());
  std::vector<ApproxCell> cells;
  std::int64_t done = 0;
  for (const std::int64_t n : options.lengths) {
    Study study(n, options, all);
    for (std::int64_t trial = 0; trial < options.trials; ++trial) {
      study.trial(source.example(n, trial)[layer].in, trial);
      if (options.progress) options.progress(++done, lengths * options.trials);
    }
    study.append_cells(cells);
  }
  return cells;
}

}  // namespace skytape::train
