// Projections by head as one node, against the same composed of one linear each.
#include "autograd/ops_heads.hpp"

#include <vector>

#include "autograd/gradcheck.hpp"
#include "autograd/ops.hpp"
#include "tests/support/both_ways.hpp"

using namespace skytape;
using namespace skytape::test;

namespace {

constexpr std::int64_t B = 3, N = 45, E = 20, P = 3, H = 2, D = 6;

/// x and P weights and biases in turn, f64 on the CPU.
std::vector<Tensor> inputs(std::int64_t n) {
  std::vector<Tensor> all = {random_tensor({B, n, E})};
  for (std::int64_t p = 0; p < P; ++p) {
    const auto seed = static_cast<std::uint64_t>(5 + 2 * p);
    all.push_back(random_tensor({H * D, E}, DType::f64, Device::cpu, seed));
    all.push_back(random_tensor({H * D}, DType::f64, Device::cpu, seed + 1));
  }
  return all;
}

/// Tokens of the examples: the rest is padding, whose rows are zero and get no gradient.
Tensor mask(std::int64_t n, const Tensor& like) {
  std::vector<double> real;
  for (std::int64_t i = 0; i < B * n; ++i) real.push_back(i % n < n - i / n * 7 ? 1 : 0);
  return Tensor::from(real, {B, n}, like.dtype(), like.device());
}

std::vector<Projection> projections(std::span<const Var> v) {
  std::vector<Projection> found;
  for (std::size_t i = 1; i + 1 < v.size(); i += 2) found.push_back({v[i], v[i + 1]});
  return found;
}

/// The same, and what multiplies the biases.
std::vector<Tensor> inputs_and_sums(std::int64_t n) {
  std::vector<Tensor> all = inputs(n);
  all.push_back(random_tensor({B, n, 1}, DType::f64, Device::cpu, 4));
  return all;
}

/// All projections side by side, [B, H, N, P D], of the real tokens; sums are the last of an even
/// number.
Var all_heads(std::span<const Var> v, Way way) {
  const Tensor real = mask(v[0].size(1), v[0].value());
  const Var x = mask_rows(v[0], real);
  const Var sums = v.size() % 2 == 0 ? v.back() : Var();
  std::vector<Var> heads;
  if (way == Way::fused) {
    heads = project_heads(x, projections(v), H, sums);
  } else {
    for (const auto& [weight, bias] : projections(v)) {
      const Var y = sums.defined() ? composed_linear(way, x, weight, Var()) + sums * bias
                                   : composed_linear(way, x, weight, bias);
      heads.push_back(swap_middle(reshape(y, {B, x.size(1), H, D})));
    }
  }
  return mask_rows(concat(heads, -1), real);
}

}  // namespace

TEST_CASE("gradients of projections by head equal central differences, all of them read") {
  for (const auto& all : {inputs(8), inputs_and_sums(8)}) {
    const auto report =
        gradcheck([](Tape&, std::span<const Var> v) { return all_heads(v, Way::fused); }, all);
    CHECK_MESSAGE(report.passed, report.to_string());
  }
}

TEST_CASE("fused projections by head equal those composed of linear, at every precision") {
  for (const std::int64_t n : {std::int64_t{15}, N}) {
    check_both_ways(inputs(n), 20, all_heads);
    check_both_ways(inputs_and_sums(n), 20, all_heads);
  }
}

TEST_CASE("a projection that nothing reads gets a gradient of zero, and none makes no gradient") {
  for_each_device([](Device device) {
    for (const bool read : {true, false}) {
      Tape tape;
      std::vector<Var> v;
      for (const Tensor& t : inputs(4)) v.push_back(tape.input(t.to(device)));
      const std::vector<Var> heads = project_heads(v[0], projections(v), H);
      tape.backward(sum_all(square(read ? heads[1] : v[0])));
      CHECK(tape.grad(v[3]).defined() == read);
      if (!read) continue;
      CHECK(tape.grad(v[5]).to_vector() == std::vector<double>(H * D * E, 0));
      CHECK(tape.grad(v[2]).to_vector() == std::vector<double>(H * D, 0));
    }
  });
}
