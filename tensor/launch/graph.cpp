#include "tensor/launch/graph.hpp"

#include "tensor/core/device.hpp"
#include "tensor/core/on_device.hpp"

namespace skytape {
namespace {

bool capture_runs = false;  // the same streams for all, so one capture at a time

}  // namespace

Graph::Graph(const std::function<void()>& f) {
  ENSURE(!capture_runs, "Graph: another one is being captured");
  const GraphMemoryScope scope;
  memory_ = scope.memory();
  const std::int64_t before = scope.tensors();
  on_cuda([](Cuda tag) { begin_capture_on(tag); });
  capture_runs = true;
  try {
    f();
    const std::int64_t left = scope.tensors() - before;
    ENSURE(left == 0, "Graph: the captured work leaves ", left,
           " tensors behind, whose memory the next graph would overwrite");
  } catch (...) {
    capture_runs = false;
    if constexpr (kHaveCuda) abandon_capture_on(Cuda{});
    throw;
  }
  capture_runs = false;
  on_cuda([this](Cuda tag) { std::tie(executable_, nodes_) = end_capture_on(tag); });
}

Graph::~Graph() {
  if constexpr (kHaveCuda) destroy_graph_on(Cuda{}, executable_);
}

void Graph::replay() const {
  on_cuda([this](Cuda tag) { replay_on(tag, executable_); });
}

bool capturing() { return capture_runs; }

}  // namespace skytape
