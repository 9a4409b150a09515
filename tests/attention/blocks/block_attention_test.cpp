// Block attention against dense attention with the same pairs, with and without a table of slots.
#include <omp.h>

#include <cmath>
#include <functional>
#include <limits>

#include "attention/blocks/block_attention.hpp"
#include "autograd/ops.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

using attention::BlockBackward;
using attention::BlockForward;
using attention::BlockLists;
using attention::BlockPattern;

constexpr double kScale = 0.4;

struct Case {
  Problem problem;
  Tensor k;  // [B, H, N, D]
  BlockPattern pattern;
};

/// Blocks of 4 for 22 tokens: the last block is cut; lists with repetition, -1 and a long row.
Case cut_blocks(DType dtype = DType::f64, Device device = Device::cpu) {
  Case c;
  const Sizes sizes{.batch = 3, .heads = 2, .n = 22, .width = 5};
  c.problem =
      convert(make_problem(attention::find("softmax"), sizes, Padding::mixed), dtype, device);
  c.pattern = BlockLists().pattern(0, device, [] {
    return BlockLists::Lists{{0, 1, 2, 3, 4, 5}, {2, 2, -1, 5}, {0}, {3, 1}, {-1, 4, 1}, {5, 0, 5}};
  });
  c.pattern.block = 4;
  return c;
}

/// Returns how often query i of a head counts key j: [N, N].
std::vector<double> counts(const BlockPattern& p, std::int64_t n) {
  std::vector<double> times(static_cast<std::size_t>(n * n));
  const std::vector<double> entries = p.entries.to_vector(), row = p.row.to_vector();
  for (std::size_t e = 0; e < row.size(); ++e) {
    if (entries[e] < 0) continue;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        if (i / p.block == static_cast<std::int64_t>(row[e]) &&
            j / p.block == static_cast<std::int64_t>(entries[e])) {
          times[static_cast<std::size_t>(i * n + j)] += 1;
        }
      }
    }
  }
  return times;
}

/// out, lse and gradients of block attention; the cotangents are dout and its first column.
struct Everything {
  BlockForward forward;
  BlockBackward backward;
};
Everything compute(const Case& c, const Tensor& dlse) {
  const Inputs& in = c.problem.in;
  Everything e;
  e.forward = attention::block_forward(in.q, in.k, in.v, in.mask, c.pattern, kScale);
  e.backward = attention::block_backward(in.q, in.k, in.v, in.mask, c.pattern, kScale, e.forward,
                                         c.problem.dout, dlse);
  return e;
}

}  // namespace

TEST_CASE("block attention is dense attention over the listed pairs, forward and backward") {
  const Case c = cut_blocks();
  const Inputs& in = c.problem.in;
  const std::int64_t n = in.q.size(2);
  const Tensor dlse = random_tensor(in.q.shape().first(3));
  const Everything ours = compute(c, dlse);

  Tape tape;
  const Var q = tape.input(in.q), k = tape.input(in.k), v = tape.input(in.v);
  const Tensor times = Tensor::from(counts(c.pattern, n), {1, 1, n, n}, DType::f64, Device::cpu);
  const Tensor seen = tensor::multiply(times, in.mask.reshape({in.mask.size(0), 1, 1, n}));
  const Var scores = affine(matmul(q, k, Op::none, Op::transpose), kScale) +
                     tape.constant(tensor::unary(tensor::Unary::log, seen));
  const Var out = matmul(softmax(scores), v);
  const Var lse = logsumexp(scores);
  CHECK(relative_error(ours.forward.out, out.value()) < 1e-12);
  CHECK(relative_error(ours.forward.lse, lse.value()) < 1e-12);
  REQUIRE(tensor::all_finite(lse.value()));  // every row has a key
  const Var loss =
      sum_all(out * tape.constant(c.problem.dout)) + sum_all(lse * tape.constant(dlse));
  tape.backward(loss);
  CHECK(relative_error(ours.backward.dq, tape.grad(q)) < 1e-12);
  CHECK(relative_error(ours.backward.dk, tape.grad(k)) < 1e-12);
  CHECK(relative_error(ours.backward.dv, tape.grad(v)) < 1e-12);
}

