#include "tensor/core/free_memory.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "tensor/core/error.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/core/storage_plan.hpp"

namespace skytape {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

/// The number after `name` in a file of lines "name number"; the first of all for an empty name.
/// `otherwise` if there is none, as where a limit says "max".
std::int64_t number_in_file(const fs::path& file, const std::string& name, std::int64_t otherwise) {
  std::ifstream in(file);
  std::int64_t number = 0;
  if (name.empty()) return in >> number ? number : otherwise;
  for (std::string word; in >> word;) {
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

/// The files of a version of control groups.
struct GroupFiles {
  const char* mount;
  const char* limit;
  const char* anonymous;  // the line of memory.stat that counts the group and those below it
};
constexpr GroupFiles kFirstVersion = {"sys/fs/cgroup/memory", "memory.limit_in_bytes", "total_rss"};
constexpr GroupFiles kSecondVersion = {"sys/fs/cgroup", "memory.max", "anon"};

/// Returns the least that the group at `path` and those above it leave: their caches can be given
/// back, their anonymous memory not. In a container the path may be one that only the host knows;
/// the container's own group is then the mount itself.
std::int64_t left_by_group(const fs::path& root, const GroupFiles& files, const fs::path& path) {
  const fs::path mount = root / files.mount;
  std::int64_t least = kUnlimited;
  for (fs::path at = path.relative_path();; at = at.parent_path()) {
    const std::int64_t most = number_in_file(mount / at / files.limit, "", kUnlimited);
    if (most != kUnlimited) {
      const std::int64_t taken = number_in_file(mount / at / "memory.stat", files.anonymous, 0);
      least = std::min(least, std::max<std::int64_t>(0, most - taken));
    }
    if (at.empty()) return least;
  }
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

std::int64_t left_by_groups(const fs::path& root) {
  std::int64_t least = kUnlimited;
  std::ifstream groups(root / "proc/self/cgroup");  // lines "number:controllers:path"
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool has_memory = controllers.find(",memory,") != controllers.npos;
    if (!has_memory && controllers != ",,") continue;
    least = std::min(least, left_by_group(root, has_memory ? kFirstVersion : kSecondVersion,
                                          line.substr(second + 1)));
  }
  return least;
}

std::int64_t free_bytes(Device device) {
  if constexpr (kHaveCuda) {
    if (device == Device::cuda) return free_bytes_on(Cuda{});
  }
  ENSURE(device == Device::cpu, "free_bytes: ", name(device), " is not built in");
  return std::min({available(), left_by_groups(), left_by_limit()});
}

}  // namespace skytape
