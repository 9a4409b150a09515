// A CUDA graph: what a function submits to the GPU, captured once and submitted again and again as
// one piece. A replay costs the host one call instead of one per kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "tensor/core/device.hpp"
#include "tensor/core/storage.hpp"

namespace skytape {

/// Captured work. A replay runs the same kernels with the same arguments: what changes from replay
/// to replay must lie in GPU memory that was there before the capture, results that are read
/// afterwards too.
class Graph {
 public:
  /// Captures what f submits; nothing runs yet. Error if f waits for the GPU, copies from or to the
  /// host, or leaves a tensor behind (whose memory other graphs would overwrite); the capture is
  /// then undone and the GPU works as before. f should have run before in a GraphMemoryScope.
  explicit Graph(const std::function<void()>& f);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Submits the captured work to the GPU's stream.
  void replay() const;
  /// Kernels, copies and fills of one replay.
  [[nodiscard]] std::int64_t nodes() const { return nodes_; }

 private:
  std::shared_ptr<GraphMemory> memory_;  // what the captured addresses point to
  void* executable_ = nullptr;           // cudaGraphExec_t
  std::int64_t nodes_ = 0;
};

/// True while a Graph captures.
[[nodiscard]] bool capturing();

// CUDA half, in graph.cu.
void begin_capture_on(Cuda);
/// The executable graph and its number of nodes.
std::pair<void*, std::int64_t> end_capture_on(Cuda);
void abandon_capture_on(Cuda) noexcept;
void replay_on(Cuda, void* executable);
void destroy_graph_on(Cuda, void* executable) noexcept;

}  // namespace skytape
