#include "train/process/version.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/core/suggest.hpp"
#include "train/process/streams.hpp"
#include "train/process/threads.hpp"

#ifndef SKYTAPE_VERSION
#define SKYTAPE_VERSION "unknown"
#endif
#ifndef SKYTAPE_REVISION
#define SKYTAPE_REVISION "unknown"
#endif

namespace skytape::train {
namespace {

#ifdef SKYTAPE_HAVE_DNNL
constexpr const char* kGemm = "oneDNN";
#else
constexpr const char* kGemm = "Eigen";
#endif

#ifdef SKYTAPE_CUDA_SIMULATED
constexpr bool kSimulated = true;
#else
constexpr bool kSimulated = false;
#endif
constexpr const char* kCuda = kSimulated ? "simulated on the CPU, for tests: its times are no GPU's"
                              : kHaveCuda ? "built in"
                                          : "not built in (make CUDA=1)";

#ifdef __OPTIMIZE__
constexpr const char* kOptimised = "optimised";
#else
constexpr const char* kOptimised = "not optimised";
#endif

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string system_name() {
  utsname names{};
  if (::uname(&names) != 0) return "unknown";
  return fmt::format("{} {} {}", names.sysname, names.release, names.machine);
}

}  // namespace

std::string revision() { return SKYTAPE_REVISION; }

std::string build_facts() {
  return fmt::format(
      "skytape {} ({})\ncompiler  g++ {}, {}\nf32 gemm  {} on the CPU{}\nCUDA      {}\n",
      SKYTAPE_VERSION, revision(), __VERSION__, kOptimised, kGemm,
      kHaveCuda && !kSimulated ? ", cuBLAS on the GPU" : "", kCuda);
}

data::Json machine_facts() {
  const auto pages = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES));
  const auto page = static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
  return {{"cpu", cpu_name()},
          {"cores", std::thread::hardware_concurrency()},
          {"threads", thread_count()},
          {"memory_bytes", pages * page},
          {"system", system_name()},
          {"gemm", kGemm},
          {"compiler", __VERSION__},
          {"revision", revision()},
          {"cuda", kCuda}};
}

std::int64_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

void reset_peak_resident() {
  std::ofstream("/proc/self/clear_refs") << "5";  // proc(5)
}

Device parse_device(const std::string& name) {
  if (name == "cpu") return Device::cpu;
  if (name != "auto" && name != "cuda") {
    if (name == "gpu") throw UsageError("unknown device 'gpu' (did you mean 'cuda'?)");
    throw UsageError(unknown_name("device", name, {"auto", "cpu", "cuda"}));
  }
  const std::string fault = cuda_fault();
  if (name == "auto") {
    if (fault.empty() && !kSimulated) return Device::cuda;
    // A GPU that cannot be used is worth a word; a machine without one is not.
    if (kHaveCuda && !kSimulated && std::filesystem::exists("/proc/driver/nvidia/version")) {
      write_stderr(fmt::format("device auto is cpu: {}\n", fault));
    }
    return Device::cpu;
  }
  if (!fault.empty()) throw UsageError("device cuda: " + fault);
  if (kSimulated) write_stderr(fmt::format("device cuda is {}\n", kCuda));
  return Device::cuda;
}

}  // namespace skytape::train
