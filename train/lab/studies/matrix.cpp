#include "train/lab/studies/matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "attention/registry.hpp"
#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/layout.hpp"
#include "tensor/random/random.hpp"
#include "train/lab/studies/exact_attention.hpp"

namespace skytape::train {
namespace {

/// Returns the output for values [1, H, N, D].
using Output = std::function<Tensor(const Tensor& values)>;

/// The matrix of `output`, which is linear in values of that shape, at one head: D columns at a
/// time.
Tensor matrix_of(const Tensor& values, std::int64_t head, const Output& output) {
  const std::int64_t heads = values.size(1), n = values.size(2), d = values.size(3);
  std::vector<Tensor> columns;  // [N, D]
  for (std::int64_t first = 0; first < n; first += d) {
    std::vector<double> unit(static_cast<std::size_t>(values.numel()));
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t e = 0; e < std::min(d, n - first); ++e) {
        unit[static_cast<std::size_t>((h * n + first + e) * d + e)] = 1;
      }
    }
    const Tensor out = output(
        Tensor::from(unit, values.shape(), values.dtype(), values.device()));  // [1, H, N, D]
    columns.push_back(out[0][head].to(DType::f64));
  }
  return tensor::narrow(tensor::concat(columns, 1), 1, 0, n);
}

/// Returns a method's output as a function of the values. It draws its random arrays once, for the
/// text itself.
Output output_of(const attention::Method& method, attention::Inputs in,
                 const attention::Call& call) {
  const attention::Draws drawn = method.draw(in, call);
  attention::Draws draws;
  for (const auto& [name, value] : drawn.all()) draws.set(name, value);  // not what is cached
  return [&method, in, call, draws](const Tensor& values) mutable {
    in.v = values;
    return method.forward(in, draws, call).out;
  };
}

/// A text's inputs as a method takes them. Only the model's own gets what the layer before left.
attention::Inputs inputs_of(const attention::Inputs& in, const attention::Spec& spec, DType dtype,
                            bool own) {
  attention::Inputs given{in.q.to(dtype), {}, in.v.to(dtype), in.mask.to(dtype)};
  if (!spec.shared_qk) given.k = in.k.to(dtype);
  if (spec.reads_x) given.x = in.x.to(dtype);
  if (own && in.state.defined()) given.state = in.state.to(dtype);
  return given;
}

/// The least and the largest entry.
std::pair<double, double> ends(const Tensor& matrix) {
  const std::vector<double> all = matrix.to_vector();
  const auto [low, high] = std::minmax_element(all.begin(), all.end());
  return {*low, *high};
}

/// Returns whether the matrix times a head's values [N, D] is its output [N, D], but for rounding.
bool explains(const Tensor& matrix, const Tensor& values, const Tensor& out) {
  constexpr double kRounding = 1e-4;  // of f32, which a trained method computes in
  const auto largest = [](const Tensor& x) {
    const auto [low, high] = ends(x);
    return std::max(-low, high);
  };
  const Tensor product = tensor::matmul(matrix, values.to(DType::f64));
  return largest(tensor::subtract(product, out.to(DType::f64))) <= kRounding * largest(out);
}

/// Returns the attention that a method approximates; an exact one stands for softmax.
std::string target_of(const attention::Spec& spec) {
  return spec.approximates.empty() ? "softmax" : spec.approximates;
}

/// Adds a method's matrix to the study, or its name to those that have none.
void add_matrix_of(MatrixStudy& study, const MatrixText& text, const std::string& name,
                   const attention::Spec& spec, const Output& output, const Tensor& values,
                   std::int64_t head) {
  MethodMatrix m{name, target_of(spec), matrix_of(values, head, output), {}, 0};
  if (!explains(m.matrix, values[0][head], output(values)[0][head])) {
    study.left_out.push_back(name);
    return;
  }
  const auto known = std::find_if(study.matrices.begin(), study.matrices.end(),
                                  [&](const MethodMatrix& a) { return a.target == m.target; });
  if (known != study.matrices.end()) {
    m.exact = known->exact;
  } else {
    m.exact = matrix_of(text.in.v, head, [&](const Tensor& unit) {
      attention::Inputs given = text.in;
      given.v = unit;
      return exact_output(m.target, given);
    });
  }
  m.error = frobenius(tensor::subtract(m.matrix, m.exact)) / frobenius(m.exact);
  study.matrices.push_back(std::move(m));
}

}  // namespace

