#include "tensor/launch/side_by_side.hpp"

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tensor/core/storage_plan.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/launch/graph.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::test;
using data::synthetic::error_of;

namespace {

constexpr std::int64_t kNumbers = 1000;

Tensor filled(Device device, double value) {
  return Tensor::full({kNumbers}, value, DType::f32, device);
}
std::vector<double> all(double value) { return std::vector<double>(kNumbers, value); }

/// to = from; both [kNumbers].
void copy(const Tensor& from, Tensor& to) {
  to.fill(0);
  tensor::accumulate(to, from);
}

/// x -> 2 x + 1 in parallel with x -> 3 x, each by way of a tensor that is released immediately,
/// then their sum.
struct Both {
  Tensor x, f, g, sum;  // [kNumbers]

  explicit Both(Device device)
      : x(filled(device, 0)),
        f(filled(device, -1)),
        g(filled(device, -2)),
        sum(filled(device, -3)) {}
  void work() {
    const Tensor before = tensor::affine(x, 2);
    side_by_side(
        x.device(), [&] { copy(tensor::affine(tensor::affine(before, 0.5), 2, 1), f); },
        [&] { copy(tensor::affine(tensor::affine(before, 0.5), 3), g); });
    copy(tensor::add(f, g), sum);
  }
  void check(double value) const {
    CHECK(f.to_vector() == all(2 * value + 1));
    CHECK(g.to_vector() == all(3 * value));
    CHECK(sum.to_vector() == all(5 * value + 1));
  }
};

}  // namespace

TEST_CASE("parallel works see earlier work, and later work sees them") {
  for_each_device([](Device device) {
    Both both(device);
    for (const double value : {3.0, 4.0, 5.0}) {
      both.x.fill(value);
      both.work();
      both.check(value);
    }
  });
}

TEST_CASE("the second stream is that of the thread that works there alone") {
  if (!cuda_or_skip()) return;
  if constexpr (kHaveCuda) {
    CUstream_st *own = nullptr, *others = nullptr;
    side_by_side(
        Device::cuda,
        [&] {
          own = cuda::stream();
          std::thread([&] { others = cuda::stream(); }).join();
        },
        [] {});
    CHECK(own != cuda::stream());
    CHECK(others == cuda::stream());
  }
}

TEST_CASE("a captured graph runs them in parallel, and counts no node for it") {
  if (!cuda_or_skip()) return;
  Both both(Device::cuda);
  {
    const GraphMemoryScope scope;
    both.work();
  }
  const Graph graph([&] { both.work(); });
  CHECK(graph.nodes() == 12);  // one for each op
  for (const double value : {3.0, 4.0, 5.0}) {
    both.x.fill(value);
    graph.replay();
    both.check(value);
  }
}

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("the second stream's work is there when both are joined, not always before") {
  const auto seen = [](bool captured) {
    Tensor x = filled(Device::cuda, 1), found = filled(Device::cuda, 0);
    const auto work = [&] {
      side_by_side(
          Device::cuda, [&] { x.fill(2); }, [&] { copy(x, found); });
    };
    if (captured) {
      Graph(work).replay();
    } else {
      work();
    }
    CHECK(x.to_vector() == all(2));
    return found.to_vector();
  };
  const char* const order = std::getenv("SKYTAPE_SIMULATED_ORDER");
  const double expected = order != nullptr && std::string(order) == "reverse" ? 2 : 1;
  CHECK(seen(false) == all(expected));
  CHECK(seen(true) == all(expected));
}
#endif

TEST_CASE("a product parallel to other work gives the bits of one alone") {
  if (!cuda_or_skip()) return;
  const Tensor a = random_tensor({65, 33}, DType::f32, Device::cuda);
  const Tensor b = random_tensor({33, 129}, DType::f32, Device::cuda, 2);
  Tensor first, second;
  side_by_side(
      Device::cuda, [&] { first = tensor::matmul(a, b); }, [&] { second = tensor::matmul(a, b); });
  CHECK(first.to_vector() == tensor::matmul(a, b).to_vector());
  CHECK(second.to_vector() == first.to_vector());
}

TEST_CASE("an error on either side is passed on, and the device works as before") {
  for_each_device([](Device device) {
    const auto fails = [] { throw Error("the op's own words"); };
    const auto nothing = [] {};
    Both both(device);
    for (const bool is_first : {true, false}) {
      CHECK(error_of([&] {
              if (is_first) side_by_side(device, fails, nothing);
              side_by_side(device, nothing, fails);
            }) == "the op's own words");
      both.x.fill(2);
      both.work();
      both.check(2);
    }
    if (device == Device::cpu) return;
    CHECK(error_of([&] { Graph([&] { side_by_side(device, fails, nothing); }); }) ==
          "the op's own words");
    CHECK(error_of([&] {
            side_by_side(
                device, [&] { side_by_side(device, nothing, nothing); }, nothing);
          }).find("within another one") != std::string::npos);
    both.work();
    both.check(2);
  });
}
