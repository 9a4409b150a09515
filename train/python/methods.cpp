// The attention methods: each call makes the method anew around the caller's arrays, so calls share
// nothing and may come from any number of threads.
//
// Letters: B batch, H heads, N tokens, D head width, E width of the layer's input.
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "attention/registry.hpp"
#include "autograd/tape.hpp"
#include "train/python/arrays.hpp"
#include "train/python/module.hpp"

namespace skytape::python {
namespace {

using attention::OptionValues;
using Named = std::vector<std::pair<std::string, Tensor>>;

Named tensors_of(const nb::dict& arrays) {
  Named tensors;
  for (const auto [name, array] : arrays) {
    const auto text = nb::cast<std::string>(name);
    tensors.emplace_back(text, tensor_of(array, text.c_str()));
  }
  return tensors;
}
nb::dict arrays_of(const Named& tensors) {
  nb::dict arrays;
  for (const auto& [name, tensor] : tensors) arrays[name.c_str()] = array_of(tensor);
  return arrays;
}

/// Everything runs on one stream of the GPU, so one call at a time.
std::unique_lock<std::mutex> turn_on(Device device) {
  static std::mutex gpu;
  return device == Device::cpu ? std::unique_lock<std::mutex>() : std::unique_lock(gpu);
}

/// A method at given sizes, its parameters with values: the caller's, or fresh ones from a seed.
struct Layer {
  ParameterStore store;
  std::unique_ptr<attention::Method> method;

  Layer(const attention::Spec& spec, const OptionValues& options,
        const attention::LayerContext& sizes) {
    attention::LayerContext context = sizes;
    context.store = &store;
    method = spec.make(context, options);
  }

  /// Lets every parameter be the array of its name.
  void take(const Named& values, DType dtype, Device device) {
    for (Parameter& p : store.parameters()) {
      for (const auto& [name, value] : values) {
        if (name == p.name) p.value = value;
      }
      if (!p.value.defined()) throw UsageError(join("parameters: '", p.name, "' is missing"));
      if (p.value.shape() != p.shape || p.value.dtype() != dtype || p.value.device() != device) {
        throw UsageError(join("parameters: '", p.name, "' must be ", name(dtype), p.shape, "@",
                              name(device), ", got ", p.value));
      }
      if (p.trainable || p.decay > 0) p.grad = zeros_like(p.value);
    }
  }

  [[nodiscard]] Named values() const {
    Named named;
    for (const Parameter& p : store.parameters()) named.emplace_back(p.name, p.value);
    return named;
  }
};

/// What a call of a method leaves, and its gradients, once.
class Attended {
 public:
  /// Calls the method.
  Attended(std::unique_ptr<Layer> layer, attention::Inputs in, attention::Call call,
           bool differentiable)
      : layer_(std::move(layer)),
        in_(std::move(in)),
        call_(std::move(call)),
        tape_(differentiable ? Tape::Mode::train : Tape::Mode::eval) {
    const auto leaf = [&](const char* name, const Tensor& value) {
      if (!value.defined()) return Var();
      leaves_.emplace_back(name, tape_.input(value));
      return leaves_.back().second;
    };
    const attention::InputVars vars{leaf("q", in_.q), leaf("k", in_.k), leaf("v", in_.v),
                                    leaf("x", in_.x)};
    out_ = attention::apply(*layer_->method, vars, in_.mask, call_);
    call_.injected = nullptr;  // the caller's, for this call
    synchronize(out_.value().device());
  }

  /// Gradients of inputs and parameters by name, zeros where nothing depends on one.
  /// `move_averages`: running averages among the parameters move, as after a training step.
  [[nodiscard]] Named backward(const Tensor& dout, bool move_averages) {
    tape_.backward(out_, dout);
    Named gradients;
    for (const auto& [name, leaf] : leaves_) {
      const Tensor gradient = tape_.grad(leaf);
      gradients.emplace_back(name, gradient.defined() ? gradient : zeros_like(leaf.value()));
    }
    for (const Parameter& p : layer_->store.parameters()) {
      if (p.trainable) gradients.emplace_back(p.name, p.grad);
    }
    if (move_averages) layer_->store.update_averages();
    synchronize(dout.device());
    return gradients;
  }

  [[nodiscard]] const Tensor& out() const { return out_.value(); }
  [[nodiscard]] Named parameters() const { return layer_->values(); }
  /// What the method drew: a function of inputs and seed, so it is drawn again.
  [[nodiscard]] Named draws() const { return layer_->method->draw(in_, call_).all(); }

