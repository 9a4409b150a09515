#include "attention/registry.hpp"

#include <string>
#include <string_view>
#include <vector>

#include "tensor/core/suggest.hpp"

namespace skytape::attention {

#define METHOD(name) Spec name##_spec();
#include "attention/methods.def"
#undef METHOD

namespace {

/// Methods are found by the names of their specs, so that one copied from another file's would hide.
Spec named(const char* name, Spec spec) {
  ENSURE(spec.name == name, "methods.def: METHOD(", name, ") has a spec.name of '", spec.name, "'");
  return spec;
}

}  // namespace

std::span<const Spec> registry() {
  static const std::vector<Spec> specs = {
#define METHOD(name) named(#name, name##_spec()),
#include "attention/methods.def"
#undef METHOD
  };
  return specs;
}

const Spec& find(std::string_view name) {
  return find_named("attention method", name, registry(), &Spec::name);
}

void refuse_idle(const Spec& spec, const OptionValues& values) {
  for (const auto& [key, value] : values) {
    const std::string why = spec.idle_because(key, values);
    if (!why.empty()) throw UsageError(join(spec.name, ".", key, " has no effect: ", why));
  }
}

}  // namespace skytape::attention
