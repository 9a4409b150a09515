#include "train/lab/studies/spectrum.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "attention/feature_maps/gaussian_kernel.hpp"
#include "attention/sampling/landmarks.hpp"
#include "tensor/gemm/linear_algebra.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/random/random.hpp"
#include "train/lab/studies/exact_attention.hpp"
#include "train/process/progress.hpp"

namespace skytape::train {
namespace {

constexpr double kGamma = 0.1;  // Skyformer's shift of the landmarks' matrix

/// Adds a matrix to the means; `share` is 1 / examples. Condition numbers are kept as logarithms.
void add_matrix(MatrixSpectrum& mean, const Tensor& matrix, double share) {
  const std::vector<double> values = tensor::singular_values(matrix);
  std::vector<double> cumulative;
  double sum = 0;
  for (const double value : values) cumulative.push_back(sum += value);
  for (double& value : cumulative) value /= sum > 0 ? sum : 1;
  add(mean.cumulative, cumulative, share);
  mean.condition += share * std::log(tensor::condition_number(values));
}

/// Statistical dimensions, coherences and leverage scores of C = V diag(mu) V^T.
void add_theory(HeadSpectrum& mean, const Tensor& c, double share) {
  const tensor::SymmetricEigen eigen = tensor::symmetric_eigen(c);
  const auto size = static_cast<std::int64_t>(eigen.values.size());  // 2 N
  const double* const vectors = eigen.vectors.data<double>();        // [2 N, 2 N]
  for (std::size_t r = 0; r < kRidges.size(); ++r) {
    const double lambda = kRidges[r] * eigen.values.front();
    std::vector<double> filter;  // mu / (mu + lambda); rounding makes some mu negative
    for (const double mu : eigen.values) {
      filter.push_back(std::max(mu, 0.0) / (std::max(mu, 0.0) + lambda));
    }
    std::vector<double> leverage;
    double dimension = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      double score = 0;
      for (std::int64_t j = 0; j < size; ++j) {
        const double v = vectors[i * size + j];
        score += filter[static_cast<std::size_t>(j)] * v * v;
      }
      leverage.push_back(score);
      dimension += score;
    }
    std::sort(leverage.begin(), leverage.end(), std::greater<>());
    mean.dimension[r] += share * dimension;
    mean.coherence[r] += share * leverage.front() * static_cast<double>(size) / dimension;
    if (r == kLeverageRidge) add(mean.leverage, leverage, share);
  }
}

/// Condition numbers of the landmarks' matrix on its way to the inverse.
void add_landmarks(HeadSpectrum& mean, const Tensor& kernel, double share) {
  const std::int64_t size = kernel.size(0);  // L
  const auto log_condition = [](const Tensor& m) {
    return std::log(tensor::condition_number(tensor::singular_values(m)));
  };
  mean.landmarks += share * log_condition(kernel);
  Tensor m = kernel.clone();
  double* const at = m.data<double>();  // [L, L]
  for (std::int64_t i = 0; i < size; ++i) at[i * size + i] += kGamma;
  mean.shifted += share * log_condition(m);
  std::vector<double> root(static_cast<std::size_t>(size));  // r = (M 1)^(-1/2)
  for (std::int64_t i = 0; i < size; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < size; ++j) sum += at[i * size + j];
    root[static_cast<std::size_t>(i)] = 1 / std::sqrt(sum);
  }
  for (std::int64_t i = 0; i < size * size; ++i) {
    at[i] *= root[static_cast<std::size_t>(i / size)] * root[static_cast<std::size_t>(i % size)];
  }
  mean.scaled += share * log_condition(m);
}

/// Landmarks as Skyformer draws them, and their kernel matrices: f64[1, H, L, L].
Tensor landmark_kernels(const attention::Inputs& in, std::int64_t count, const Random& random) {
  const double scale = std::pow(static_cast<double>(in.q.size(3)), -0.25);
  const Tensor q = tensor::mask_rows(in.q, in.mask, scale);
  const Tensor k = tensor::mask_rows(in.k, in.mask, scale);
  attention::Call call;
  call.random = random;
  const attention::LandmarkDraw draw{"independent", 1, count, in.q.size(1)};
  const Tensor index = attention::landmark_index(attention::draw_landmarks(draw, in.mask, call), q);
  const Tensor w = attention::gather_landmarks(q, k, index);  // [1, H, L, D]
  return attention::kernel_matrix(attention::Kernel::gaussian, w, w);
}

void add_example(std::vector<HeadSpectrum>& heads, const LayerInputs& layer, std::int64_t number,
                 const SpectrumOptions& options, const Random& random) {
  const double share = 1 / static_cast<double>(options.examples);
  const Tensor kernels = landmark_kernels(layer.in, options.landmarks, random);
  const Tensor out = tensor::mask_rows(layer.out, layer.in.mask);
  for (std::int64_t h = 0; h < layer.in.q.size(1); ++h) {
    const auto found = std::find_if(heads.begin(), heads.end(), [&](const HeadSpectrum& s) {
      return s.layer == number && s.head == h;
    });
    HeadSpectrum& mean = found != heads.end() ? *found : heads.emplace_back();
    mean.layer = number;
    mean.head = h;
    add(mean.output, tensor::singular_values(out[0][h]), share);
    add_matrix(mean.softmax, attention_matrix("softmax", layer.in, h), share);
    add_matrix(mean.kernelized, attention_matrix("kernelized", layer.in, h), share);
    add_theory(mean, stacked_kernel(layer.in, h), share);
    add_landmarks(mean, kernels[0][h], share);
  }
}

}  // namespace

void add(std::vector<double>& sum, const std::vector<double>& values, double share) {
  sum.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) sum[i] += share * values[i];
}

std::vector<HeadSpectrum> run_spectrum(const InputSource& source, const SpectrumOptions& options) {
  check_length(source, options.n);
  if (options.landmarks < 1 || options.landmarks > 2 * options.n) {
    throw UsageError(
        fmt::format("--features: expected 1..{} landmarks among {} queries and keys, "
                    "got {}",
                    2 * options.n, 2 * options.n, options.landmarks));
  }
  std::vector<HeadSpectrum> heads;
  Progress progress;
  std::int64_t done = 0;
  for (std::int64_t e = 0; e < options.examples; ++e) {
    const std::vector<LayerInputs> layers = source.example(options.n, e);
    for (std::size_t l = 0; l < layers.size(); ++l) {
      const Random random = fork(Random{options.seed, {}}, Purpose::attention)
                                .fork(static_cast<std::uint64_t>(e))
                                .fork(l);
      add_example(heads, layers[l], static_cast<std::int64_t>(l), options, random);
      progress.at("layers", ++done, options.examples * source.layers);
    }
  }
  for (HeadSpectrum& s : heads) {
    for (double* log :
         {&s.softmax.condition, &s.kernelized.condition, &s.landmarks, &s.shifted, &s.scaled}) {
      *log = std::exp(*log);
    }
  }
  return heads;
}

std::int64_t rank_at(const MatrixSpectrum& spectrum, double share) {
  const auto& c = spectrum.cumulative;
  return std::min<std::int64_t>(std::lower_bound(c.begin(), c.end(), share) - c.begin() + 1,
                                static_cast<std::int64_t>(c.size()));
}

double share_at_quarter(const MatrixSpectrum& spectrum) {
  const std::size_t quarter = std::max<std::size_t>(1, spectrum.cumulative.size() / 4);
  return spectrum.cumulative[quarter - 1];
}

}  // namespace skytape::train
