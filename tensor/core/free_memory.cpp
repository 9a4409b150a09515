#include "tensor/core/free_memory.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "tensor/core/error.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/core/storage_plan.hpp"

namespace skytape {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

/// The number after `name` in a file of lines "name number"; the first of all for an empty name.
/// `otherwise` if there is none, as where a limit says "max".
std::int64_t number_in_file(const char* file, const std::string& name, std::int64_t otherwise) {
  std::ifstream in(file);
  for (std::string word; in >> word;) {
    std::int64_t number = 0;
    if (name.empty()) return word == "max" ? otherwise : std::stoll(word);
    if (word == name && in >> number) return number;
  }
  return otherwise;
}

/// Returns the available bytes of /proc/meminfo, which counts in KiB.
std::int64_t available() {
  const std::int64_t kib = number_in_file("/proc/meminfo", "MemAvailable:", -1);
  if (kib >= 0) return 1024 * kib;
  return static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
}

/// Returns the bytes that the control group leaves: its caches can be given back, its anonymous
/// memory not.
std::int64_t left_by_group() {
  const std::int64_t most = number_in_file("/sys/fs/cgroup/memory.max", "", kUnlimited);
  if (most == kUnlimited) return kUnlimited;
  return std::max<std::int64_t>(0, most - number_in_file("/sys/fs/cgroup/memory.stat", "anon", 0));
}

/// Returns the bytes that `ulimit -v` leaves.
std::int64_t left_by_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  const std::int64_t pages = number_in_file("/proc/self/statm", "", 0);
  return std::max<std::int64_t>(
      0, static_cast<std::int64_t>(limit.rlim_cur) - pages * ::sysconf(_SC_PAGESIZE));
}

}  // namespace

std::int64_t free_bytes(Device device) {
  if constexpr (kHaveCuda) {
    if (device == Device::cuda) return free_bytes_on(Cuda{});
  }
  ENSURE(device == Device::cpu, "free_bytes: ", name(device), " is not built in");
  return std::min({available(), left_by_group(), left_by_limit()});
}

}  // namespace skytape