 private:
  std::unique_ptr<Layer> layer_;  // outlives the tape, which points to it
  attention::Inputs in_;
  attention::Call call_;
  Tape tape_;
  std::vector<std::pair<std::string, Var>> leaves_;
  Var out_;
};

std::unique_ptr<Attended> attend(const std::string& name, nb::handle q, nb::handle k, nb::handle v,
                                 nb::handle mask, nb::handle x, const OptionValues& options,
                                 std::uint64_t seed, bool training, std::int64_t length,
                                 const nb::handle parameters, const nb::dict& injected,
                                 bool differentiable) {
  const attention::Spec& spec = attention::find(name);
  attention::Inputs in{optional_tensor_of(q, "q"), optional_tensor_of(k, "k"), tensor_of(v, "v"),
                       optional_tensor_of(mask, "mask")};
  in.x = optional_tensor_of(x, "x");
  const auto demand = [&](const char* argument, bool there, bool asked, const char* why) {
    if (there == asked) return;
    throw UsageError(join(name, ": ", argument, asked ? " is missing: " : " must be None: ", why));
  };
  demand("k", in.k.defined(), !spec.shared_qk,
         spec.shared_qk ? "queries serve as keys" : "expected an array [B, H, N, D]");
  demand("x", in.x.defined(), spec.reads_x,
         spec.reads_x ? "the method reads the layer's input [B, N, E]"
                      : "the method does not read the layer's input");
  if (in.v.rank() != 4) throw UsageError(join(name, ": v must be [B, H, N, D], got ", in.v));
  const DType dtype = in.v.dtype();
  const Device device = in.v.device();
  const std::int64_t n = in.v.size(2), width = in.v.size(1) * in.v.size(3);
  if (length == 0) length = n;
  if (length < n) throw UsageError(join(name, ": length is ", length, ", but v has N = ", n));
  attention::Draws draws;
  for (const auto& [draw, value] : tensors_of(injected)) draws.set(draw, value);
  const bool fresh = parameters.is_none();
  const Named given = fresh ? Named() : tensors_of(nb::cast<nb::dict>(parameters));

  const nb::gil_scoped_release free;
  const auto turn = turn_on(device);
  if (!in.mask.defined()) in.mask = Tensor::full({in.v.size(0), n}, 1, dtype, device);
  const attention::LayerContext sizes{
      0, in.v.size(1), in.v.size(3), length, "", nullptr, in.x.defined() ? in.x.size(-1) : width};
  auto layer = std::make_unique<Layer>(spec, options, sizes);
  if (fresh) {
    layer->store.pack(dtype, device, seed);
  } else {
    layer->take(given, dtype, device);
  }
  attention::Call call;
  call.training = training;
  call.random.key = seed;
  if (!draws.all().empty()) call.injected = &draws;
  return std::make_unique<Attended>(std::move(layer), std::move(in), std::move(call),
                                    differentiable);
}

/// The rows of the registry: what `skytape info attention` prints.
nb::list methods() {
  nb::list rows;
  for (const attention::Spec& spec : attention::registry()) {
    nb::dict row;
    row["name"] = spec.name;
    row["paper"] = spec.paper;
    row["idea"] = spec.idea;
    row["cost"] = spec.cost;
    row["memory"] = spec.memory;
    row["approximates"] = spec.approximates;
    row["random"] = spec.random;
    row["shared_qk"] = spec.shared_qk;
    row["reads_x"] = spec.reads_x;
    nb::list samples;
    for (const OptionValues& sample : spec.samples) samples.append(nb::cast(sample));
    row["samples"] = samples;
    nb::list options;
    for (const attention::OptionInfo& option : spec.options) {
      nb::dict entry;
      entry["key"] = option.key;
      entry["default"] = option.default_text;
      entry["range"] = option.range;
      entry["meaning"] = option.meaning;
      options.append(entry);
    }
    row["options"] = options;
    rows.append(row);
  }
  return rows;
}

}  // namespace

void add_methods(nb::module_& m) {
  nb::class_<Attended>(m, "Attended")
      .def_prop_ro("out", [](const Attended& self) { return array_of(self.out()); })
      .def_prop_ro("draws", [](const Attended& self) { return arrays_of(self.draws()); })
      .def_prop_ro("parameters", [](const Attended& self) { return arrays_of(self.parameters()); })
      .def(
          "backward",
          [](Attended& self, nb::handle dout, bool move_averages) {
            const Tensor cotangent = tensor_of(dout, "dout");
            Named gradients;
            {
              const nb::gil_scoped_release free;
              const auto turn = turn_on(cotangent.device());
              gradients = self.backward(cotangent, move_averages);
            }
            return arrays_of(gradients);
          },
          nb::arg("dout"), nb::arg("move_averages") = false);
  const auto optional = [](const char* name) { return nb::arg(name).none(); };
  m.def("attend", &attend, nb::arg("name"), optional("q"), optional("k"), nb::arg("v"),
        optional("mask"), optional("x"), nb::arg("options"), nb::arg("seed"), nb::arg("training"),
        nb::arg("length"), optional("parameters"), nb::arg("draws"), nb::arg("differentiable"));
  m.def("methods", &methods);
  m.def(
      "initial",
      [](const std::string& name, const OptionValues& options, std::int64_t heads,
         std::int64_t head_width, std::int64_t length, std::int64_t width, std::uint64_t seed) {
        Layer layer(attention::find(name), options,
                    {0, heads, head_width, length, "", nullptr, width});
        layer.store.pack(DType::f64, Device::cpu, seed);
        nb::dict values;
        for (const Parameter& p : layer.store.parameters()) {
          values[p.name.c_str()] = nb::make_tuple(array_of(p.value), p.trainable);
        }
        return values;
      },
      "The parameters of a method at these sizes: their values, f64, and whether each is trained.");
}

}  // namespace skytape::python
