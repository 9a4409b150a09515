#include "tensor/movement/layout.hpp"

#include "tensor/kernels/reduce.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::test;

namespace {

/// Distinct entries 0, 1, 2, …: a misplaced one shows.
Tensor counting(const Shape& shape, DType dtype, Device device) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  return Tensor::from(values, shape, dtype, device);
}

/// f(dtype, device) for every dtype: moving data works for all of them.
template <class F> void for_each_dtype(const F& f) {
  for_each_device([&](Device device) {
    for (const DType dtype : {DType::f32, DType::f64, DType::i32}) f(dtype, device);
  });
}

/// The naive gather: entry (o, i, j) of the result [outer, n, inner] is source(o, i, j).
template <class F>
std::vector<double> fill3(std::int64_t outer, std::int64_t n, std::int64_t inner, const F& source) {
  std::vector<double> values;
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < inner; ++j) {
        values.push_back(static_cast<double>(source(o, i, j)));
      }
    }
  }
  return values;
}

}  // namespace

TEST_CASE("transpose swaps the last two axes") {
  for_each_dtype([](DType dtype, Device device) {
    for (const Shape& shape : {Shape{2, 3}, Shape{1, 5}, Shape{5, 1}, Shape{3, 33, 65},
                               Shape{2, 2, 7, 4}, Shape{0, 3}, Shape{3, 0}, Shape{100, 3}}) {
      const std::int64_t n = shape[-2], m = shape[-1];
      const std::int64_t batch = shape.first(shape.rank() - 2).numel();
      const Tensor y = tensor::transpose(counting(shape, dtype, device));
      CHECK(y.shape() == shape.with(-2, m).with(-1, n));
      CHECK(y.to_vector() ==
            fill3(batch, m, n, [=](auto b, auto j, auto i) { return (b * n + i) * m + j; }));
    }
  });
}

TEST_CASE("swap_middle splits heads, and twice gives the input back") {
  for_each_dtype([](DType dtype, Device device) {
    for (const Shape& shape : {Shape{2, 3, 4, 5}, Shape{1, 1, 1, 1}, Shape{3, 200, 2, 32},
                               Shape{2, 5, 3, 1}, Shape{1, 2, 3, 600}, Shape{2, 0, 3, 4}}) {
      const std::int64_t n = shape[1], h = shape[2], d = shape[3];
      const Tensor x = counting(shape, dtype, device);
      const Tensor y = tensor::swap_middle(x);
      CHECK(y.shape() == Shape{shape[0], h, n, d});
      CHECK(y.to_vector() == fill3(shape[0] * h, n, d, [=](auto bh, auto i, auto c) {
              return ((bh / h * n + i) * h + bh % h) * d + c;
            }));
      CHECK(tensor::swap_middle(y).to_vector() == x.to_vector());
    }
  });
}

TEST_CASE("narrow cuts an axis and narrow_backward puts it back among zeros") {
  for_each_dtype([](DType dtype, Device device) {
    const Shape shape{3, 700, 5};
    const Tensor x = counting(shape, dtype, device);
    for (const int axis : {0, 1, 2, -1}) {
      const std::int64_t size = shape[axis];
      for (const auto& [begin, end] :
           {std::pair<std::int64_t, std::int64_t>{0, size}, {1, size - 1}, {2, 2}, {0, 1}}) {
        const Tensor y = tensor::narrow(x, axis, begin, end);
        const int index = axis < 0 ? axis + 3 : axis;
        CHECK(y.shape() == shape.with(axis, end - begin));
        CHECK(y.to_vector() ==
              fill3(y.size(0), y.size(1), y.size(2), [&, b = begin](auto o, auto i, auto j) {
                return ((o + (index == 0 ? b : 0)) * 700 + i + (index == 1 ? b : 0)) * 5 + j +
                       (index == 2 ? b : 0);
              }));
        const Tensor back = tensor::narrow_backward(y, axis, begin, size);
        CHECK(back.to_vector() == fill3(3, 700, 5, [&, b = begin, e = end](auto o, auto i, auto j) {
                const auto at = index == 0 ? o : index == 1 ? i : j;
                return b <= at && at < e ? (o * 700 + i) * 5 + j : 0;
              }));
      }
    }
  });
}

TEST_CASE("concat joins along any axis and narrow takes the parts out again") {
  for_each_dtype([](DType dtype, Device device) {
    for (const int axis : {0, 1, 2, -2}) {
      std::vector<Tensor> parts;
      for (const std::int64_t size : {3, 1, 0, 600}) {
        parts.push_back(counting(Shape{2, 4, 5}.with(axis, size), dtype, device));
      }
      const Tensor y = tensor::concat(parts, axis);
      CHECK(y.shape() == Shape{2, 4, 5}.with(axis, 604));
      std::int64_t begin = 0;
      for (const Tensor& part : parts) {
        const std::int64_t end = begin + part.size(axis);
        CHECK(tensor::narrow(y, axis, begin, end).to_vector() == part.to_vector());
        begin = end;
      }
    }
    const std::vector<Tensor> two = {counting({2, 1}, dtype, device),
                                     counting({2, 2}, dtype, device)};
    CHECK(tensor::concat(two, 1).to_vector() == std::vector<double>{0, 0, 1, 1, 2, 3});
  });
}

