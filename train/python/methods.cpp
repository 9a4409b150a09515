// The attention methods: each call makes the method anew around the caller's arrays, so calls share
// nothing and may come from any number of threads.
//
// Letters: B batch, H heads, N tokens, D head width, E width of the layer's input.
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <mutex>

#include "attention/registry.hpp"
#include "autograd/tape.hpp"
#include "tensor/core/error.hpp"
#include "train/python/module.hpp"

namespace skytape::python {
namespace {

using namespace nb::literals;
using attention::OptionValues;
using attention::Spec;

/// Everything runs on the same streams of the GPU, so one call at a time.
std::unique_lock<std::mutex> turn_on(Device device) {
  static std::mutex gpu;
  return device == Device::cpu ? std::unique_lock<std::mutex>() : std::unique_lock(gpu);
}

/// The rows of the registry: what `skytape info attention` prints.
nb::list methods() {
  const nb::handle dict(reinterpret_cast<PyObject*>(&PyDict_Type));
  nb::list rows;
  for (const Spec& s : attention::registry()) {
    nb::list options;
    for (const attention::OptionInfo& o : s.options) {
      options.append(dict("key"_a = o.key, "default"_a = o.default_text, "range"_a = o.range,
                          "meaning"_a = o.meaning));
    }
    rows.append(dict("name"_a = s.name, "paper"_a = s.paper, "idea"_a = s.idea, "cost"_a = s.cost,
                     "memory"_a = s.memory, "approximates"_a = s.approximates,
                     "random"_a = s.random, "shared_qk"_a = s.shared_qk, "reads_x"_a = s.reads_x,
                     "samples"_a = s.samples, "options"_a = options));
  }
  return rows;
}

/// A method's parameters by name with values from a seed, f64, and whether each is trained.
std::map<std::string, std::pair<Tensor, bool>> initial(const std::string& name,
                                                       const OptionValues& options,
                                                       std::int64_t heads, std::int64_t head_width,
                                                       std::int64_t length, std::int64_t width,
                                                       std::uint64_t seed) {
  ParameterStore store;
  (void)attention::find(name).make({0, heads, head_width, length, "", &store, width}, options);
  store.pack(DType::f64, Device::cpu, seed);
  std::map<std::string, std::pair<Tensor, bool>> values;
  for (const Parameter& p : store.parameters()) values[p.name] = {p.value, p.trainable};
  return values;
}

/// A call of a method, and its gradients, once.
class Call {
 public:
  /// `arrays`: q, k, v [B, H, N, D], x [B, N, E], mask [B, N], of which some may be absent, and the
  /// method's parameters, unless they are `fresh` from the seed. `length`: the nominal N; 0: v's.
  Call(const std::string& name, Tensors arrays, const OptionValues& options, std::uint64_t seed,
       bool training, std::int64_t length, bool fresh, const Tensors& draws, bool differentiable)
      : tape_(differentiable ? Tape::Mode::train : Tape::Mode::eval) {
    const Spec& spec = attention::find(name);
    const auto take = [&](const char* key, bool asked) {
      const auto node = arrays.extract(key);
      const Tensor given = node ? node.mapped() : Tensor();
      if (given.defined() == asked) return given;
      throw UsageError(
          join(name, ": ", key, asked ? " is missing" : " must be None: the method reads none"));
    };
    const Tensor v = take("v", true);
    if (v.rank() != 4 || v.dtype() == DType::i32) {
      throw UsageError(join(name, ": v must be f32 or f64 [B, H, N, D], got ", v));
    }
    const std::int64_t n = v.size(2);
    if (length == 0) length = n;
    if (length < n) throw UsageError(join(name, ": length is ", length, ", but v has N = ", n));
    const auto turn = turn_on(v.device());
    const bool masked = arrays.contains("mask");
    in_ = {take("q", true), take("k", !spec.shared_qk), v, take("mask", masked),
           false,           take("x", spec.reads_x)};
    if (!masked) in_.mask = Tensor::full({v.size(0), n}, 1, v.dtype(), v.device());
    const std::int64_t width = in_.x.defined() ? in_.x.size(-1) : v.size(1) * v.size(3);
    method_ = spec.make({0, v.size(1), v.size(3), length, "", &store_, width}, options);
    if (fresh) {
      store_.pack(v.dtype(), v.device(), seed);
    } else {
      give(std::move(arrays), v.dtype(), v.device());
    }
    call_.training = training;
    call_.random.key = seed;
    attention::Draws injected;
    for (const auto& [draw, value] : draws) injected.set(draw, value);
    if (!draws.empty()) call_.injected = &injected;
    const auto leaf = [&](const char* key, const Tensor& value) {
      return value.defined() ? leaves_[key] = tape_.input(value) : Var();
    };
    out_ = attention::apply(*method_,
                            {leaf("q", in_.q), leaf("k", in_.k), leaf("v", v), leaf("x", in_.x)},
                            in_.mask, call_);
    call_.injected = nullptr;  // the caller's, for this call
    synchronize(v.device());
  }

