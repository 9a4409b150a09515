// train/scripts/gpu_check.sh on a list of commands that need no GPU: its verdicts, its limits, and
// what it packs. What it runs on a GPU is worth nothing if a fault there were called a success.
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>

#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using data::synthetic::Folder;
using data::synthetic::read_file;

namespace {

namespace fs = std::filesystem;

constexpr const char* kCommands = R"(
ALL_CHECKS="alone parallel"
check_alone() {
  run fine 9 echo said
  run wrong 9 false
  run slow 1 sleep 30
  run absent 9 own
}
own() { return 77; }
# Two commands that wait for each other.
check_parallel() {
  beside left 9 meet left right
  beside right 9 meet right left
}
meet() {
  echo figure >"$RESULTS/$1"
  until [ -e "$RESULTS/$2" ]; do sleep 0.1; done
}
)";

/// What gpu_check.sh said and left behind.
struct Check {
  Folder folder;
  int status = 0;
  std::string said, verdicts;

  explicit Check(const std::string& variables, const char* commands = kCommands) {
    for (const char* program : {"build/skytape-lab", "bin/nvidia-smi"}) {
      fs::create_directories((folder.path() / program).parent_path());
      fs::create_symlink("/bin/true", folder.path() / program);
    }
    const std::string root = folder.path().string();
    const std::string command = "PATH=" + root + "/bin:$PATH B=" + root + "/build OUT=" + root +
                                "/out COMMANDS=" + folder.write("commands.sh", commands).string() +
                                " JOBS=2 " + variables + " train/scripts/gpu_check.sh 2>&1";
    FILE* const pipe = ::popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    char part[4096];
    while (std::fgets(part, sizeof part, pipe) != nullptr) said += part;
    status = WEXITSTATUS(::pclose(pipe));
    verdicts = read_file(folder.path() / "out/verdicts.tsv");
  }
  [[nodiscard]] bool has(const std::string& verdict) const {
    return verdicts.find(verdict) != std::string::npos;
  }
  [[nodiscard]] bool packed(const std::string& file) const {
    const std::string archive = (folder.path() / "out/gpu_check.tar.gz").string();
    return std::system(("tar -xOzf " + archive + " " + file + " >/dev/null 2>&1").c_str()) == 0;
  }
};

}  // namespace

TEST_CASE("gpu-check tells what passed, failed, took too long or lacks something, and packs logs") {
  const Check all("");
  CAPTURE(all.said);
  CHECK(all.status == 1);
  CHECK(all.has("fine\tpassed\t"));
  CHECK(all.has("wrong\tFAILED\t"));
  CHECK(all.has("slow\tout of time\t"));
  CHECK(all.has("absent\tnot available\t"));
  CHECK(all.has("left\tpassed\t"));
  CHECK(all.has("right\tpassed\t"));
  CHECK(all.said.find("3 passed, 2 failed") != std::string::npos);
  for (const char* file : {"./logs/fine.log", "./left", "./verdicts.tsv"}) CHECK(all.packed(file));
  CHECK_FALSE(all.packed("./absent"));
}

TEST_CASE("gpu-check's own commands read what tools and tests say, and have their settings") {
  // In the places of the test program and of NVIDIA's tool: they say what they are given.
  const Check tools("", R"(
source train/scripts/gpu_commands.sh
ALL_CHECKS=tools TESTS=echo
compute-sanitizer() { echo "ERROR SUMMARY: $5 errors"; }
check_tools() {
  run clean 9 sanitized memcheck 0
  run dirty 9 sanitized memcheck 1
  run tested 9 cuda_tests "9 passed, 0 failed"
  run skipped 9 cuda_tests "2 CUDA cases skipped"
  run settings 9 settings
}
settings() { [ "$PYTHON" ] && [ -e "$PEER" ] && [ "$DATA" ] && [ "$OUT" ] && [ -e "$GOLDENS" ]; }
)");
  CAPTURE(tools.said);
  CHECK(tools.has("clean\tpassed\t"));
  CHECK(tools.has("dirty\tFAILED\t"));
  CHECK(tools.has("tested\tpassed\t"));
  CHECK(tools.has("skipped\tFAILED\t"));
  CHECK(tools.has("settings\tpassed\t"));
}

TEST_CASE("gpu-check succeeds where nothing failed, and runs no command that has no time left") {
  const Check some("CHECKS=parallel");
  CAPTURE(some.said);
  CHECK(some.status == 0);
  CHECK_FALSE(some.has("fine"));
  const Check none("ALL_SECONDS=0 CHECKS=alone");
  CHECK(none.status == 1);
  CHECK(none.has("fine\tnot run\t0"));
}

TEST_CASE("gpu-check refuses unknown checks and folders that are not there") {
  const Check unknown("CHECKS='alone paralel'");
  CHECK(unknown.status == 2);
  CHECK(unknown.said.find("got 'paralel'") != std::string::npos);
  const Check elsewhere("B=/nowhere");
  CHECK(elsewhere.status == 2);
  CHECK(elsewhere.said.find("no program /nowhere/skytape-lab") != std::string::npos);
  const Check nowhere("TMPDIR=/nowhere");
  CHECK(nowhere.status == 1);
  CHECK(nowhere.said.find("mktemp: ") != std::string::npos);
  CHECK(nowhere.verdicts.empty());
}
