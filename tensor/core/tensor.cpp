#include "tensor/core/tensor.hpp"

#include <algorithm>
#include <cstring>

#include "tensor/core/bf16.hpp"
#include "tensor/core/storage.hpp"

namespace skytape {

const char* name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::i32:
      return "i32";
    case DType::bf16:
      return "bf16";
  }
  return "?";
}

std::size_t size_of(DType dtype) {
  return dtype == DType::f64 ? 8 : dtype == DType::bf16 ? sizeof(Bf16) : 4;
}

Shape::Shape(std::span<const std::int64_t> sizes) : rank_(static_cast<int>(sizes.size())) {
  ENSURE(rank_ <= kMaxRank, "Shape: at most ", kMaxRank, " axes, got ", sizes.size());
  std::copy(sizes.begin(), sizes.end(), sizes_.begin());
  for (const std::int64_t size : sizes) {
    ENSURE(size >= 0, "Shape: sizes must not be negative, got ", *this);
  }
}

std::int64_t Shape::numel() const {
  std::int64_t count = 1;
  for (const std::int64_t size : *this) {
    ENSURE(!__builtin_mul_overflow(count, size, &count), "Shape: ", *this,
           " has more elements than 64 bits count");
  }
  return count;
}

std::int64_t Shape::operator[](int axis) const {
  const int index = axis < 0 ? axis + rank_ : axis;
  ENSURE(index >= 0 && index < rank_, "Shape: axis ", axis, " of ", *this);
  return sizes_[static_cast<std::size_t>(index)];
}

Shape Shape::with(int axis, std::int64_t size) const {
  (void)(*this)[axis];  // checks the axis
  Shape result = *this;
  result.sizes_[static_cast<std::size_t>(axis < 0 ? axis + rank_ : axis)] = size;
  return result;
}

Shape Shape::without(int axis) const {
  (void)(*this)[axis];
  std::vector<std::int64_t> sizes(begin(), end());
  sizes.erase(sizes.begin() + (axis < 0 ? axis + rank_ : axis));
  return Shape(std::span<const std::int64_t>(sizes));
}

Shape Shape::first(int count) const {
  ENSURE(count >= 0 && count <= rank_, "Shape: the first ", count, " axes of ", *this);
  return Shape(std::span<const std::int64_t>(begin(), static_cast<std::size_t>(count)));
}

Shape Shape::append(std::int64_t size) const {
  std::vector<std::int64_t> sizes(begin(), end());
  sizes.push_back(size);
  return Shape(std::span<const std::int64_t>(sizes));
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  const char* separator = "";
  for (const std::int64_t size : shape) {
    out << separator << size;
    separator = ", ";
  }
  return out << ']';
}

std::ostream& operator<<(std::ostream& out, const Tensor& t) {
  if (!t.defined()) return out << "undefined tensor";
  return out << name(t.dtype_) << t.shape_ << '@' << name(t.device());
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  std::int64_t bytes = static_cast<std::int64_t>(size_of(dtype));
  for (const std::int64_t size : shape) {
    ENSURE(!__builtin_mul_overflow(bytes, size, &bytes), "Tensor: ", name(dtype), shape,
           " has more bytes than 64 bits count");
  }
  Tensor t;
  t.shape_ = shape;
  t.dtype_ = dtype;
  t.storage_ =
      std::make_shared<Storage>(std::max(static_cast<std::size_t>(bytes), size_of(dtype)), device);
  return t;
}

Tensor Tensor::lent(void* data, const Shape& shape, DType dtype, Device device,
                    std::shared_ptr<void> owner) {
  ENSURE(owner != nullptr, "Tensor::lent: expected an owner of the memory");
  Tensor t;
  t.shape_ = shape;
  t.dtype_ = dtype;
  t.storage_ =
      std::make_shared<Storage>(data, shape.numel() * size_of(dtype), device, std::move(owner));
  return t;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor t = empty(shape, dtype, device);
  t.fill(0);
  return t;
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor t = empty(shape, dtype, device);
  t.fill(value);
  return t;
}

namespace {

template <class From> From number(From x) { return x; }
float number(Bf16 x) { return static_cast<float>(x); }

template <class To, class From> void convert(const From* source, To* target, std::int64_t n) {
  std::transform(source, source + n, target, [](From x) { return static_cast<To>(number(x)); });
}

/// Calls f with a null pointer of the C++ type of dtype.
template <class F> void with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(static_cast<float*>(nullptr));
    case DType::f64:
      return f(static_cast<double*>(nullptr));
    case DType::i32:
      return f(static_cast<std::int32_t*>(nullptr));
    case DType::bf16:
      return f(static_cast<Bf16*>(nullptr));
  }
}

}  // namespace

