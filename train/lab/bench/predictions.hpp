// Least times of steps on a GPU (roofline.hpp), kept in a file: counting is done where no GPU waits
// for it.
#pragma once

#include <filesystem>
#include <optional>

#include "data/files/json.hpp"
#include "train/lab/bench/bench.hpp"

namespace skytape::train {

class Predictions {
 public:
  Predictions() = default;
  /// DataError if the file is missing or broken, or another revision of the program wrote it, whose
  /// kernels may be others.
  explicit Predictions(const std::filesystem::path& path);

  /// Counts a step of the case and returns {"attention", "n", "batch", "features", and "fp32_ms",
  /// "tf32_ms", "bf16_ms"} and, where the GPU's own kernels were counted, "fp32_parts_ms"….
  const data::Json& add(const BenchCase& c);
  /// Milliseconds of a step of the case in its precision; nothing if it was not counted.
  [[nodiscard]] std::optional<double> ms(const BenchCase& c) const;
  void write(const std::filesystem::path& path) const;

 private:
  data::Json steps_ = data::Json::array();
};

}  // namespace skytape::train
