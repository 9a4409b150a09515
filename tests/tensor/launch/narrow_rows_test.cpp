// Kernels whose rows are for a few lanes, a warp or a block of a GPU, moved four numbers at a time
// or one by one: as on the CPU.
#include <vector>

#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/gather.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::tensor;
using namespace skytape::test;

TEST_CASE("narrow and wide rows are picked, masked and multiplied as on the CPU") {
  const Tensor index = Tensor::from(std::vector{4, 0, 2, 2, 5}, {5}, DType::i32, Device::cpu);
  for_each_kind([&](DType dtype, Device device) {
    for (const std::int64_t width : {1, 5, 32, 64, 66, 128, 1028}) {
      CAPTURE(width);
      const Tensor x = random_tensor({2, 3, 7, width}, dtype);
      const Tensor mask = random_tensor({2, 7}, dtype, Device::cpu, 2);
      const Tensor on = x.to(device);
      CHECK(gather_rows(on, index.to(device)).to_vector() == gather_rows(x, index).to_vector());
      CHECK(mask_rows(on, mask.to(device), 0.5).to_vector() == mask_rows(x, mask, 0.5).to_vector());
      CHECK(relative_error(row_dot(on, on), row_dot(x, x)) < rounding(dtype));
    }
  });
}