std::vector<std::vector<double>> rows_of(const Tensor& matrix) {
  std::vector<std::vector<double>> rows;
  for (std::int64_t i = 0; i < matrix.size(0); ++i) rows.push_back(matrix[i].to_vector());
  return rows;
}

MatrixStudy run_matrix(const MatrixText& text, const MatrixOptions& options) {
  const std::int64_t heads = text.in.q.size(1), n = text.in.q.size(2);
  if (options.head >= heads) {
    throw UsageError(
        fmt::format("--head: expected 0..{} ({}), got {}", heads - 1, text.model, options.head));
  }
  if (options.features > n) {
    throw UsageError(
        fmt::format("--features: expected at most the {} tokens, got {}", n, options.features));
  }
  for (const auto& [name, values] : options.method_options) {
    if (std::find(options.methods.begin(), options.methods.end(), name) == options.methods.end()) {
      throw UsageError(fmt::format("{}.{}: {} is not among the methods of --attention", name,
                                   values.begin()->first, name));
    }
  }
  const Random random = fork(Random{options.seed, {}}, Purpose::attention);
  MatrixStudy study;
  if (text.own != nullptr) {
    const attention::Spec& spec = attention::find(text.own_name);
    const attention::Inputs in = inputs_of(text.in, spec, DType::f32, true);
    add_matrix_of(study, text, text.own_name + " (trained)", spec,
                  output_of(*text.own, in, text.own_call), in.v, options.head);
  }
  attention::Call call;
  call.random = random;
  const std::int64_t features =
      options.features > 0 ? options.features : std::max<std::int64_t>(1, n / 4);
  for (const std::string& name : options.methods) {
    const attention::Spec& spec = attention::find(name);
    attention::OptionValues values;
    if (spec.has_option("features")) values["features"] = std::to_string(features);
    const auto given = options.method_options.find(name);
    if (given != options.method_options.end()) {
      for (const auto& [key, value] : given->second) values[key] = value;
    }
    ParameterStore store;
    attention::LayerContext context{0, heads, text.in.q.size(3), n, "", &store};
    context.width = text.in.x.size(2);
    const auto method = spec.make(context, values);
    store.pack(DType::f64, Device::cpu, fork(random, Purpose::initialise).key);
    const attention::Inputs in = inputs_of(text.in, spec, DType::f64, false);
    add_matrix_of(study, text, name, spec, output_of(*method, in, call), in.v, options.head);
  }
  if (study.matrices.empty()) {
    throw UsageError(
        fmt::format("{}: what comes out is no matrix times the values", listed(study.left_out)));
  }
  return study;
}

Table table(const MatrixStudy& study, const MatrixText& text) {
  Table result{"matrices",
               fmt::format("Effective attention matrices of {} tokens, layer {}, {}",
                           text.tokens.size(), text.layer, text.model),
               {{"method"},
                {"stands for"},
                {"relative error", "{:.4f}"},
                {"least weight", "{:.4f}"},
                {"largest weight", "{:.4f}"}},
               {},
               {"Error: Frobenius norm of the difference over that of the exact matrix. Weights "
                "that only training would set have their initial values, but for a trained row."}};
  if (!study.left_out.empty()) {
    result.notes.push_back(fmt::format(
        "Without {}: what comes out is no matrix times these values (a memory made of values, or "
        "values of its own).",
        listed(study.left_out)));
  }
  for (const MethodMatrix& m : study.matrices) {
    const auto [low, high] = ends(m.matrix);
    result.add({m.name, m.target, m.error, low, high});
  }
  return result;
}

data::Json to_json(const MatrixStudy& study) {
  data::Json results = data::Json::array();
  for (const MethodMatrix& m : study.matrices) {
    results.push_back({{"method", m.name},
                       {"target", m.target},
                       {"error", m.error},
                       {"matrix", rows_of(m.matrix)}});
  }
  return results;
}

data::Json exact_matrices(const MatrixStudy& study) {
  data::Json exact = data::Json::object();
  for (const MethodMatrix& m : study.matrices) exact[m.target] = rows_of(m.exact);
  return exact;
}

}  // namespace skytape::train
