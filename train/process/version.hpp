// Metadata of this build and this machine, for --version, config.json, result.json and the bench.
#pragma once

#include <cstdint>
#include <string>

#include "data/files/json_fwd.hpp"
#include "tensor/core/device.hpp"

namespace skytape::train {

/// The source revision, "unknown" outside a repository.
[[nodiscard]] std::string revision();

/// Several lines: revision, compiler, libraries, CUDA.
[[nodiscard]] std::string build_facts();

/// {"cpu", "cores", "threads", "memory_bytes", "system", "gemm", "compiler", "revision", "cuda"}.
[[nodiscard]] data::Json machine_facts();

/// The most resident memory of this process so far, bytes, and a fresh start of that count. Where
/// the kernel has no such thing (not Linux) the count goes on.
[[nodiscard]] std::int64_t peak_resident_bytes();
void reset_peak_resident();

/// "auto" is cuda where a GPU answers, else cpu; a simulated GPU must be named. UsageError for
/// other names and for a device that is not there. Says so on stderr when the GPU is a simulated
/// one.
[[nodiscard]] Device parse_device(const std::string& name);

/// UsageError where OMP_NUM_THREADS asks for more threads than 4096: OpenMP ends the program in its
/// first parallel loop then.
void check_threads();

/// OpenMP's threads from now on; 0: all cores. UsageError beyond 4096 or below 0.
void set_threads(int threads);
[[nodiscard]] int thread_count();

}  // namespace skytape::train
