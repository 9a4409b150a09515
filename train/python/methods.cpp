// The attention methods: each call makes the method anew around the caller's arrays, so calls share
// nothing and may come from any number of threads.
//
// Notation: B batch, H heads, N tokens, D head width, E width of the layer's input.
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "attention/registry.hpp"
#include "attention/strict_draws.hpp"
#include "autograd/tape.hpp"
#include "tensor/core/error.hpp"
#include "train/python/module.hpp"

namespace skytape::python {
namespace {

using namespace nb::literals;
using attention::OptionValues;
using attention::Spec;

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
                     "reads_padding"_a = s.reads_padding, "per_example"_a = s.per_example,
                     "samples"_a = s.samples, "options"_a = options));
  }
  return rows;
}

/// The method, with options that a caller gave.
std::unique_ptr<attention::Method> make(const Spec& spec, const attention::LayerContext& context,
                                        const OptionValues& options) {
  attention::refuse_idle(spec, options);
  return spec.make(context, options);
}

/// A method's arrays: name, value from a seed (f64), and whether it is "trained", an "average" or
/// "constant"; and whether its examples enter each other's results in training.
std::pair<nb::list, bool> initial(const std::string& name, const OptionValues& options,
                                  std::int64_t heads, std::int64_t head_width, std::int64_t length,
                                  std::int64_t width, std::uint64_t seed) {
  ParameterStore store;
  const auto method =
      make(attention::find(name), {0, heads, head_width, length, "", &store, width}, options);
  store.pack(DType::f64, Device::cpu, seed);
  nb::list arrays;
  for (const Parameter& p : store.parameters()) {
    const char* kind = p.trainable ? "trained" : p.decay > 0 ? "average" : "constant";
    arrays.append(nb::make_tuple(p.name, numpy_of(p.value), kind));
  }
  return {arrays, method->needs_whole_batch()};
}

/// True where the two share bytes.
bool overlap(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || a.bytes() == 0 || b.bytes() == 0) return false;
  const auto *x = static_cast<const char*>(a.raw()), *y = static_cast<const char*>(b.raw());
  return x < y + b.bytes() && y < x + a.bytes();
}

/// Lets no array share memory with another one, nor with `others`: who gets them may write into
/// them.
void part(Tensors& arrays, std::vector<Tensor> others) {
  for (auto& [name, array] : arrays) {
    const auto shares = [&](const Tensor& other) { return overlap(array, other); };
    if (std::any_of(others.begin(), others.end(), shares)) array = array.clone();
    others.push_back(array);
  }
}

