// Operands of products, which CUDA keeps in bf16 where that pays.
#include "tensor/gemm/operand.hpp"

#include "autograd/ops.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"
#include "tests/support/both_ways.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;
using namespace skytape::test;
using tensor::as_operand;

namespace {

Tensor draw(const Shape& shape, std::uint64_t seed, Device device = Device::cuda) {
  return random_tensor(shape, DType::f32, device, seed);
}

Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = Device::cuda) {
  return Tensor::zeros(shape, dtype, device);
}

}  // namespace

TEST_CASE("an operand is kept in bf16 by CUDA at that precision, where both sizes pay") {
  const Tensor weight = zeros({256, 256}, DType::f32, Device::cpu);
  CHECK(tensor::operand_type(zeros({1024, 256}, DType::f32, Device::cpu), weight) == DType::f32);
  if (!cuda_or_skip()) return;
  const auto type = [](std::int64_t rows, std::int64_t in, std::int64_t out) {
    return tensor::operand_type(zeros({rows, in}), zeros({out, in}));
  };
  CHECK(type(1024, 256, 256) == DType::f32);  // not at fp32
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  CHECK(type(1024, 256, 256) == DType::bf16);
  CHECK(type(1023, 256, 256) == DType::f32);
  CHECK(type(1024, 248, 256) == DType::f32);
  CHECK(type(1024, 256, 248) == DType::f32);
  CHECK(type(1024, 260, 256) == DType::f32);
  CHECK(tensor::operand_type(zeros({1024, 256}, DType::f64), zeros({256, 256}, DType::f64)) ==
        DType::f64);
}

TEST_CASE("an operand in bf16 has the rounded numbers, and the sums of the others") {
  CHECK(as_operand(draw({8, 4}, 1, Device::cpu), DType::f32).dtype() == DType::f32);
  if (!cuda_or_skip()) return;
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  for (const std::int64_t n : {36, 35, 260}) {  // columns in fours, one by one, beyond a block's
    const Tensor x = draw({1032, n}, 1);
    const std::vector<double> rounded = tensor::as_multiplied(x).to_vector();
    CHECK(rounded != x.to_vector());
    CHECK(as_operand(x, DType::bf16).to_vector() == rounded);
    const auto [operand, sums] = tensor::operand_and_sums(x, DType::bf16);
    CHECK(operand.to_vector() == rounded);
    CHECK(sums.to_vector() == tensor::sum(x, 0).to_vector());
    CHECK(tensor::operand_sums(operand).to_vector() ==
          tensor::operand_sums(tensor::as_multiplied(x)).to_vector());
  }
}

TEST_CASE("an operand behind dropout, and its sums, are those of dropout's result") {
  if (!cuda_or_skip()) return;
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  // Whole chunks of 128 element numbers in a row; rows of other widths; sequences that were trimmed.
  for (const std::int64_t n : {256, 192, 128, 36}) {
    for (const std::int64_t nominal : {0, 12, 13}) {
      const Tensor x = draw({3, 12, n}, 1);
      const Dropout options{0.3, {7, {}}, 2, nominal};
      CAPTURE(n);
      CAPTURE(nominal);
      const auto found = tensor::operand_and_sums(x, DType::bf16, options);
      const Tensor dropped = tensor::dropout(x, options).reshape({36, n});
      const auto want = tensor::operand_and_sums(dropped, DType::bf16);
      CHECK(found.operand.shape() == Shape({36, n}));
      CHECK(found.operand.to_vector() == want.operand.to_vector());
      CHECK(found.sums.to_vector() == want.sums.to_vector());
    }
  }
}

