// The table of all attention methods. Command line, README, benchmarks and tests walk it.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "attention/method.hpp"

namespace skytape::attention {

/// The row of a method with settings: `spec` with the options of `defaults`, what leaves one of
/// them without effect, and `make`, which gets them as the user set them and returns the method.
template <class Config, class Make>
[[nodiscard]] Spec register_method(Spec spec, Config defaults, const Make& make) {
  spec.options = describe(defaults.options());
  spec.make = [name = spec.name, defaults, make](const LayerContext& context,
                                                 const OptionValues& values) {
    Config config = defaults;
    assign(name, config.options(), values);
    return make(context, config);
  };
  spec.idle_because = [name = spec.name, defaults](std::string_view key,
                                                   const OptionValues& values) {
    Config config = defaults;
    assign(name, config.options(), values);
    return idle_because(name, config.options(), key);
  };
  return spec;
}

/// The row of the method T, a class that is constructed from a LayerContext and its Config.
template <class T, class Config>
[[nodiscard]] Spec register_method(Spec spec, const Config& defaults = {}) {
  return register_method(std::move(spec), defaults,
                         [](const LayerContext& context, const Config& config) {
                           return std::make_unique<T>(context, config);
                         });
}

/// All methods in the order of attention/methods.def.
[[nodiscard]] std::span<const Spec> registry();

/// The method of that name; UsageError with the known names and the nearest one otherwise.
[[nodiscard]] const Spec& find(std::string_view name);

/// UsageError for an option that another one leaves without effect: nobody chooses that knowingly.
void refuse_idle(const Spec& spec, const OptionValues& values);

}  // namespace skytape::attention
