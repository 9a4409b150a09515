#include "train/process/launch.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"

namespace skytape::train {
namespace {

/// A natural number of the environment.
std::optional<int> number_of(const char* variable) {
  const char* const text = std::getenv(variable);
  const auto number = text == nullptr ? std::nullopt : number_in<int>(text);
  return number && *number < 0 ? std::nullopt : number;
}

/// Names of a launcher's variables: rank and number of ranks.
struct Names {
  const char *rank, *size;
};
// Open MPI's mpirun; MPICH's and Slurm's PMI; Slurm's PMIx, which says the number as Slurm does.
constexpr Names kNames[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                            {"PMI_RANK", "PMI_SIZE"},
                            {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"}};
// Variables with these prefixes make a process one of several.
constexpr std::string_view kPrefixes[] = {"OMPI_", "PMIX_", "PMI_", "MPI_LOCAL", "HYDI_"};

}  // namespace

Launch launched() {
  for (const Names& names : kNames) {
    const std::optional<int> rank = number_of(names.rank), size = number_of(names.size);
    if (rank && size && *rank < *size) return {*rank, *size, true};
  }
  return {};
}

int unconnected_tasks() {
  const bool known = launched().size > 1 || !number_of("SLURM_PROCID");
  return known ? 1 : number_of("SLURM_STEP_NUM_TASKS").value_or(1);
}

void refuse_ranks(const std::string& command) {
  const int processes = std::max(launched().size, unconnected_tasks());
  if (processes == 1) return;
  throw UsageError(
      fmt::format("{}: started as {} processes, of which each would do all of the work; expected "
                  "one, without mpirun (train, pretrain and bench --ranks share work out)",
                  command, processes));
}

std::vector<std::string> environment_alone() {
  std::vector<std::string> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const bool launchers = std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                                       [&](std::string_view p) { return text.starts_with(p); });
    // A task of srun that stays alone has no step of several.
    if (!launchers && !text.starts_with("SLURM_STEP_NUM_TASKS=")) kept.emplace_back(text);
  }
  return kept;
}

}  // namespace skytape::train