  /// Gradients of inputs and parameters by name, zeros where nothing depends on one.
  /// `move_averages`: running averages among the parameters move, as after a training step.
  [[nodiscard]] Tensors backward(const Tensors& cotangent, bool move_averages) {
    const Tensor& dout = cotangent.at("dout");
    const auto turn = turn_on(dout.device());
    tape_.backward(out_, dout);
    Tensors gradients;
    for (const auto& [name, leaf] : leaves_) {
      const Tensor gradient = tape_.grad(leaf);
      gradients[name] = gradient.defined() ? gradient : zeros_like(leaf.value());
    }
    for (const Parameter& p : store_.parameters()) {
      if (p.trainable) gradients[p.name] = p.grad;
    }
    if (move_averages) store_.update_averages();
    synchronize(dout.device());
    return gradients;
  }

  [[nodiscard]] Tensors out() const { return {{"out", out_.value()}}; }
  /// What the method drew: a function of inputs and seed, so it is drawn again.
  [[nodiscard]] Tensors draws() const {
    const auto turn = turn_on(in_.v.device());
    const attention::Draws drawn = method_->draw(in_, call_);
    synchronize(in_.v.device());
    return {drawn.all().begin(), drawn.all().end()};
  }

 private:
  /// Lets every parameter be the array of its name.
  void give(Tensors values, DType dtype, Device device) {
    for (Parameter& p : store_.parameters()) {
      const auto node = values.extract(p.name);
      if (!node) throw UsageError(join("parameters: '", p.name, "' is missing"));
      p.value = node.mapped();
      if (p.value.shape() != p.shape || p.value.dtype() != dtype || p.value.device() != device) {
        throw UsageError(join("parameters: '", p.name, "' must be ", name(dtype), p.shape, "@",
                              name(device), ", got ", p.value));
      }
      if (p.trainable || p.decay > 0) p.grad = zeros_like(p.value);
    }
    if (values.empty()) return;
    throw UsageError(join("parameters: the method has no '", values.begin()->first, "'"));
  }

  ParameterStore store_;  // with the method, outlives the tape, which points to them
  std::unique_ptr<attention::Method> method_;
  attention::Inputs in_;
  attention::Call call_;
  Tape tape_;
  std::map<std::string, Var> leaves_;
  Var out_;
};

}  // namespace

void add_methods(nb::module_& m) {
  nb::class_<Call>(m, "Call")
      .def(nb::init<const std::string&, Tensors, const OptionValues&, std::uint64_t, bool,
                    std::int64_t, bool, const Tensors&, bool>(),
           Free())
      .def("out", &Call::out)
      .def("draws", &Call::draws, Free())
      .def("backward", &Call::backward, Free());
  m.def("initial", &initial);
  m.def("methods", &methods);
}

}  // namespace skytape::python