TEST_CASE("products of bf16 operands are those of the rounded numbers, f32 or rounded to bf16") {
  if (!cuda_or_skip()) return;
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  const auto exact = [](const Tensor& rounded) { return rounded.to(Device::cpu).to(DType::f64); };
  for (const Op op_a : {Op::none, Op::transpose}) {
    for (const Op op_b : {Op::none, Op::transpose}) {
      const Tensor a = as_operand(draw({3, 40, 40}, 1), DType::bf16);
      const Tensor b = as_operand(draw({40, 40}, 2), DType::bf16);
      const Tensor c = tensor::matmul(a, b, op_a, op_b);
      CHECK(c.dtype() == DType::f32);
      const Tensor want = tensor::matmul(exact(a), exact(b), op_a, op_b);
      CHECK(relative_error(c, want) <= 20 * rounding(DType::f32));
      const Tensor kept = tensor::matmul(a, b, op_a, op_b, DType::bf16);
      CHECK(kept.to_vector() == c.to(DType::bf16).to_vector());
    }
  }
  const Tensor long_a = as_operand(draw({1024, 8}, 7), DType::bf16);  // a depth that f32 is cut in
  const Tensor long_b = as_operand(draw({1024, 16}, 8), DType::bf16);
  CHECK(relative_error(tensor::matmul(long_a, long_b, Op::transpose, Op::none, DType::bf16),
                       tensor::matmul(exact(long_a), exact(long_b), Op::transpose, Op::none)) <=
        1.0 / 256);
  const Tensor x = as_operand(draw({2, 20, 40}, 3), DType::bf16);
  const Tensor w = as_operand(draw({24, 40}, 4), DType::bf16), bias = draw({24}, 5);
  CHECK(
      relative_error(tensor::linear(x, w, bias), tensor::linear(exact(x), exact(w), exact(bias))) <=
      20 * rounding(DType::f32));
  const Tensor y = as_operand(draw({2, 20, 24}, 6), DType::bf16);
  CHECK(relative_error(tensor::matmul_sum(y, x, Op::transpose, Op::none),
                       tensor::matmul_sum(exact(y), exact(x), Op::transpose, Op::none)) <=
        20 * rounding(DType::f32));
}

TEST_CASE("a wide linear layer equals one of rounded operands, forward and backward") {
  const auto entries = [](const Shape& shape, std::uint64_t seed, double most) {
    return random_tensor(shape, DType::f64, Device::cpu, seed, -most, most);
  };
  for (const std::size_t operands : {3u, 2u}) {  // with a bias, and without
    std::vector<Tensor> inputs = {entries({2, 516, 264}, 1, 2), entries({256, 264}, 2, 0.3),
                                  entries({256}, 3, 1)};
    inputs.resize(operands);
    check_both_ways(inputs, 50, [](const auto& v, Way way) {
      const Var bias = v.size() > 2 ? v[2] : Var();
      return way == Way::fused ? linear(v[0], v[1], bias) : composed_linear(way, v[0], v[1], bias);
    });
  }
}

TEST_CASE("other operations refuse bf16, and what is no operand is named") {
  const Tensor x = zeros({8, 4}, DType::f32, Device::cpu);
  CHECK_THROWS_WITH_AS((void)as_operand(x, DType::bf16),
                       "as_operand: expected f32 numbers on cuda, a multiple of 4, got "
                       "f32[8, 4]@cpu",
                       Error);
  const Tensor y = x.to(DType::bf16);
  CHECK_THROWS_WITH_AS((void)tensor::add(y, y),
                       "add: expected an f32 or f64 tensor, got bf16[8, 4]@cpu", Error);
  CHECK_THROWS_WITH_AS((void)tensor::transpose(y),
                       "moving entries: expected f32, f64 or i32, got bf16[8, 4]@cpu", Error);
  CHECK_THROWS_WITH_AS((void)tensor::matmul(x, x, Op::transpose, Op::none, DType::bf16),
                       "matmul: no product of f32[8, 4]@cpu and f32[8, 4]@cpu is bf16", Error);
  CHECK_THROWS_WITH_AS((void)tensor::operand_sums(y),
                       "operand_sums: expected an operand [rows, n] on cuda, got bf16[8, 4]@cpu",
                       Error);
  CHECK_THROWS_WITH_AS((void)tensor::matmul(y, y, Op::transpose),
                       "gemm: a CPU multiplies f32 and f64, got bf16[8, 4]@cpu", Error);
}

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("on CUDA a wide linear layer rounds each operand once for the products that read it") {
  using cuda_simulator::LaunchesOnly;
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  const LaunchesOnly only;
  Tape tape;
  const Var x = tape.input(Tensor::empty({1024, 256}, DType::f32, Device::cuda));
  const Var w = tape.input(Tensor::empty({256, 256}, DType::f32, Device::cuda));
  const Var y = linear(x, w, Var());
  CHECK(LaunchesOnly::all().size() == 3);  // x, w, and their product
  tape.backward(y, Tensor::empty({1024, 256}, DType::f32, Device::cuda));
  int products = 0;
  for (const auto& launch : LaunchesOnly::all()) products += launch.name == "product" ? 1 : 0;
  CHECK(products == 3);
  CHECK(LaunchesOnly::all().size() == 7);  // dy, two products, and the sum of dw's parts
}
#endif
