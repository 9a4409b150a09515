#include "train/python/arrays.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <span>
#include <string>

#include "tensor/core/error.hpp"
#include "tensor/core/storage_plan.hpp"

namespace skytape::python {
namespace {

constexpr std::uintptr_t kGpuAlignment = 16;  // bytes, of loads of four floats

using Array = nb::ndarray<nb::ro, nb::c_contig>;

std::string class_of(nb::handle object) { return nb::cast<std::string>(nb::str(object.type())); }

/// What DLPack hands over. A library whose array is on a GPU lets our stream wait for its own.
nb::object source_of(nb::handle array) {
  nb::object source = nb::borrow(array);
  if constexpr (kHaveCuda) {
    if (!nb::hasattr(array, "__dlpack_device__")) return source;
    const nb::object device = array.attr("__dlpack_device__")();
    if (nb::cast<int>(device[0]) != nb::device::cuda::value) return source;
    if (nb::hasattr(source, "contiguous")) source = source.attr("contiguous")();
    return source.attr("__dlpack__")(nb::arg("stream") =
                                         reinterpret_cast<std::uintptr_t>(cuda::stream()));
  }
  return source;
}

DType dtype_of(const Array& array, const char* argument) {
  if (array.dtype() == nb::dtype<float>()) return DType::f32;
  if (array.dtype() == nb::dtype<double>()) return DType::f64;
  if (array.dtype() == nb::dtype<std::int32_t>()) return DType::i32;
  const nb::dlpack::dtype other = array.dtype();
  const char* const kinds[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  throw UsageError(join(argument, ": expected float32, float64 or int32, got ",
                        other.code < 7 ? kinds[other.code] : "another type of ", int{other.bits}));
}

Device device_of(const Array& array, const char* argument) {
  const int type = array.device_type(), number = array.device_id();
  if (type == nb::device::cpu::value || type == nb::device::cuda_host::value) return Device::cpu;
  if (type == nb::device::cuda::value && number == 0) {
    if (kHaveCuda) return Device::cuda;
    throw UsageError(join(argument, ": is on cuda, but this module was built without CUDA"));
  }
  throw UsageError(join(argument,
                        ": expected an array on the CPU or on GPU 0, got DLPack's device (", type,
                        ", ", number, ")"));
}

template <class... Framework> nb::object lend(const Tensor& t) {
  std::size_t sizes[Shape::kMaxRank];
  for (int axis = 0; axis < t.rank(); ++axis) sizes[axis] = static_cast<std::size_t>(t.size(axis));
  const nb::dlpack::dtype dtype = t.dtype() == DType::f32   ? nb::dtype<float>()
                                  : t.dtype() == DType::f64 ? nb::dtype<double>()
                                                            : nb::dtype<std::int32_t>();
  const nb::capsule owner(new Tensor(t),
                          [](void* kept) noexcept { delete static_cast<Tensor*>(kept); });
  const int device = t.device() == Device::cpu ? nb::device::cpu::value : nb::device::cuda::value;
  return nb::cast(nb::ndarray<Framework...>(t.raw(), static_cast<std::size_t>(t.rank()), sizes,
                                            owner, nullptr, dtype, device, 0));
}

}  // namespace

Tensor tensor_of(nb::handle array, const char* argument) {
  Array found;
  if (!nb::try_cast(source_of(array), found)) {
    throw UsageError(join(argument,
                          ": expected an array of NumPy, PyTorch, JAX or another library "
                          "with DLPack, got ",
                          class_of(array)));
  }
  if (found.ndim() > Shape::kMaxRank) {
    throw UsageError(
        join(argument, ": expected at most ", Shape::kMaxRank, " axes, got ", found.ndim()));
  }
  const Shape shape(std::span<const std::int64_t>(found.shape_ptr(), found.ndim()));
  const DType dtype = dtype_of(found, argument);
  const Device device = device_of(found, argument);
  void* const data = const_cast<void*>(found.data());
  const Tensor tensor = Tensor::lent(data, shape, dtype, device, shared(std::move(found)));
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % kGpuAlignment == 0;
  return device == Device::cpu || aligned ? tensor : tensor.clone();
}

Tensor optional_tensor_of(nb::handle array, const char* argument) {
  return array.is_none() ? Tensor() : tensor_of(array, argument);
}

nb::object array_of(const Tensor& t) { return t.defined() ? lend<nb::array_api>(t) : nb::none(); }
nb::object numpy_of(const Tensor& t) {
  return t.defined() ? lend<nb::numpy>(t.to(Device::cpu)) : nb::none();
}

}  // namespace skytape::python
