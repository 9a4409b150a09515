// Tensor: a cheap handle on a contiguous, row-major array.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tensor/core/device.hpp"
#include "tensor/core/error.hpp"

namespace skytape {

class Storage;  // storage.hpp

/// f32 trains, f64 checks, i32 holds tokens and indices. bf16 holds operands of products on a GPU
/// (gemm/operand.hpp); other operations refuse it.
enum class DType { f32, f64, i32, bf16 };
[[nodiscard]] const char* name(DType dtype);
[[nodiscard]] std::size_t size_of(DType dtype);

template <class T> inline constexpr DType kDTypeOf = DType::f32;
template <> inline constexpr DType kDTypeOf<double> = DType::f64;
template <> inline constexpr DType kDTypeOf<std::int32_t> = DType::i32;
struct Bf16;  // core/bf16.hpp
template <> inline constexpr DType kDTypeOf<Bf16> = DType::bf16;

/// Sizes of the axes, outermost first; at most kMaxRank of them. A scalar has none.
class Shape {
 public:
  static constexpr int kMaxRank = 6;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes)
      : Shape(std::span<const std::int64_t>(sizes.begin(), sizes.size())) {}
  explicit Shape(std::span<const std::int64_t> sizes);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] std::int64_t numel() const;
  /// Size of an axis; negative axes count from the end, so [-1] is the innermost.
  [[nodiscard]] std::int64_t operator[](int axis) const;
  [[nodiscard]] Shape with(int axis, std::int64_t size) const;  ///< one size replaced
  [[nodiscard]] Shape without(int axis) const;                  ///< one axis removed
  [[nodiscard]] Shape first(int count) const;                   ///< the leading `count` axes
  [[nodiscard]] Shape append(std::int64_t size) const;          ///< one axis added at the end
  [[nodiscard]] const std::int64_t* begin() const { return sizes_.data(); }
  [[nodiscard]] const std::int64_t* end() const { return sizes_.data() + rank_; }
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, kMaxRank> sizes_{};  // unused entries stay zero
  int rank_ = 0;
};
std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// Shared storage, offset, shape, dtype. Always contiguous and row-major: reshaping and leading
/// slices share memory, a transpose is a copy. Copying a Tensor copies the handle, not the data.
class Tensor {
 public:
  Tensor() = default;  ///< undefined: no storage, `defined()` is false

  /// Uninitialised memory; on a CPU NaN, or -1, in builds without NDEBUG.
  [[nodiscard]] static Tensor empty(const Shape& shape, DType dtype, Device device);
  [[nodiscard]] static Tensor zeros(const Shape& shape, DType dtype, Device device);
  [[nodiscard]] static Tensor full(const Shape& shape, double value, DType dtype, Device device);
  /// Copies `values` (row-major, exactly shape.numel() of them) and converts them to dtype.
  template <class T> [[nodiscard]] static Tensor from(std::span<const T> values, const Shape& shape,
                                                      DType dtype, Device device);
  template <class T> [[nodiscard]] static Tensor from(const std::vector<T>& values,
                                                      const Shape& shape, DType dtype,
                                                      Device device) {
    return from(std::span<const T>(values), shape, dtype, device);
  }

  /// Memory of another library, without a copy: contiguous, and kept alive by `owner` until the
  /// last tensor that shares it is gone.
  [[nodiscard]] static Tensor lent(void* data, const Shape& shape, DType dtype, Device device,
                                   std::shared_ptr<void> owner);

  [[nodiscard]] bool defined() const { return storage_ != nullptr; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] int rank() const { return shape_.rank(); }
  [[nodiscard]] std::int64_t size(int axis) const { return shape_[axis]; }
  [[nodiscard]] std::int64_t numel() const { return shape_.numel(); }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] Device device() const;
  [[nodiscard]] std::size_t bytes() const { return numel() * size_of(dtype_); }
  /// Product of all axes but the last, and the last (1 for a scalar): the view of row kernels.
  [[nodiscard]] std::int64_t rows() const;
  [[nodiscard]] std::int64_t cols() const;

  /// Typed pointer to the first element; T must match the dtype.
  template <class T> [[nodiscard]] T* data() const {
    return static_cast<T*>(raw_as(kDTypeOf<std::remove_const_t<T>>));
  }
  /// The same, or null for an undefined tensor.
  template <class T> [[nodiscard]] T* data_or_null() const {
    return defined() ? data<T>() : nullptr;
  }
  [[nodiscard]] void* raw() const;

  /// Same memory, other shape with the same number of elements.
  [[nodiscard]] Tensor reshape(const Shape& shape) const;
  /// Same memory: entries [begin, end) of the leading axis.
  [[nodiscard]] Tensor slice(std::int64_t begin, std::int64_t end) const;
  /// Same memory: `shape` numbers of another type, `byte` bytes from here on.
  [[nodiscard]] Tensor view(std::int64_t byte, const Shape& shape, DType dtype) const;
  /// Same memory: entry `index` of the leading axis, which is dropped.
  [[nodiscard]] Tensor operator[](std::int64_t index) const;

  [[nodiscard]] Tensor clone() const;
  [[nodiscard]] Tensor to(Device device) const;  ///< this tensor if already there, else a copy
  [[nodiscard]] Tensor to(DType dtype) const;  ///< this tensor if already so, else a converted copy
  void copy_from(const Tensor& source);        ///< same shape and dtype, any device
  void fill(double value);
  [[nodiscard]] std::vector<double> to_vector() const;  ///< values on the host
  [[nodiscard]] double item() const;                    ///< the only element, read back

  friend std::ostream& operator<<(std::ostream& out, const Tensor& t);  ///< "f32[2, 3]@cpu"

 private:
  [[nodiscard]] void* raw_as(DType dtype) const;

  std::shared_ptr<Storage> storage_;
  std::int64_t offset_bytes_ = 0;
  Shape shape_;
  DType dtype_ = DType::f32;
};

/// Returns how many pieces of one size cover a length: whole / piece, rounded up.
template <class T> [[nodiscard]] constexpr T ceil_div(T whole, std::type_identity_t<T> piece) {
  return (whole + piece - 1) / piece;
}

[[nodiscard]] inline Tensor empty_like(const Tensor& t) {
  return Tensor::empty(t.shape(), t.dtype(), t.device());
}
[[nodiscard]] inline Tensor zeros_like(const Tensor& t) {
  return Tensor::zeros(t.shape(), t.dtype(), t.device());
}
/// Returns an uninitialised tensor of another shape, with t's dtype and device.
[[nodiscard]] inline Tensor empty_like(const Tensor& t, const Shape& shape) {
  return Tensor::empty(shape, t.dtype(), t.device());
}
[[nodiscard]] inline Tensor zeros_like(const Tensor& t, const Shape& shape) {
  return Tensor::zeros(shape, t.dtype(), t.device());
}
[[nodiscard]] inline Tensor ones_like(const Tensor& t, const Shape& shape) {
  return Tensor::full(shape, 1, t.dtype(), t.device());
}

/// Throws unless every tensor has the dtype and device of the first; `op` names the caller.
void require_same_kind(const char* op, std::initializer_list<const Tensor*> tensors);

namespace tensor {
/// Throws, naming `op`, unless x is defined and floating-point.
void require_float(const char* op, const Tensor& x);
}  // namespace tensor

}  // namespace skytape
