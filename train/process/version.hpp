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

}  // namespace skytape::train
