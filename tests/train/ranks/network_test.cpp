// Ranks on several hosts, which are network namespaces of this machine: each has an address and a
// name of its own, and ranks talk over real sockets.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/support/doctest.hpp"
#include "tests/train/ranks/job.hpp"

using namespace skytape;
using namespace skytape::test;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kHosts = 2;

bool sh(const std::string& command) {
  return std::system(("{ " + command + "; } > /dev/null 2>&1").c_str()) == 0;
}

bool hosts_or_skip() {
  if (!mpirun_or_skip()) return false;
  const bool can = ::geteuid() == 0 && sh("command -v unshare hostname") &&
                   sh("ip netns add skytape-try && ip netns del skytape-try") &&
                   sh(ranks(1).launcher.at(2) + " --version | grep -q 'Open MPI'");
  if (!can) {
    MESSAGE("skipped: hosts inside one machine need root, ip, unshare, hostname and Open MPI");
  }
  return can;
}

/// Held by one process of the machine at a time: names and addresses of hosts are the machine's.
class Turn {
 public:
  Turn() { REQUIRE(::flock(file_, LOCK_EX) == 0); }
  ~Turn() { ::close(file_); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  int file_ = ::open((std::filesystem::temp_directory_path() / "skytape-hosts.lock").c_str(),
                     O_RDWR | O_CREAT | O_CLOEXEC, 0600);
};

/// sky1, sky2, … with the addresses 10.77.0.1, 10.77.0.2, … on one bridge.
class Hosts {
 public:
  explicit Hosts(const std::filesystem::path& scratch) : agent_(scratch / "agent") {
    remove();  // what a run left that was killed
    REQUIRE(
        sh("ip link add sky-bridge type bridge && ip addr add 10.77.0.254/24 dev sky-bridge && "
           "ip link set sky-bridge up"));
    for (int i = 1; i <= kHosts; ++i) {
      const std::string n = std::to_string(i);
      REQUIRE(sh("ip netns add sky" + n + " && ip link add sky-to" + n +
                 " type veth peer name eth0 netns sky" + n + " && ip link set sky-to" + n +
                 " master sky-bridge up && ip -n sky" + n + " addr add 10.77.0." + n +
                 "/24 dev eth0 && ip -n sky" + n + " link set eth0 up && ip -n sky" + n +
                 " link set lo up"));
    }
    // The command by which mpirun starts its daemons, instead of ssh: HOST COMMAND…
    std::ofstream(agent_) << "#!/bin/sh\n"
                             "host=$1\n"
                             "shift\n"
                             "exec ip netns exec \"$host\" unshare --uts sh -c "
                             "'hostname \"$0\"; exec sh -c \"$*\"' \"$host\" \"$@\"\n";
    std::filesystem::permissions(agent_, std::filesystem::perms::owner_all);
  }
  ~Hosts() { remove(); }
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  /// A rank on each.
  [[nodiscard]] Place place() const {
    Place place = ranks(kHosts);
    std::string list;
    for (int i = 1; i <= kHosts; ++i) list += (i > 1 ? ",sky" : "sky") + std::to_string(i) + ":1";
    std::istringstream words(
        "--mca btl tcp,self --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include "
        "10.77.0.0/24 --mca oob_tcp_keepalive_time 5 --mca oob_tcp_keepalive_intvl 1 --mca "
        "oob_tcp_keepalive_probes 5 --mca plm_rsh_agent " +
        agent_.string() + " --host " + list);
    place.launcher.insert(place.launcher.end(), std::istream_iterator<std::string>(words), {});
    return place;
  }

  /// Takes the last host's link away, or gives it back.
  void connect_last(bool up) const {
    REQUIRE(sh("ip link set sky-to" + std::to_string(kHosts) + (up ? " up" : " down")));
    // Who asked for the host's hardware address meanwhile remembers that nobody answered.
    for (int i = 1; up && i <= kHosts; ++i) {
      (void)sh("ip -n sky" + std::to_string(i) + " neigh flush dev eth0");
    }
  }
  [[nodiscard]] bool last_is_idle() const {
    return sh("[ -z \"$(ip netns pids sky" + std::to_string(kHosts) + ")\" ]");
  }

 private:
  static void remove() {
    for (int i = 1; i <= kHosts; ++i) {
      const std::string name = "sky" + std::to_string(i);
      (void)sh("ip netns pids " + name + " | xargs -r kill -9");
      (void)sh("ip netns del " + name);
      (void)sh("ip link del sky-to" + std::to_string(i));
    }
    (void)sh("ip link del sky-bridge");
  }

  Turn turn_;
  std::filesystem::path agent_;
};

}  // namespace

TEST_CASE("hosts end with the bits of one process, also if one was cut off in the middle") {
  if (!hosts_or_skip()) return;
  const Workshop w;
  const Hosts hosts(w.folder.path());
  const auto words = [&](const char* name) {
    return train_together(w, name, 300, {"--resume", "--rank-timeout", "20"});
  };
  const auto same = [&](const char* name) {
    return same_tensors(w.run("one") / "last.safetensors", w.run(name) / "last.safetensors");
  };
  REQUIRE(w.finish(train_together(w, "one", 300)).code == 0);
  const Finished whole = w.finish(words("whole"), hosts.place());
  CAPTURE(whole.err);
  REQUIRE(whole.code == 0);
  CHECK(contains(whole.err, "2 ranks on 2 hosts"));
  CHECK(same("whole"));

  Program job(w.folder.path(), words("cut"), hosts.place());
  wait_for_steps(job, 4);
  REQUIRE(job.running());
  hosts.connect_last(false);
  const auto since_cut = [start = Clock::now()] {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const Finished cut = job.wait();
  CAPTURE(cut.err);
  CHECK(since_cut() < 60);
  CHECK(cut.code != 0);
  // mpirun's own message where its daemon is missed first, else that of the ranks.
  const bool is_named = contains(cut.err, "on node sky2") || contains(cut.err, " on sky2");
  CHECK(is_named);
  hosts.connect_last(true);
  while (!hosts.last_is_idle() && since_cut() < 120) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  CHECK(hosts.last_is_idle());
  const Finished resumed = w.finish(words("cut"), hosts.place());
  CAPTURE(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(contains(resumed.err, "resuming "));
  CHECK(same("cut"));
}
