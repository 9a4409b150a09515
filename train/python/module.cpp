// The Python module `skytape._engine`: it binds the library and computes nothing of its own. What
// users call stands in the package around it, skytape/__init__.py.
#include "train/python/module.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <regex>
#include <span>
#include <string>
#include <thread>

#include "tensor/core/error.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/core/storage_plan.hpp"
#include "train/process/threads.hpp"

namespace skytape::python {
namespace {

constexpr std::uintptr_t kGpuAlignment = 16;  // bytes, of loads of four floats

using Array = nb::ndarray<nb::ro, nb::c_contig>;
constexpr DType kTypes[] = {DType::f32, DType::f64, DType::i32};
constexpr nb::dlpack::dtype kTheirs[] = {nb::dtype<float>(), nb::dtype<double>(),
                                         nb::dtype<std::int32_t>()};

/// Returns the object that gives DLPack's array. A library whose array is on a GPU lets our stream
/// wait for its own.
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

/// Whether DLPack would give other numbers than the array's: it knows neither NumPy's masks nor that
/// PyTorch negates some views when they are read.
bool hides_from_dlpack(nb::handle array) {
  return nb::hasattr(array, "filled") ||
         (nb::hasattr(array, "is_neg") && nb::cast<bool>(array.attr("is_neg")()));
}

template <class... Kind> nb::object lend(const Tensor& t) {
  if (!t.defined()) return nb::none();
  const std::vector<std::size_t> sizes(t.shape().begin(), t.shape().end());
  const auto type = std::find(std::begin(kTypes), std::end(kTypes), t.dtype()) - kTypes;
  const nb::capsule owner(new Tensor(t),
                          [](void* kept) noexcept { delete static_cast<Tensor*>(kept); });
  const int device = t.device() == Device::cpu ? nb::device::cpu::value : nb::device::cuda::value;
  return nb::cast(nb::ndarray<Kind...>(t.raw(), sizes.size(), sizes.data(), owner, nullptr,
                                       kTheirs[type], device, 0));
}

// ---- errors ------------------------------------------------------------------------------------

/// Returns an error's text in Python's words: f32[2, 3]@cpu is float32 [2, 3] there.
std::string in_python(std::string text) {
  static const std::pair<std::regex, const char*> words[] = {
      {std::regex(R"(\b(f32|f64|i32)(\[[0-9, ]*\])@cpu)"), "$1 $2"},
      {std::regex(R"(\b(f32|f64|i32)(\[[0-9, ]*\])@cuda)"), "$1 $2 on the GPU"},
      {std::regex(R"(\bf(32|64)\b)"), "float$1"},
      {std::regex(R"(\bi32\b)"), "int32"}};
  for (const auto& [ours, theirs] : words) text = std::regex_replace(text, ours, theirs);
  return text;
}

/// Makes the exception that stands for the error T in Python. The last one that fits an error
/// translates it.
template <class T> nb::object exception(nb::module_& m, const char* name, nb::handle bases) {
  const nb::object kind = nb::exception<T>(m, name, bases);
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void* payload) {
        try {
          std::rethrow_exception(thrown);
        } catch (const T& error) {
          PyErr_SetString(static_cast<PyObject*>(payload), in_python(error.what()).c_str());
        }
      },
      kind.ptr());
  return kind;
}

// ---- threads -----------------------------------------------------------------------------------

/// Calls that compute, and whether the interpreter has begun to end.
struct Calls {
  std::atomic<int> computing = 0;  // of threads that are no helpers
  std::atomic<int> helping = 0;    // of helpers
  std::atomic<bool> ending = false;
  bool forked = false;  // this process is a child: the threads that helped its parent are not here
  std::thread::id last;
};
Calls calls;
/// True for a thread that computes what the main thread waits for, until Ctrl-C ends the wait. If
/// the interpreter ends while a helper computes, nobody wants its result.
thread_local bool helper = false;

void become_helper(int threads) {
  helper = true;
  omp_set_num_threads(threads);
}

[[noreturn]] void sleep_for_good() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

/// Ends the process without destroying what a helper still computes with.
void leave(int status, void*) {
  std::fflush(nullptr);
  std::_Exit(status);
}

/// Who has which tape, and how often.
struct Turns {
  std::mutex mutex;
  std::map<const Tape*, std::pair<std::thread::id, int>> of;
};
Turns turns;

