#include "tensor/kernels/elementwise.hpp"

#include <algorithm>
#include <cstdint>

#include "tensor/core/on_device.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/launch/strided.hpp"

namespace skytape::tensor {
namespace {

const char* name(Unary f) {
  static constexpr const char* kNames[] = {
#define UNARY(name, value, derivative) #name,
#include "tensor/kernels/elementwise.def"
  };
  return kNames[static_cast<int>(f)];
}

const char* name(Binary f) {
  static constexpr const char* kNames[] = {
#define BINARY(name, value) #name,
#include "tensor/kernels/elementwise.def"
  };
  return kNames[static_cast<int>(f)];
}

}  // namespace

void fill(Tensor& x, double value) {
  ENSURE(x.defined(), "fill: the tensor is undefined");
  ENSURE(x.dtype() != DType::i32 || (value >= INT32_MIN && value <= INT32_MAX),
         "fill: expected a value that fits i32 for ", x, ", got ", value);
  on_device(x.device(), [&](auto tag) { fill_on(tag, x, value); });
}

Tensor unary(Unary f, const Tensor& x) {
  require_float(name(f), x);
  Tensor y = empty_like(x);  // [...] as x
  on_device(x.device(), [&](auto tag) { unary_on(tag, f, x, y); });
  return y;
}

Tensor unary_backward(Unary f, const Tensor& x, const Tensor& dy) {
  require_float(name(f), x);
  require_same_kind(name(f), {&x, &dy});
  ENSURE(x.shape() == dy.shape(), name(f), ": shapes differ: x ", x, ", dy ", dy);
  Tensor dx = empty_like(x);  // [...] as x
  on_device(x.device(), [&](auto tag) { unary_backward_on(tag, f, x, dy, dx); });
  return dx;
}

Shape broadcast_shape(const char* op, const Shape& a, const Shape& b) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape result = longer;
  for (int back = 1; back <= shorter.rank(); ++back) {
    const std::int64_t s = longer[-back], t = shorter[-back];
    ENSURE(s == t || s == 1 || t == 1, op, ": shapes do not broadcast: ", a, " and ", b);
    result = result.with(-back, s == 1 ? t : s);
  }
  return result;
}

Tensor binary(Binary f, const Tensor& a, const Tensor& b) {
  require_float(name(f), a);
  require_same_kind(name(f), {&a, &b});
  const Shape shape = broadcast_shape(name(f), a.shape(), b.shape());
  Tensor y = empty_like(a, shape);  // broadcast of a and b
  const StridedLoop loop(a.device(), shape, broadcast_strides(a.shape(), shape),
                         broadcast_strides(b.shape(), shape));
  on_device(a.device(), [&](auto tag) { binary_on(tag, f, loop, a, b, y); });
  return y;
}

Tensor affine(const Tensor& x, double scale, double shift) {
  require_float("affine", x);
  Tensor y = empty_like(x);  // [...] as x
  on_device(x.device(), [&](auto tag) { affine_on(tag, x, scale, shift, y); });
  return y;
}

void accumulate(Tensor& y, const Tensor& x, double scale) {
  require_float("accumulate", y);
  require_same_kind("accumulate", {&y, &x});
  ENSURE(y.shape() == x.shape(), "accumulate: shapes differ: target ", y, ", source ", x);
  on_device(y.device(), [&](auto tag) { accumulate_on(tag, y, x, scale); });
}

void accumulate_all(std::span<Addition> additions) {
  if (additions.empty()) return;
  const Tensor& first = additions.front().target;
  for (const auto& [target, source] : additions) {
    require_float("accumulate_all", target);
    require_same_kind("accumulate_all", {&first, &target, &source});
    ENSURE(target.shape() == source.shape(), "accumulate_all: shapes differ: target ", target,
           ", source ", source);
  }
  on_device(first.device(), [&](auto tag) { accumulate_all_on(tag, additions); });
}

Tensor mask_rows(const Tensor& x, const Tensor& mask, double scale) {
  require_float("mask_rows", x);
  require_same_kind("mask_rows", {&x, &mask});
  ENSURE(x.rank() == 4 && mask.shape() == Shape({x.size(0), x.size(2)}),
         "mask_rows: expected x [B, H, N, D] and mask [B, N], got ", x, " and ", mask);
  Tensor y = empty_like(x);  // [B, H, N, D]
  on_device(x.device(), [&](auto tag) { mask_rows_on(tag, x, mask, scale, y); });
  return y;
}

bool all_finite(const Tensor& x) {
  require_float("all_finite", x);
  const Tensor counts =
      on_device(x.device(), [&](auto tag) { return non_finite_on(tag, x); }).to(Device::cpu);
  const auto* begin = counts.data<std::int32_t>();
  return std::all_of(begin, begin + counts.numel(), [](std::int32_t count) { return count == 0; });
}

}  // namespace skytape::tensor

// The one member of Tensor that needs a kernel.
void skytape::Tensor::fill(double value) { skytape::tensor::fill(*this, value); }
