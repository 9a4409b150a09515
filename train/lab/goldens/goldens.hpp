// Golden vectors: arrays that other programs computed, compared with what this one computes.
//
// A case is a folder DIR/<method>/<case>/ with a meta.json and one .npy file per array; what counts
// is what meta.json says (method, options, arrays), never a folder's name.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tensor/core/tensor.hpp"

namespace skytape {

/// One comparison: an array of a case in one dtype.
struct GoldenRow {
  enum class Status { passed, failed, not_implemented };
  std::string folder;  // "softmax/pad", to find the case again
  std::string array;   // "out", "dq", …; empty when the case could not run
  DType dtype = DType::f64;
  double error = 0, limit = 0;  // ||ours - golden|| / ||golden||
  Status status = Status::passed;
  std::string note = {};  // why it failed without a number, or was left out
};

/// Runs every case under `directory` in f64 and f32 on `device`. DataError, naming the file, for a
/// missing directory, a directory without cases, or a malformed file.
[[nodiscard]] std::vector<GoldenRow> run_goldens(const std::filesystem::path& directory,
                                                 Device device = Device::cpu);

[[nodiscard]] bool all_passed(const std::vector<GoldenRow>& rows);

/// A line for every failure, one per case with its worst array, and a last line of counts.
[[nodiscard]] std::string golden_table(const std::vector<GoldenRow>& rows);

}  // namespace skytape