/// Registered to run when the interpreter ends: lets calls of other threads come to their end
/// first, but for those of helpers.
void wait_for_calls() {
  calls.last = std::this_thread::get_id();
  calls.ending = true;
  while (calls.computing > 0) {
    if (PyErr_CheckSignals() != 0) std::_Exit(130);  // Ctrl-C: who waits has had enough
    const nb::gil_scoped_release free;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (calls.helping > 0) on_exit(leave, nullptr);
}

/// OpenMP's threads do not follow a fork: what the child's thread starts, it computes alone.
void after_fork() {
  calls.computing = calls.helping = 0;
  calls.forked = true;
  turns.of.clear();
  omp_set_num_threads(1);
}

void set_threads(int threads) {
  if (calls.forked && threads != 1) {
    throw UsageError(join("set_threads: a process made by fork computes by one thread, got ",
                          threads, "; start it by multiprocessing's \"spawn\" to have more"));
  }
  try {
    train::set_threads(threads);
  } catch (const UsageError& error) {  // it speaks of the command line's --threads
    const std::string text = error.what();
    throw UsageError("set_threads" + text.substr(std::min(text.find(':'), text.size())));
  }
}

}  // namespace

WithoutGil::WithoutGil() {
  if (calls.ending && std::this_thread::get_id() != calls.last) {
    PyEval_SaveThread();  // for good: the process is about to end
    sleep_for_good();
  }
  ++(helper ? calls.helping : calls.computing);
  state_ = PyEval_SaveThread();
}

WithoutGil::~WithoutGil() {
  if (helper) {
    ++calls.computing;  // first, so that an interpreter that is not yet ending waits for us
    if (calls.ending) {
      --calls.computing;
      sleep_for_good();
    }
    --calls.helping;
  }
  PyEval_RestoreThread(state_);
  --calls.computing;
}

std::unique_lock<std::mutex> turn_on(Device device) {
  static std::mutex gpu;
  return device == Device::cpu ? std::unique_lock<std::mutex>() : std::unique_lock(gpu);
}

Turn::Turn(const Tape& tape) : tape_(&tape) {
  const std::lock_guard lock(turns.mutex);
  const auto mine = std::this_thread::get_id();
  auto& [whose, times] = turns.of.try_emplace(tape_, mine, 0).first->second;
  ENSURE(whose == mine, "Tape: another thread is using it; two threads need a tape each");
  ++times;
}

Turn::~Turn() {
  const std::lock_guard lock(turns.mutex);
  const auto found = turns.of.find(tape_);
  if (found != turns.of.end() && --found->second.second == 0) turns.of.erase(found);
}

// ---- arrays ------------------------------------------------------------------------------------

Tensor tensor_of(nb::handle array, const char* argument) {
  if (array.is_none()) return {};
  const auto wrong = [&](const auto&... expected) {
    throw UsageError(join(argument, ": expected ", expected...));
  };
  Array found;
  const auto type_of_found = [&found] {
    return std::find(std::begin(kTheirs), std::end(kTheirs), found.dtype()) - kTheirs;
  };
  if (hides_from_dlpack(array) || !nb::try_cast(source_of(array), found) ||
      type_of_found() == std::ssize(kTheirs)) {
    // A list, a number, another type, bytes in another order: NumPy's rules decide, in
    // skytape/arrays.py.
    const nb::object plain =
        nb::module_::import_("skytape.arrays").attr("for_engine")(array, argument);
    if (!nb::try_cast(plain, found)) {
      wrong("an array of NumPy, PyTorch, JAX or another library with DLPack, got ",
            nb::str(array.type()).c_str());
    }
  }
  if (found.ndim() > Shape::kMaxRank) {
    wrong("at most ", Shape::kMaxRank, " axes, got ", found.ndim());
  }
  const auto type = type_of_found();
  if (type == std::ssize(kTheirs)) {
    wrong("float32, float64 or int32, got ",
          nb::str(nb::getattr(array, "dtype", array.type())).c_str());
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
  if (!t.defined()) return nb::none();
  return lend<nb::numpy>(t.device() == Device::cpu ? t.clone() : t.to(Device::cpu));
}
nb::object view_of(const Tensor& t) {
  return lend<nb::numpy, nb::ro>(t.defined() ? t.to(Device::cpu) : t);
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
  const nanobind::object error = python::exception<Error>(m, "Error", PyExc_RuntimeError);
  const auto also = [&](PyObject* kind) {
    return nanobind::make_tuple(error, nanobind::handle(kind));
  };
  // Wrong values and wrong kinds are ValueError and TypeError in Python.
  python::exception<UsageError>(m, "UsageError",
                                nanobind::make_tuple(error, nanobind::handle(PyExc_ValueError),
                                                     nanobind::handle(PyExc_TypeError)));
  python::exception<DataError>(m, "DataError", error);
  python::exception<NonFiniteError>(m, "NonFiniteError", also(PyExc_ArithmeticError));
  m.attr("has_cuda") = kHaveCuda;
  pthread_atfork([] { python::turns.mutex.lock(); }, [] { python::turns.mutex.unlock(); },
                 [] {
                   python::turns.mutex.unlock();
                   python::after_fork();
                 });
  m.def("set_threads", &python::set_threads);
  m.def("threads", &train::thread_count);
  m.def("become_helper", &python::become_helper);
  nanobind::module_::import_("atexit").attr("register")(
      nanobind::cpp_function(&python::wait_for_calls));
  python::add_methods(m);
  python::add_runs(m);
  python::add_tape(m);
}
