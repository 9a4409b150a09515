#include "train/lab/studies/exact_attention.hpp"

#include <array>
#include <cmath>
#include <numeric>

#include "attention/feature_maps/gaussian_kernel.hpp"
#include "attention/registry.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/layout.hpp"
#include "tensor/norm/softmax.hpp"

namespace skytape::train {
namespace {

/// One head of the only example, masked and scaled: f64[1, 1, N, D].
Tensor head_of(const Tensor& x, const Tensor& mask, std::int64_t head, double scale) {
  ENSURE(x.rank() == 4 && x.size(0) == 1 && head >= 0 && head < x.size(1),
         "attention matrix: expected one example [1, H, N, D] and a head of it, got ", x,
         " and head ", head);
  return tensor::mask_rows(x[0][head].reshape({1, 1, x.size(2), x.size(3)}), mask, scale);
}

double root_of_width(const Tensor& x) { return std::pow(static_cast<double>(x.size(3)), -0.25); }

}  // namespace

Tensor exact_output(const std::string& name, const attention::Inputs& in) {
  // With one chunk for all tokens Reformer is dense.
  const std::int64_t n = in.q.size(2);
  const bool shared_qk = name == "shared_qk";
  const attention::OptionValues options =
      shared_qk ? attention::OptionValues{{"chunk", std::to_string(n)}} : attention::OptionValues{};
  ParameterStore store;
  const auto method = attention::find(shared_qk ? "reformer" : name)
                          .make({0, in.q.size(1), in.q.size(3), n, "", &store}, options);
  const attention::Inputs given{in.q, shared_qk ? Tensor() : in.k, in.v, in.mask};
  return method->forward(given, {}, {}).out;
}

bool has_matrix(const std::string& name) { return name == "softmax" || name == "kernelized"; }

Tensor attention_matrix(const std::string& name, const attention::Inputs& in, std::int64_t head) {
  ENSURE(has_matrix(name), "attention matrix: expected softmax or kernelized, got ", name);
  const std::int64_t n = in.q.size(2);
  const double s = root_of_width(in.q);
  const Tensor q = head_of(in.q, in.mask, head, s), k = head_of(in.k, in.mask, head, s);
  if (name == "softmax") {
    const Tensor bias = tensor::unary(tensor::Unary::log, in.mask);  // [1, N]: 0 or -inf
    const Tensor scores = tensor::matmul(q, k, Op::none, Op::transpose).reshape({n, n});
    const Tensor rows = tensor::softmax(tensor::add(scores, bias));
    return tensor::mask_rows(rows.reshape({1, 1, n, n}), in.mask).reshape({n, n});
  }
  const Tensor kernel = attention::kernel_matrix(attention::Kernel::gaussian, q, k);
  return tensor::multiply(tensor::mask_rows(kernel, in.mask).reshape({n, n}), in.mask);
}

Tensor stacked_kernel(const attention::Inputs& in, std::int64_t head) {
  const double s = root_of_width(in.q);
  const std::array<Tensor, 2> halves = {head_of(in.q, in.mask, head, s),
                                        head_of(in.k, in.mask, head, s)};
  const Tensor x = tensor::concat(halves, 2);  // [1, 1, 2 N, D]
  return attention::kernel_matrix(attention::Kernel::gaussian, x, x)
      .reshape({x.size(2), x.size(2)});
}

double frobenius(const Tensor& m) {
  const std::vector<double> all = m.to_vector();
  return std::sqrt(std::inner_product(all.begin(), all.end(), all.begin(), 0.0));
}

}  // namespace skytape::train
