// Replays steps: one CUDA graph for each layout of a batch, or of each microbatch where a batch is
// computed in several.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "tensor/core/device.hpp"
#include "tensor/launch/graph.hpp"

namespace skytape::train {

/// The numbers of steps, or of their microbatches, by the way in which they were run so far.
struct StepCounts {
  std::int64_t direct = 0;    // op by op
  std::int64_t captured = 0;  // graphs made; each is replayed immediately
  std::int64_t replayed = 0;
};

class StepGraphs {
 public:
  using Layout = std::vector<std::int64_t>;
  /// Layouts that are remembered, the least recently used one forgotten first. Trimmed widths are
  /// 64 apart, so the tasks have up to 64 of them (Path-X 256); a step in two microbatches has
  /// twice as many.
  static constexpr std::size_t kMost = 128;

  /// Off, or on a CPU: every step runs directly.
  StepGraphs(Device device, bool on, std::size_t most = kMost);

  /// Submits `work`, which two calls with an equal layout may tell apart by the contents of device
  /// memory only. The first time it runs directly, which warms up libraries and memory; the second
  /// time it is captured; from then on its graph is replayed.
  void run(const Layout& layout, const std::function<void()>& work);
  /// Submits `work` op by op, whatever was captured before.
  void run_directly(const std::function<void()>& work);

  [[nodiscard]] bool on() const { return on_; }
  [[nodiscard]] const StepCounts& counts() const { return counts_; }
  /// Kernels, copies and fills of the step that was captured last; 0 if none was.
  [[nodiscard]] std::int64_t nodes() const { return nodes_; }

 private:
  struct Entry {
    Layout layout;
    std::unique_ptr<Graph> graph;  // null until the second time
  };

  bool on_;
  std::size_t most_;
  std::shared_ptr<GraphMemory> memory_;  // kept from the first step on
  std::list<Entry> entries_;             // most recently used first
  StepCounts counts_;
  std::int64_t nodes_ = 0;
};

}  // namespace skytape::train