/// Checks the arguments of a call in the words of whoever made it.
void check_arguments(const std::string& name, const attention::Inputs& in) {
  const Tensor& v = in.v;
  const auto wrong = [&](const char* key, const auto&... expected) {
    throw UsageError(join(name, ": ", key, ": expected ", expected...));
  };
  if (v.rank() != 4 || v.dtype() == DType::i32) {
    wrong("v", "float32 or float64 [B, H, N, D], got ", v);
  }
  if (v.size(1) == 0 || v.size(3) == 0) wrong("v", "heads and a width, [B, H, N, D], got ", v);
  const Shape rows = {v.size(0), v.size(2)};
  const auto fits = [&](const Tensor& x) { return x.rank() == 3 && x.shape().first(2) == rows; };
  for (const auto& [key, tensor] : {std::pair("q", &in.q), std::pair("k", &in.k)}) {
    if (tensor->defined() && tensor->shape() != v.shape()) {
      wrong(key, "v's shape ", v.shape(), ", got ", *tensor);
    }
  }
  if (in.mask.defined() && in.mask.shape() != rows) {
    wrong("mask", "[B, N] = ", rows, ", got ", in.mask.shape());
  }
  if (in.x.defined() && !fits(in.x)) {
    wrong("x", "[B, N, E] = [", rows[0], ", ", rows[1], ", E], got ", in.x);
  }
  for (const auto& [key, tensor] :
       {std::pair("q", &in.q), std::pair("k", &in.k), std::pair("x", &in.x)}) {
    if (tensor->defined() && (tensor->dtype() != v.dtype() || tensor->device() != v.device())) {
      throw UsageError(join(name, ": ", key, " and v differ in dtype or device: ", key, " ",
                            *tensor, ", v ", v));
    }
  }
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
    const bool masked = arrays.contains("mask");
    in_ = {take("q", true), take("k", !spec.shared_qk), v, take("mask", masked),
           false,           take("x", spec.reads_x)};
    check_arguments(name, in_);
    const std::int64_t n = v.size(2);
    if (length == 0) length = std::max<std::int64_t>(n, 1);
    if (length < n) throw UsageError(join(name, ": length is ", length, ", but v has N = ", n));
    const auto turn = turn_on(v.device());
    if (!masked) in_.mask = Tensor::full({v.size(0), n}, 1, v.dtype(), v.device());
    const std::int64_t width = in_.x.defined() ? in_.x.size(-1) : v.size(1) * v.size(3);
    method_ = make(spec, {0, v.size(1), v.size(3), length, "", &store_, width}, options);
    if (fresh) {
      store_.pack(v.dtype(), v.device(), seed);
    } else {
      give(std::move(arrays), v.dtype(), v.device());
    }
    call_.training = training;
    call_.alone = !training;  // an answer does not hang on its place in the batch or its neighbours
    call_.random.key = seed;
    for (const auto& [draw, value] : draws) injected_.set(draw, value);
    const attention::StrictDraws strict;
    if (!draws.empty()) call_.injected = &injected_;
    for (const Tensor* t : {&in_.q, &in_.k, &in_.v, &in_.x}) {
      if (t->defined()) given_.push_back(*t);
    }
    const auto leaf = [&](const char* key, const Tensor& value) {
      return value.defined() ? leaves_[key] = tape_.input(value) : Var();
    };
    out_ = attention::apply(*method_,
                            {leaf("q", in_.q), leaf("k", in_.k), leaf("v", v), leaf("x", in_.x)},
                            in_.mask, call_);
    out_shape_ = out_.shape();
    synchronize(v.device());
  }

  /// Gradients of inputs and parameters by name, zeros where nothing depends on one.
  [[nodiscard]] Tensors backward(const Tensors& cotangent) {
    const Tensor& dout = cotangent.at("dout");
    const DType dtype = in_.v.dtype();
    const Device device = in_.v.device();
    if (!dout.defined() || dout.shape() != out_shape_ || dout.dtype() != dtype ||
        dout.device() != device) {
      throw UsageError(join("dout: expected what the output is, ", name(dtype), out_shape_, "@",
                            name(device), ", got ", dout));
    }
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
    std::vector<Tensor> others = given_;
    others.push_back(dout);
    others.push_back(out_.value());
    part(gradients, std::move(others));
    synchronize(dout.device());
    return gradients;
  }

  [[nodiscard]] Tensors out() const {
    Tensors arrays = {{"out", out_.value()}};
    part(arrays, given_);
    return arrays;
  }
  /// The running averages as this call, a training step, moves them; of the caller's none changes.
  [[nodiscard]] Tensors averages() {
    Tensors moved;
    if (!call_.training || method_->averages().empty()) return moved;
    const auto turn = turn_on(in_.v.device());
    if (in_.v.numel() == 0) {
      for (const Parameter* p : method_->averages()) moved[p->name] = p->value.clone();
      return moved;
    }
    // The sums do not hang on the cotangent, which is zero here.
    const attention::Gradients g =
        method_->forward(in_, method_->draw(in_, call_), call_).backward(zeros_like(in_.v));
    ParameterStore store;
    std::size_t i = 0;
    for (const Parameter* p : method_->averages()) {
      (void)store.add_average(p->name, p->shape, p->initialise, p->decay);
    }
    store.pack(in_.v.dtype(), in_.v.device(), 0);
    for (Parameter& average : store.parameters()) {
      average.value.copy_from(method_->averages()[i]->value);
      average.grad.copy_from(g.sums.at(i++));
      average.has_gradient = true;
    }
    store.update_averages();
    for (const Parameter& average : store.parameters()) moved[average.name] = average.value;
    synchronize(in_.v.device());
    return moved;
  }
  /// An array that lives as long as this call: who holds it keeps what backward reads.
  [[nodiscard]] nb::object token(nb::handle self) {
    return nb::cast(nb::ndarray<nb::array_api, std::int32_t>(&token_, {1}, self, {}));
  }
  /// Returns the method's random arrays, those of the caller among them: a function of inputs and
  /// seed, so they are drawn again.
  [[nodiscard]] Tensors draws() const {
    if (in_.v.numel() == 0) return {};
    const auto turn = turn_on(in_.v.device());
    const attention::Draws drawn = method_->draw(in_, call_);
    synchronize(in_.v.device());
    Tensors arrays = {drawn.all().begin(), drawn.all().end()};
    std::vector<Tensor> others = given_;
    for (const auto& [name, value] : injected_.all()) {
      arrays[name] = value;
      others.push_back(value);
    }
    part(arrays, std::move(others));
    return arrays;
  }

 private:
  /// Lets every parameter be the array of its name.
  void give(Tensors values, DType dtype, Device device) {
    for (Parameter& p : store_.parameters()) {
      const auto node = values.extract(p.name);
      if (!node) throw UsageError(join("parameters: '", p.name, "' is missing"));
      p.value = node.mapped();
      if (p.value.shape() != p.shape || p.value.dtype() != dtype || p.value.device() != device) {
        throw UsageError(join("parameters: '", p.name, "': expected ", name(dtype), p.shape, "@",
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
  attention::Draws injected_;  // the caller's
  attention::Call call_;
  Tape tape_;
  std::map<std::string, Var> leaves_;
  Var out_;
  Shape out_shape_;
  std::vector<Tensor> given_;  // the caller's arrays
  std::int32_t token_ = 0;
};

}  // namespace

void add_methods(nb::module_& m) {
  nb::class_<Call>(m, "Call", nb::is_weak_referenceable())
      .def(nb::init<const std::string&, Tensors, const OptionValues&, std::uint64_t, bool,
                    std::int64_t, bool, const Tensors&, bool>(),
           Free())
      .def("out", &Call::out)
      .def("averages", &Call::averages, Free())
      .def("token", [](nb::handle self) { return nb::cast<Call&>(self).token(self); })
      .def("draws", &Call::draws, Free())
      .def("backward", &Call::backward, Free());
  m.def("initial", &initial);
  m.def("methods", &methods, nb::sig("def methods() -> list[dict[str, Any]]"),
        "A row for each method: its name, paper, idea, cost in time and memory, options with their "
        "defaults and ranges, and what it reads: x, padding, one array for q and k.");
}

}  // namespace skytape::python
