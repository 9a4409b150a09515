// The number of CPU threads.
#pragma once

namespace skytape::train {

/// UsageError where OMP_NUM_THREADS asks for more threads than 4096: OpenMP ends the program in its
/// first parallel loop then.
void check_threads();

/// OpenMP's threads from now on; 0: all cores. UsageError beyond 4096 or below 0.
void set_threads(int threads);
[[nodiscard]] int thread_count();

}  // namespace skytape::train