TEST_CASE("a query block that lists nothing real is zero and has no gradient") {
  Case c = cut_blocks();
  c.pattern = BlockLists().pattern(0, Device::cpu,
                                   [] { return BlockLists::Lists{{-1}, {}, {0}, {1}, {1}, {1}}; });
  c.pattern.block = 4;
  const Everything e = compute(c, {});
  for (std::int64_t b = 0; b < 3; ++b) {
    CHECK(norm(e.forward.out[b][0].slice(0, 8)) == 0);
    CHECK(norm(e.backward.dq[b][0].slice(0, 8)) == 0);
    CHECK(e.forward.lse[b][0].slice(0, 8).to_vector() ==
          std::vector<double>(8, -std::numeric_limits<double>::infinity()));
  }
  CHECK(tensor::all_finite(e.backward.dk));
  CHECK(tensor::all_finite(e.backward.dv));
}

TEST_CASE("a slot without a token takes nothing from what stood there before") {
  // On one thread the first block comes after one of the example before, whose keys are no numbers.
  // The cut block comes after one whose scores are far above 0 in one head, far below in the other.
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  Case c = cut_blocks();
  c.pattern = BlockLists().pattern(0, Device::cpu, [] {
    return BlockLists::Lists{{5}, {1}, {2}, {3}, {4}, {0, 1, 2, 3}};
  });
  c.pattern.block = 4;
  Inputs& in = c.problem.in;
  in.mask.fill(1);
  in.k = tensor::multiply(in.k, in.k);
  in.q = tensor::affine(tensor::multiply(in.q, in.q), 1e4);
  Tensor below = in.q[1][1];
  below.copy_from(tensor::affine(below, -1));
  in.k[0].fill(NAN);
  in.v[0].fill(NAN);
  const Everything batch = compute(c, {});
  c.problem = example(c.problem, 1);
  const Everything alone = compute(c, {});
  omp_set_num_threads(threads);
  CHECK(distance(batch.forward.out[1], alone.forward.out[0]) == 0);
  CHECK(distance(batch.backward.dq[1], alone.backward.dq[0]) == 0);
  CHECK(distance(batch.backward.dk[1], alone.backward.dk[0]) == 0);
  CHECK(distance(batch.backward.dv[1], alone.backward.dv[0]) == 0);
}

TEST_CASE("a pattern's order has query blocks with long lists first") {
  const BlockPattern pattern = BlockLists().pattern(0, Device::cpu, [] {
    return BlockLists::Lists{{1}, {0, -1, 2}, {}, {0}, {0, 1, 2}};
  });
  CHECK(pattern.order.to_vector() == std::vector<double>{1, 4, 0, 3, 2});
  CHECK(pattern.row.to_vector() == std::vector<double>{0, 1, 1, 1, 3, 4, 4, 4});
  CHECK(pattern.begin.to_vector() == std::vector<double>{0, 1, 4, 4, 5, 8});
}

TEST_CASE("lists that do not fit the inputs are an error that says what was expected") {
  Case c = cut_blocks();
  c.pattern.block = 3;
  CHECK(error_text([&] { (void)compute(c, {}); }).find("6 blocks of 3 do not hold") !=
        std::string::npos);
  c = cut_blocks();
  c.pattern.token = c.pattern.row;
  CHECK(error_text([&] { (void)compute(c, {}); }).find("token and slot") != std::string::npos);
}

TEST_CASE("block attention on CUDA agrees with the CPU") {
  if (!cuda_or_skip()) return;
  const Everything cpu = compute(cut_blocks(), {});
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Everything gpu = compute(cut_blocks(dtype, Device::cuda), {});
    const double limit = dtype == DType::f32 ? 1e-4 : 1e-11;
    CHECK(relative_error(gpu.forward.out.to(Device::cpu).to(DType::f64), cpu.forward.out) < limit);
    CHECK(relative_error(gpu.backward.dq.to(Device::cpu).to(DType::f64), cpu.backward.dq) < limit);
    CHECK(relative_error(gpu.backward.dk.to(Device::cpu).to(DType::f64), cpu.backward.dk) < limit);
    CHECK(relative_error(gpu.backward.dv.to(Device::cpu).to(DType::f64), cpu.backward.dv) < limit);
  }
}

}  // namespace skytape::test
