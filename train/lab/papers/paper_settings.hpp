// Hyper-parameters as the papers print them. Their published code has others here and there:
// recipes say which they take.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace skytape::train {

/// The settings of one task, for all methods of the paper's table. Both papers have 2 layers of
/// width 64, 128 hidden numbers, 2 heads, mean pooling.
struct PaperSettings {
  std::string_view recipe;  // that reproduces the paper, "skyformer" or "skeinformer"
  std::string_view task;
  std::int64_t batch = 0;
  double rate = 0;
  std::int64_t steps = 0;  // 0: until the loss on dev has stopped falling
  std::int64_t features = 0;
};

/// The five tasks of each paper.
[[nodiscard]] std::span<const PaperSettings> paper_settings();

}  // namespace skytape::train
