#include "attention/registry.hpp"

#include <string>
#include <string_view>
#include <vector>

#include "tensor/core/suggest.hpp"

namespace skytape::attention {

#define METHOD(name) Spec name##_spec();
#include "attention/methods.def"
#undef METHOD

std::span<const Spec> registry() {
  static const std::vector<Spec> specs = {
#define METHOD(name) name##_spec(),
#include "attention/methods.def"
#undef METHOD
  };
  return specs;
}

const Spec& find(std::string_view name) {
  std::vector<std::string> names;
  for (const Spec& spec : registry()) {
    if (spec.name == name) return spec;
    names.push_back(spec.name);
  }
  throw UsageError(unknown_name("attention method", name, names));
}

}  // namespace skytape::attention
