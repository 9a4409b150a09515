#include "tests/train/ranks/job.hpp"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <thread>

#include "data/files/json.hpp"
#include "tests/support/doctest.hpp"
#include "train/formats/safetensors.hpp"

namespace skytape::test {
namespace {

namespace fs = std::filesystem;

/// The parent of a process, its state and its program's name, from /proc.
struct Stat {
  pid_t parent = 0;
  char state = 'X';  // dead, as one that is not there
  std::string name;
};
Stat stat_of(const std::string& process) {
  std::ifstream in("/proc/" + process + "/stat");
  std::string line;
  std::getline(in, line);
  const std::size_t open = line.find('('), close = line.rfind(')');
  if (close == line.npos) return {};
  return {static_cast<pid_t>(std::atoi(line.substr(close + 4).c_str())), line.at(close + 2),
          line.substr(open + 1, close - open - 1)};
}

/// The launcher of the MPI that the program was built with.
std::string mpirun() {
  const char* const said = std::getenv("SKYTAPE_MPIRUN");
  return said == nullptr ? "mpirun" : said;
}

bool descends(pid_t process, pid_t from) {
  while (process > 1 && process != from) process = stat_of(std::to_string(process)).parent;
  return process == from;
}

}  // namespace

bool mpirun_or_skip() {
  if (!program_or_skip()) return false;
  // Open MPI asks for these; others do not read them.
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  ::setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
  ::setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
  ::setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 1);  // from Open MPI 5 on
  ::setenv("PRTE_MCA_hwloc_default_binding_policy", "none", 1);
  ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1);  // who waits leaves the core to who computes
  const std::string asked = R"("$SKYTAPE_PROGRAM" --version | grep -q 'MPI .*not built in')";
  const std::string launcher = mpirun() + " --version > /dev/null 2>&1";
  if (std::system(asked.c_str()) != 0 && std::system(launcher.c_str()) == 0) return true;
  MESSAGE("skipped: this program was built without MPI, or there is no mpirun");
  return false;
}

Place ranks(int count) {
  Place place;
  // Under the address sanitizer: what MPI's libraries keep until the end is no leak of ours.
  place.launcher = {"env", "ASAN_OPTIONS=detect_leaks=0", mpirun(), "-np", std::to_string(count)};
  return place;
}

std::vector<pid_t> processes_of(const Program& job, int count) {
  const std::string program = fs::path(program_path()).filename().string();
  std::vector<pid_t> found;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    const auto process = static_cast<pid_t>(std::atoi(name.c_str()));
    if (stat_of(name).name == program && descends(process, job.id())) found.push_back(process);
  }
  std::sort(found.begin(), found.end());
  return static_cast<int>(found.size()) == count ? found : std::vector<pid_t>{};
}

void wait_for_steps(Program& job, int lines) {
  while (job.running() && count_of(job.said(), "\nstep ") < lines) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

bool runs(pid_t process) {
  const char state = stat_of(std::to_string(process)).state;
  return state != 'X' && state != 'Z';
}

std::vector<std::string> train_together(const Workshop& w, const std::string& name, int steps,
                                        const std::vector<std::string>& more) {
  return w.train(name, steps, more, 8, 4);
}

std::string metrics_of(const fs::path& run) {
  std::string lines;
  std::ifstream in(run / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    data::Json metric = data::parse_json(line);
    for (const char* key :
         {"time", "seconds", "train_seconds", "steps_per_second", "tokens_per_second"}) {
      metric.erase(key);
    }
    lines += data::json_text(metric) + "\n";
  }
  return lines;
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

double largest_difference(const fs::path& a, const fs::path& b) {
  const train::SafetensorsFile x = train::read_safetensors(a), y = train::read_safetensors(b);
  double largest = x.tensors.size() == y.tensors.size() ? 0 : INFINITY;
  for (const auto& [name, tensor] : x.tensors) {
    const Tensor* other = y.find(name);
    if (other == nullptr || other->shape() != tensor.shape()) return INFINITY;
    const std::vector<double> p = tensor.to_vector(), q = other->to_vector();
    for (std::size_t i = 0; i < p.size(); ++i) largest = std::max(largest, std::abs(p[i] - q[i]));
  }
  return largest;
}

}  // namespace skytape::test
