#include "tensor/core/tensor.hpp"

#include <cmath>
#include <limits>

#include "tensor/core/storage.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::test;
using doctest::Contains;

TEST_CASE("a shape counts its elements and its axes from either end") {
  const Shape shape{2, 3, 5};
  CHECK(shape.rank() == 3);
  CHECK(shape.numel() == 30);
  CHECK(shape[0] == 2);
  CHECK(shape[-1] == 5);
  CHECK(shape[-3] == 2);
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{4, 0, 7}.numel() == 0);
  CHECK(join(shape) == "[2, 3, 5]");
  CHECK(join(Shape{}) == "[]");
}

TEST_CASE("a shape is edited by returning another one") {
  const Shape shape{2, 3, 5};
  CHECK(shape.with(-1, 7) == Shape{2, 3, 7});
  CHECK(shape.without(1) == Shape{2, 5});
  CHECK(shape.without(-1) == Shape{2, 3});
  CHECK(shape.first(2) == Shape{2, 3});
  CHECK(shape.first(0) == Shape{});
  CHECK(shape.append(4) == Shape{2, 3, 5, 4});
  CHECK(shape == Shape{2, 3, 5});
  CHECK_FALSE(Shape{2, 3} == Shape{2, 3, 1});
}

TEST_CASE("a bad shape or axis is refused by name") {
  CHECK(error_text([] { (void)Shape{1, 2, 3, 4, 5, 6, 7}; }) == "Shape: at most 6 axes, got 7");
  CHECK(error_text([] { (void)Shape{2, -1}; }) == "Shape: sizes must not be negative, got [2, -1]");
  CHECK(error_text([] { (void)Shape({2, 3})[2]; }) == "Shape: axis 2 of [2, 3]");
  CHECK(error_text([] { (void)Shape({2, 3})[-3]; }) == "Shape: axis -3 of [2, 3]");
  CHECK(error_text([] { (void)Shape({2, 3}).without(2); }) == "Shape: axis 2 of [2, 3]");
  CHECK(error_text([] { (void)Shape({2}).first(2); }) == "Shape: the first 2 axes of [2]");
}

TEST_CASE("lent memory is read and written in place, and given back with its last tensor") {
  const auto array = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3, 4, 5, 6});
  const MemoryStats before = memory_stats(Device::cpu);
  {
    Tensor row;
    {
      Tensor lent = Tensor::lent(array->data(), {2, 3}, DType::f32, Device::cpu, array);
      CHECK(lent.raw() == array->data());
      row = lent[1];
      lent.fill(7);
    }
    CHECK((*array)[0] == 7);
    CHECK(row.to_vector() == std::vector<double>{7, 7, 7});
    CHECK(array.use_count() == 2);
    CHECK(memory_stats(Device::cpu).live_bytes == before.live_bytes);
  }
  CHECK(array.use_count() == 1);
  CHECK(memory_stats(Device::cpu).live_bytes == before.live_bytes);
  CHECK(error_text([&] {
          (void)Tensor::lent(array->data(), {6}, DType::f32, Device::cpu, nullptr);
        }) == "Tensor::lent: expected an owner of the memory");
}

TEST_CASE("values survive the way to a device and back in every dtype") {
  for_each_device([](Device device) {
    for (const DType dtype : {DType::f32, DType::f64, DType::i32}) {
      const Tensor t = Tensor::from(std::vector<double>{1, -2, 3, 4, 5, 6}, {2, 3}, dtype, device);
      CHECK(t.dtype() == dtype);
      CHECK(t.device() == device);
      CHECK(t.to_vector() == std::vector<double>{1, -2, 3, 4, 5, 6});
      CHECK(t.bytes() == 6 * size_of(dtype));
      CHECK(join(t) == join(name(dtype), "[2, 3]@", name(device)));
    }
  });
  CHECK(join(Tensor{}) == "undefined tensor");
}

TEST_CASE("rows and columns are the last axis and the rest") {
  const Tensor t = Tensor::zeros({2, 3, 5}, DType::f32, Device::cpu);
  CHECK(t.rows() == 6);
  CHECK(t.cols() == 5);
  const Tensor scalar = Tensor::zeros({}, DType::f32, Device::cpu);
  CHECK(scalar.rows() == 1);
  CHECK(scalar.cols() == 1);
}

TEST_CASE("a copied handle, a reshape and a slice share memory; a clone does not") {
  for_each_device([](Device device) {
    Tensor t = Tensor::zeros({4, 3}, DType::f32, device);
    const Tensor handle = t, flat = t.reshape({12}), copy = t.clone();
    Tensor middle = t.slice(1, 3), row = t[3];
    CHECK(middle.shape() == Shape{2, 3});
    CHECK(row.shape() == Shape{3});
    middle.fill(1);
    row.fill(2);
    const std::vector<double> expected = {0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2};
    CHECK(handle.to_vector() == expected);
    CHECK(flat.to_vector() == expected);
    CHECK(copy.to_vector() == std::vector<double>(12, 0));
  });
}