template <class T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape, DType dtype, Device device) {
  ENSURE(static_cast<std::int64_t>(values.size()) == shape.numel(), "Tensor::from: shape ", shape,
         " needs ", shape.numel(), " values, got ", values.size());
  Tensor host = empty(shape, dtype, Device::cpu);
  with_type(dtype, [&]<class To>(To*) { convert(values.data(), host.data<To>(), shape.numel()); });
  return host.to(device);
}
template Tensor Tensor::from(std::span<const float>, const Shape&, DType, Device);
template Tensor Tensor::from(std::span<const double>, const Shape&, DType, Device);
template Tensor Tensor::from(std::span<const std::int32_t>, const Shape&, DType, Device);
template Tensor Tensor::from(std::span<const std::int64_t>, const Shape&, DType, Device);

Device Tensor::device() const { return storage_ ? storage_->device() : Device::cpu; }
std::int64_t Tensor::cols() const { return rank() == 0 ? 1 : size(-1); }
std::int64_t Tensor::rows() const { return rank() == 0 ? 1 : shape_.first(rank() - 1).numel(); }

void* Tensor::raw() const {
  ENSURE(defined(), "Tensor::data: the tensor is undefined");
  return static_cast<std::byte*>(storage_->data()) + offset_bytes_;
}

void* Tensor::raw_as(DType dtype) const {
  ENSURE(dtype == dtype_, "Tensor::data: tensor is ", *this, ", asked for ", name(dtype));
  return raw();
}

Tensor Tensor::reshape(const Shape& shape) const {
  ENSURE(shape.numel() == numel(), "reshape: ", *this, " has ", numel(), " elements, ", shape,
         " needs ", shape.numel());
  Tensor t = *this;
  t.shape_ = shape;
  return t;
}

Tensor Tensor::slice(std::int64_t begin, std::int64_t end) const {
  ENSURE(rank() > 0 && 0 <= begin && begin <= end && end <= size(0), "slice: [", begin, ", ", end,
         ") of ", *this);
  Tensor t = *this;
  const std::int64_t row = size(0) == 0 ? 0 : numel() / size(0);
  t.shape_ = shape_.with(0, end - begin);
  t.offset_bytes_ += begin * row * static_cast<std::int64_t>(size_of(dtype_));
  return t;
}

Tensor Tensor::view(std::int64_t byte, const Shape& shape, DType dtype) const {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const auto all = static_cast<std::int64_t>(bytes());
  ENSURE(0 <= byte && byte <= all && byte % size == 0 && shape.numel() <= (all - byte) / size,
         "view: from byte ", byte, " of ", *this, " as ", name(dtype), shape);
  Tensor t = *this;
  t.shape_ = shape;
  t.dtype_ = dtype;
  t.offset_bytes_ += byte;
  return t;
}

Tensor Tensor::operator[](std::int64_t index) const {
  const Tensor t = slice(index, index + 1);
  return t.reshape(shape_.without(0));
}

Tensor Tensor::clone() const {
  Tensor t = empty_like(*this);
  t.copy_from(*this);
  return t;
}

Tensor Tensor::to(Device target) const {
  if (target == device()) return *this;
  Tensor t = empty(shape_, dtype_, target);
  t.copy_from(*this);
  return t;
}

Tensor Tensor::to(DType target) const {
  if (target == dtype_) return *this;
  const Tensor host = to(Device::cpu);
  Tensor t = empty(shape_, target, Device::cpu);
  with_type(dtype_, [&]<class From>(From*) {
    with_type(target, [&]<class To>(To*) { convert(host.data<From>(), t.data<To>(), numel()); });
  });
  return t.to(device());
}

void Tensor::copy_from(const Tensor& source) {
  ENSURE(shape_ == source.shape_ && dtype_ == source.dtype_, "copy_from: target ", *this,
         ", source ", source);
  copy_bytes(raw(), device(), source.raw(), source.device(), bytes());
}

std::vector<double> Tensor::to_vector() const {
  const Tensor host = to(Device::cpu);
  std::vector<double> values(static_cast<std::size_t>(numel()));
  with_type(dtype_, [&]<class From>(From*) { convert(host.data<From>(), values.data(), numel()); });
  return values;
}

double Tensor::item() const {
  ENSURE(numel() == 1, "item: needs one element, got ", *this);
  return to_vector()[0];
}

void require_same_kind(const char* op, std::initializer_list<const Tensor*> tensors) {
  const Tensor& first = **tensors.begin();
  for (const Tensor* t : tensors) {
    ENSURE(t->defined(), op, ": an operand is undefined");
    ENSURE(t->dtype() == first.dtype() && t->device() == first.device(), op,
           ": operands differ in dtype or device: ", first, ", ", *t);
  }
}

void tensor::require_float(const char* op, const Tensor& x) {
  ENSURE(x.defined() && (x.dtype() == DType::f32 || x.dtype() == DType::f64), op,
         ": expected an f32 or f64 tensor, got ", x);
}

}  // namespace skytape
