#include "attention/registry.hpp"

#include <vector>

#include "tensor/core/suggest.hpp"

namespace skytape::attention {

#define VARIANT(name) Spec name##_spec();
#include "attention/methods.def"
#undef VARIANT

std::span<const Spec> registry() {
  static const std::vector<Spec> specs = {
#define VARIANT(name) name##_spec(),
#include "attention/methods.def"
#undef VARIANT
  };
  return specs;
}

const Spec& find(const std::string& name) {
  std::vector<std::string> names;
  for (const Spec& spec : registry()) {
    if (spec.name == name) return spec;
    names.push_back(spec.name);
  }
  throw UsageError(unknown_name("attention method", name, names));
}

}  // namespace skytape::attention