TEST_CASE("a slice of a slice and an empty slice are legal") {
  const Tensor t = random_tensor({6, 2});
  const std::vector<double> all = t.to_vector();
  CHECK(t.slice(1, 5).slice(2, 4).to_vector() ==
        std::vector<double>(all.begin() + 6, all.begin() + 10));
  CHECK(t.slice(6, 6).shape() == Shape{0, 2});
  CHECK(t.slice(6, 6).to_vector().empty());
}

TEST_CASE("dtype conversion truncates towards i32 and keeps the handle when nothing changes") {
  const Tensor t =
      Tensor::from(std::vector<double>{1.75, -2.25, 0.1}, {3}, DType::f64, Device::cpu);
  CHECK(t.to(DType::i32).to_vector() == std::vector<double>{1, -2, 0});
  CHECK(t.to(DType::f32).to_vector()[2] == doctest::Approx(0.1).epsilon(1e-7));
  CHECK(t.to(DType::f32).to_vector()[2] != 0.1);
  CHECK(t.to(DType::f64).raw() == t.raw());
  CHECK(t.to(Device::cpu).raw() == t.raw());
}

TEST_CASE("misuse of a tensor is refused with what was expected and what came") {
  const Tensor t = Tensor::zeros({2, 3}, DType::f32, Device::cpu);
  CHECK(error_text([&] { (void)t.data<double>(); }) ==
        "Tensor::data: tensor is f32[2, 3]@cpu, asked for f64");
  CHECK(error_text([&] { (void)t.reshape({4}); }) ==
        "reshape: f32[2, 3]@cpu has 6 elements, [4] needs 4");
  CHECK(error_text([&] {  // of 2^64 + 4 elements, which are 4 where products overflow
          (void)Tensor::zeros({4}, DType::f32, Device::cpu).reshape({(1LL << 62) + 1, 4});
        }) == "Shape: [4611686018427387905, 4] has more elements than 64 bits count");
  CHECK(error_text([&] { (void)t.slice(1, 3); }) == "slice: [1, 3) of f32[2, 3]@cpu");
  CHECK(error_text([&] { (void)t.slice(2, 1); }) == "slice: [2, 1) of f32[2, 3]@cpu");
  CHECK(error_text([&] { (void)t.item(); }) == "item: needs one element, got f32[2, 3]@cpu");
  CHECK(error_text([] { (void)Tensor{}.raw(); }) == "Tensor::data: the tensor is undefined");
  CHECK(error_text([&] {
          Tensor other = Tensor::zeros({3, 2}, DType::f32, Device::cpu);
          other.copy_from(t);
        }) == "copy_from: target f32[3, 2]@cpu, source f32[2, 3]@cpu");
  CHECK(error_text([] {
          (void)Tensor::from(std::vector<double>{1, 2}, {3}, DType::f32, Device::cpu);
        }) == "Tensor::from: shape [3] needs 3 values, got 2");
  CHECK(error_text([] {
          (void)Tensor::empty({1LL << 31, 1LL << 31, 4}, DType::f32, Device::cpu);
        }) == "Tensor: f32[2147483648, 2147483648, 4] has more bytes than 64 bits count");
}

TEST_CASE("operands of another dtype or device are refused, naming both") {
  const Tensor a = Tensor::zeros({2}, DType::f32, Device::cpu);
  const Tensor b = Tensor::zeros({2}, DType::f64, Device::cpu);
  CHECK(error_text([&] {
          require_same_kind("op", {&a, &b});
        }) == "op: operands differ in dtype or device: f32[2]@cpu, f64[2]@cpu");
  const Tensor none;
  CHECK(error_text([&] { require_same_kind("op", {&a, &none}); }) == "op: an operand is undefined");
}

TEST_CASE("a view of a slice begins in the slice") {
  const Tensor x =
      Tensor::from(std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7}, {4, 2}, DType::f64, Device::cpu);
  CHECK(x.slice(1, 4).view(8, {2}, DType::f64).to_vector() == std::vector<double>{3, 4});
  CHECK_THROWS_AS((void)x.slice(1, 2).view(8, {2}, DType::f64), Error);
  CHECK_THROWS_AS((void)x.view(0, {1LL << 61}, DType::f64), Error);  // 2^64 bytes are none
}

TEST_CASE("item reads a scalar and empty tensors hold nothing") {
  for_each_device([](Device device) {
    CHECK(Tensor::full({}, 2.5, DType::f32, device).item() == 2.5);
    CHECK(Tensor::full({1, 1}, -3, DType::i32, device).item() == -3);
    const Tensor empty = Tensor::zeros({3, 0, 2}, DType::f64, device);
    CHECK(empty.to_vector().empty());
    CHECK(empty.clone().shape() == Shape{3, 0, 2});
  });
}
