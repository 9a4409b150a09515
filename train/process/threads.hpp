// The number of CPU threads.
#pragma once

namespace skytape::train {

/// UsageError where OMP_NUM_THREADS is no number in 1..4096: with more OpenMP ends the program in
/// its first parallel loop, and anything else it ignores.
void check_threads();

/// OpenMP's threads from now on; 0: all cores. UsageError beyond 4096 or below 0.
void set_threads(int threads);
[[nodiscard]] int thread_count();

}  // namespace skytape::train
