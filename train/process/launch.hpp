// The environment in which a launcher (mpirun, srun) starts its processes: known before MPI is.
#pragma once

#include <string>
#include <vector>

namespace skytape::train {

struct Launch {
  int rank = 0, size = 1;
  bool by_launcher = false;  // which may have started one process
};

/// Returns the rank of this process among those that one launcher started; rank 0 of 1 without one.
[[nodiscard]] Launch launched();

/// The number of tasks that srun started in addition to this one without any of MPI's plug-ins, so
/// that none can find the others; 1 otherwise.
[[nodiscard]] int unconnected_tasks();

/// UsageError if a launcher started several processes of a command that does not share its work out
/// to ranks: each would do all of it, and write the same files.
void refuse_ranks(const std::string& command);

/// The environment of this process without what a launcher put there: a child that gets it is a
/// process of its own. "NAME=value".
[[nodiscard]] std::vector<std::string> environment_alone();

}  // namespace skytape::train
