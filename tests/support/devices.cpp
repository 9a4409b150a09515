#include "tests/support/devices.hpp"

#include <iostream>
#include <string>

#include "tensor/gemm/gemm_bf16.hpp"

namespace skytape::test {
namespace {

struct Skips {
  std::string running;
  bool counted = false;  // the running case is in `cases`
  int cases = 0;
};

Skips& skips() {
  static Skips instance;
  return instance;
}

}  // namespace

void begin_case(const char* name) {
  skips().running = name;
  skips().counted = false;
}

int skipped_cuda_cases() { return skips().cases; }

bool cuda_or_skip() {
  static const bool available = cuda_available();
  if (!available && !skips().counted) {
    skips().counted = true;
    ++skips().cases;
    std::cout << "skipped on cuda: " << skips().running << '\n';
  }
  return available;
}

bool cpu_bf16_or_skip() {
  const char* const why_not = tensor::why_no_bf16_on_cpu();
  if (why_not != nullptr) std::cout << "skipped, " << why_not << ": " << skips().running << '\n';
  return why_not == nullptr;
}

}  // namespace skytape::test
