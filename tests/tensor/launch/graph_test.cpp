#include "tensor/launch/graph.hpp"

#include <optional>

#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;
using data::synthetic::error_of;

namespace {

Tensor on_gpu(double value) { return Tensor::full({3}, value, DType::f32, Device::cuda); }

using Numbers = std::vector<double>;

}  // namespace

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("where memory runs out, what the pool keeps is lent, to graphs too") {
  constexpr std::int64_t kMega = 1 << 20;
  const auto take = [](std::int64_t bytes) {
    return Tensor::empty({bytes / 4}, DType::f32, Device::cuda);
  };
  (void)take(kMega);  // what the device itself needs, its first user allocates
  const cuda_simulator::MemoryLimit limit(8 * kMega);
  { const Tensor freed = take(6 * kMega); }
  {
    const GraphMemoryScope scope;
    CHECK_NOTHROW((void)take(5 * kMega));  // the pool holds 6 of 8 megabytes
  }
  { const Tensor freed = take(6 * kMega); }
  CHECK_NOTHROW((void)take(7 * kMega));
  std::string what;
  try {
    (void)take(9 * kMega);
  } catch (const Error& error) {
    what = error.what();
  }
  CHECK(what.find("out of memory: could not allocate 9437184 bytes on cuda") != what.npos);
  CHECK(take(kMega).to_vector().size() == kMega / 4);  // and the device works as before
}
#endif

TEST_CASE("a build or machine without a GPU says so when a graph is asked for") {
  if (cuda_available()) return;
  CHECK_THROWS_AS(Graph([] {}), Error);
  CHECK_FALSE(capturing());
}

TEST_CASE("capturing runs nothing, and each replay runs what was captured on what is there now") {
  if (!test::cuda_or_skip()) return;
  Tensor sum = on_gpu(1);
  const Tensor x = on_gpu(2);
  const auto work = [&] {
    CHECK(true);
    const Tensor twice = tensor::add(x, x);  // memory of the graph's own
    tensor::accumulate(sum, twice);
  };
  std::optional<Graph> graph;
  graph.emplace(work);
  CHECK(graph->nodes() == 2);
  CHECK(sum.to_vector() == Numbers(3, 1));
  graph->replay();
  CHECK(sum.to_vector() == Numbers(3, 5));
  Tensor(x).fill(10);
  graph->replay();
  graph->replay();
  CHECK(sum.to_vector() == Numbers(3, 45));
}

TEST_CASE("tensors of other work never lie in the memory of a graph") {
  if (!test::cuda_or_skip()) return;
  Tensor sum = on_gpu(0);
  const Graph graph([&] { tensor::accumulate(sum, tensor::affine(on_gpu(1), 3)); });
  std::vector<Tensor> others;
  for (int i = 0; i < 20; ++i) others.push_back(on_gpu(i));
  graph.replay();
  for (int i = 0; i < 20; ++i) {
    CHECK(others[static_cast<std::size_t>(i)].to_vector() == Numbers(3, i));
  }
  CHECK(sum.to_vector() == Numbers(3, 3));
}

TEST_CASE("graphs share their memory, and it is free when the last one is gone") {
  if (!test::cuda_or_skip()) return;
  const auto work = [] {
    (void)tensor::affine(Tensor::zeros({1 << 16}, DType::f32, Device::cuda), 2);
  };
  const std::int64_t before = memory_stats(Device::cuda).system_allocations;
  const Graph first(work);
  const std::int64_t once = memory_stats(Device::cuda).system_allocations;
  CHECK(once > before);
  const Graph second(work);
  CHECK(memory_stats(Device::cuda).system_allocations == once);
}

TEST_CASE("what a graph cannot hold is refused, and the device works as before") {
  if (!test::cuda_or_skip()) return;
  const Tensor x = on_gpu(2);
  CHECK(error_of([&] {
          Graph([&] { (void)x.to_vector(); });
        }).find("while a CUDA graph is captured") != std::string::npos);
  CHECK(error_of([&] {
          Graph([&] { synchronize(Device::cuda); });
        }).find("a CUDA graph is being captured") != std::string::npos);
  CHECK(error_of([&] {
          Graph([&] { (void)Tensor::from(Numbers{1}, {1}, DType::f32, Device::cuda); });
        }).find("from cpu to cuda") != std::string::npos);
  Tensor left;
  CHECK(error_of([&] {
          Graph([&] { left = tensor::affine(x, 3); });
        }).find("leaves 1 tensors behind") != std::string::npos);
  CHECK(error_of([&] { Graph([] { throw Error("the op's own words"); }); }) ==
        "the op's own words");
  CHECK_FALSE(capturing());
  CHECK(tensor::affine(x, 3).to_vector() == Numbers(3, 6));
  Tensor sum = on_gpu(0);
  const Graph good([&] { tensor::accumulate(sum, x); });
  good.replay();
  CHECK(sum.to_vector() == Numbers(3, 2));
}

TEST_CASE("a captured product gives the bits of a direct one") {
  if (!test::cuda_or_skip()) return;
  const Tensor a = Tensor::full({33, 65}, 0.37, DType::f32, Device::cuda);
  const Tensor b = Tensor::full({65, 17}, 0.11, DType::f32, Device::cuda);
  const Tensor direct = tensor::matmul(a, b);
  Tensor replayed = Tensor::zeros({33, 17}, DType::f32, Device::cuda);
  const Graph graph([&] { tensor::gemm(a, Op::none, b, Op::none, replayed); });
  graph.replay();
  CHECK(replayed.to_vector() == direct.to_vector());
}
