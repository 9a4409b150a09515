#include "tensor/core/free_memory.hpp"

#include <limits>

#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using data::synthetic::Folder;

namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

}  // namespace

TEST_CASE("a group's memory is limited by itself and by every group around it") {
  const Folder root;
  CHECK(left_by_groups(root.path()) == kUnlimited);
  root.write("proc/self/cgroup", "0::/user.slice/job/step\n");
  CHECK(left_by_groups(root.path()) == kUnlimited);
  const std::string top = "sys/fs/cgroup/";
  root.write(top + "user.slice/job/step/memory.max", "max\n");
  CHECK(left_by_groups(root.path()) == kUnlimited);
  root.write(top + "user.slice/job/memory.max", "7000\n");
  root.write(top + "user.slice/job/memory.stat", "file 5000\nanon 3000\n");
  CHECK(left_by_groups(root.path()) == 4000);
  root.write(top + "user.slice/memory.max", "9000\n");
  root.write(top + "user.slice/memory.stat", "anon 6500\nfile 10\n");
  CHECK(left_by_groups(root.path()) == 2500);
  root.write(top + "user.slice/job/step/memory.max", "1300\n");
  CHECK(left_by_groups(root.path()) == 1300);
  root.write(top + "memory.max", "800\n");  // a container's own group
  CHECK(left_by_groups(root.path()) == 800);
  root.write(top + "memory.stat", "anon 900\n");
  CHECK(left_by_groups(root.path()) == 0);
  root.write(top + "user.slice/other/memory.max", "1\n");
  root.write(top + "memory.max", "max\n");
  CHECK(left_by_groups(root.path()) == 1300);
}

TEST_CASE("groups of version 1 count in files of other names, below the memory controller") {
  const Folder root;
  root.write("proc/self/cgroup",
             "9:name=systemd:/elsewhere\n5:cpu,memory,pids:/docker/abc:d\n0::/\n");
  const std::string top = "sys/fs/cgroup/memory/";
  root.write(top + "memory.limit_in_bytes", "9223372036854771712\n");
  root.write(top + "docker/abc:d/memory.limit_in_bytes", "6000\n");
  root.write(top + "docker/abc:d/memory.stat", "rss 1000\ntotal_rss 1500\n");
  root.write("sys/fs/cgroup/memory/elsewhere/memory.limit_in_bytes", "1\n");
  CHECK(left_by_groups(root.path()) == 4500);
  // A container sees its own group as the mount, and not the path that the host has for it.
  root.write(top + "memory.limit_in_bytes", "5000\n");
  std::filesystem::remove_all(root.path() / top / "docker");
  CHECK(left_by_groups(root.path()) == 5000);
}
