// The Python module `skytape._engine`: it binds the library and computes nothing of its own. What
// users call stands in the package around it, skytape/__init__.py.
#include "train/python/module.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>

#include "tensor/core/error.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/core/storage_plan.hpp"
#include "train/process/version.hpp"

namespace skytape::python {
namespace {

constexpr std::uintptr_t kGpuAlignment = 16;  // bytes, of loads of four floats

using Array = nb::ndarray<nb::ro, nb::c_contig>;
constexpr DType kTypes[] = {DType::f32, DType::f64, DType::i32};
constexpr nb::dlpack::dtype kTheirs[] = {nb::dtype<float>(), nb::dtype<double>(),
                                         nb::dtype<std::int32_t>()};

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

template <class Framework> nb::object lend(const Tensor& t) {
  if (!t.defined()) return nb::none();
  const std::vector<std::size_t> sizes(t.shape().begin(), t.shape().end());
  const auto type = std::find(std::begin(kTypes), std::end(kTypes), t.dtype()) - kTypes;
  const nb::capsule owner(new Tensor(t),
                          [](void* kept) noexcept { delete static_cast<Tensor*>(kept); });
  const int device = t.device() == Device::cpu ? nb::device::cpu::value : nb::device::cuda::value;
  return nb::cast(nb::ndarray<Framework>(t.raw(), sizes.size(), sizes.data(), owner, nullptr,
                                         kTheirs[type], device, 0));
}

}  // namespace

Tensor tensor_of(nb::handle array, const char* argument) {
  if (array.is_none()) return {};
  const auto wrong = [&](const auto&... expected) {
    throw UsageError(join(argument, ": expected ", expected...));
  };
  Array found;
  if (!nb::try_cast(source_of(array), found)) {
    wrong("an array of NumPy, PyTorch, JAX or another library with DLPack, got ",
          nb::str(array.type()).c_str());
  }
  if (found.ndim() > Shape::kMaxRank) {
    wrong("at most ", Shape::kMaxRank, " axes, got ", found.ndim());
  }
  const auto type = std::find(std::begin(kTheirs), std::end(kTheirs), found.dtype()) - kTheirs;
  if (type == std::ssize(kTheirs)) {
    wrong("float32, float64 or int32, got ", nb::str(nb::object(array.attr("dtype"))).c_str());
  }
  const int kind = found.device_type(), number = found.device_id();
  const bool gpu = kHaveCuda && kind == nb::device::cuda::value && number == 0;
  if (!gpu && kind != nb::device::cpu::value && kind != nb::device::cuda_host::value) {
    wrong("an array on the CPU", kHaveCuda ? " or on GPU 0" : " (built without CUDA: make CUDA=1)",
          ", got DLPack's device (", kind, ", ", number, ")");
  }
  const Shape shape(std::span<const std::int64_t>(found.shape_ptr(), found.ndim()));
  void* const data = const_cast<void*>(found.data());
  const Tensor tensor = Tensor::lent(data, shape, kTypes[type], gpu ? Device::cuda : Device::cpu,
                                     shared(std::move(found)));
  return gpu && reinterpret_cast<std::uintptr_t>(data) % kGpuAlignment ? tensor.clone() : tensor;
}

Tensors tensors_of(nb::handle dict) {
  Tensors tensors;
  for (const auto [name, array] : nb::cast<nb::dict>(dict)) {
    const nb::str key(name);
    tensors[key.c_str()] = tensor_of(array, key.c_str());
  }
  return tensors;
}

nb::object numpy_of(const Tensor& t) {
  return lend<nb::numpy>(t.defined() ? t.to(Device::cpu) : t);
}
nb::object arrays_of(const Tensors& tensors) {
  nb::dict arrays;
  for (const auto& [name, tensor] : tensors) arrays[name.c_str()] = lend<nb::array_api>(tensor);
  return arrays;
}

}  // namespace skytape::python

NB_MODULE(_engine, m) {
  using namespace skytape;
  nanobind::set_leak_warnings(false);  // of what a script still holds at its end
  // The last one that fits an error translates it.
  const nanobind::exception<Error> error(m, "Error", PyExc_RuntimeError);
  const auto also = [&](PyObject* kind) {
    return nanobind::make_tuple(error, nanobind::handle(kind));
  };
  nanobind::exception<UsageError>(m, "UsageError", also(PyExc_ValueError).ptr());
  nanobind::exception<DataError>(m, "DataError", error.ptr());
  nanobind::exception<NonFiniteError>(m, "NonFiniteError", also(PyExc_ArithmeticError).ptr());
  m.attr("has_cuda") = kHaveCuda;
  m.def("set_threads", &train::set_threads);
  python::add_methods(m);
  python::add_runs(m);
  python::add_tape(m);
}