TEST_CASE("expand repeats by the broadcasting rules") {
  for_each_dtype([](DType dtype, Device device) {
    const auto expanded = [&](const Shape& from, const Shape& to) {
      return tensor::expand(counting(from, dtype, device), to).to_vector();
    };
    CHECK(expanded({}, {2, 2}) == std::vector<double>{0, 0, 0, 0});
    CHECK(expanded({3}, {2, 3}) == std::vector<double>{0, 1, 2, 0, 1, 2});
    CHECK(expanded({2, 1}, {2, 3}) == std::vector<double>{0, 0, 0, 1, 1, 1});
    CHECK(expanded({2, 1, 2}, {2, 2, 2}) == std::vector<double>{0, 1, 0, 1, 2, 3, 2, 3});
    CHECK(expanded({2, 3}, {2, 3}) == std::vector<double>{0, 1, 2, 3, 4, 5});
    CHECK(expanded({1, 3}, {0, 3}).empty());
    CHECK(expanded({3, 1}, {2, 3, 700}) == fill3(2, 3, 700, [](auto, auto i, auto) { return i; }));
    CHECK(expanded({1, 3, 1, 2, 1, 5}, {2, 3, 4, 2, 3, 5}) ==
          fill3(2 * 3 * 4, 2 * 3, 5,
                [](auto o, auto i, auto j) { return (o / 4 % 3 * 2 + i / 3) * 5 + j; }));
  });
}

TEST_CASE("sum_to_shape is the adjoint of expand") {
  for_each_kind([](DType dtype, Device device) {
    const Shape from{3, 1, 4}, to{2, 3, 5, 4};
    const Tensor x = random_tensor(from, dtype, device, 1);
    const Tensor dy = random_tensor(to, dtype, device, 2);
    const auto dot = [](const Tensor& a, const Tensor& b) {
      return tensor::row_dot(a.reshape({a.numel()}), b.reshape({b.numel()})).item();
    };
    CHECK(dot(tensor::expand(x, to), dy) ==
          doctest::Approx(dot(x, tensor::sum_to_shape(dy, from))).epsilon(1e-5));
  });
}

TEST_CASE("layout functions name the operation and the operands when they refuse") {
  const Tensor x = Tensor::zeros({2, 3}, DType::f32, Device::cpu);
  const Tensor y = Tensor::zeros({2, 4}, DType::f32, Device::cpu);
  const Tensor line = Tensor::zeros({2}, DType::i32, Device::cpu);
  CHECK(error_text([&] { (void)tensor::transpose(line); }) ==
        "transpose: expected [..., n, m], got i32[2]@cpu");
  CHECK(error_text([&] { (void)tensor::swap_middle(x); }) ==
        "swap_middle: expected [B, N, H, D], got f32[2, 3]@cpu");
  CHECK(error_text([&] {
          (void)tensor::concat(std::vector<Tensor>{x, y}, 0);
        }) == "concat along axis 0: sizes of other axes differ: f32[2, 3]@cpu and f32[2, 4]@cpu");
  CHECK(error_text([&] {
          (void)tensor::concat(std::vector<Tensor>{x, line}, 0);
        }) == "concat: operands differ in dtype or device: f32[2, 3]@cpu, i32[2]@cpu");
  CHECK(error_text([&] {
          (void)tensor::concat(std::vector<Tensor>{x, x}, 2);
        }) == "concat: axis 2 of f32[2, 3]@cpu");
  CHECK(error_text([&] { (void)tensor::concat({}, 0); }) ==
        "concat: expected at least one part, got none");
  CHECK(error_text([&] { (void)tensor::narrow(x, 1, 2, 4); }) ==
        "narrow: [2, 4) of axis 1 of f32[2, 3]@cpu");
  CHECK(error_text([&] { (void)tensor::narrow_backward(x, 1, 2, 4); }) ==
        "narrow_backward: f32[2, 3]@cpu does not fit at 2 of 4 entries of axis 1");
  CHECK(error_text([&] {
          (void)tensor::expand(x, {3, 3});
        }) == "expand: shapes do not broadcast: [2, 3] and [3, 3]");
  CHECK(error_text([&] { (void)tensor::expand(x, {3}); }) ==
        "expand: f32[2, 3]@cpu does not broadcast to [3]");
}
