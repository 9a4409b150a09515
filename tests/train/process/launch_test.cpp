#include "train/process/launch.hpp"

#include <stdlib.h>

#include <algorithm>

#include "tests/support/doctest.hpp"
#include "train/ranks/ranks.hpp"

using namespace skytape;
using namespace skytape::train;

namespace {

/// A variable of the environment until the end of the test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

}  // namespace

TEST_CASE("a launcher's words are read from the environment") {
  CHECK(launched().size == 1);
  CHECK_FALSE(launched().by_launcher);
  {
    const Variable rank("OMPI_COMM_WORLD_RANK", "0"), size("OMPI_COMM_WORLD_SIZE", "1");
    CHECK(launched().size == 1);
    CHECK(launched().by_launcher);
  }
  {
    const Variable rank("PMI_RANK", "3"), size("PMI_SIZE", "8");
    CHECK(launched().rank == 3);
    CHECK(launched().size == 8);
    const Variable inner_rank("OMPI_COMM_WORLD_RANK", "0"), inner("OMPI_COMM_WORLD_SIZE", "2");
    CHECK(launched().size == 2);  // mpirun inside an allocation that srun made
  }
  {
    const Variable rank("PMIX_RANK", "1"), size("SLURM_STEP_NUM_TASKS", "4");
    CHECK(launched().rank == 1);
    CHECK(launched().size == 4);
  }
  const Variable rank("PMI_RANK", "eight"), size("PMI_SIZE", "8");
  CHECK(launched().size == 1);
}

TEST_CASE("tasks of srun that cannot find each other are refused, not run independently") {
  const Variable task("SLURM_PROCID", "1"), size("SLURM_STEP_NUM_TASKS", "2");
  CHECK(unconnected_tasks() == 2);
  CHECK_THROWS_WITH_AS((void)Ranks::join({}),
                       doctest::Contains("srun started 2 tasks that do not know each other"),
                       UsageError);
}

TEST_CASE("a child gets an environment without the launcher's words") {
  const Variable rank("OMPI_COMM_WORLD_RANK", "1"), size("OMPI_COMM_WORLD_SIZE", "2");
  const Variable ours("SKYTAPE_TEST", "kept");
  const std::vector<std::string> alone = environment_alone();
  CHECK(std::count(alone.begin(), alone.end(), "SKYTAPE_TEST=kept") == 1);
  CHECK(std::none_of(alone.begin(), alone.end(),
                     [](const std::string& entry) { return entry.starts_with("OMPI_"); }));
}

TEST_CASE("every microbatch is one rank's") {
  for (const std::int64_t microbatches : {1, 2, 7, 8, 16}) {
    for (const int size : {1, 2, 3, 5, 8}) {
      std::int64_t sum = 0;
      for (int rank = 0; rank < size; ++rank) {
        const std::int64_t share = Share{rank, size}.of(microbatches);
        CHECK(share >= microbatches / size);
        CHECK(share <= microbatches / size + 1);
        sum += share;
      }
      CHECK(sum == microbatches);
    }
  }
}
