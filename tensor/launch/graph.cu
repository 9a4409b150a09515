// CUDA half of graph.cpp.
#include "tensor/launch/graph.hpp"

#include <utility>

#include "tensor/launch/cuda.hpp"

namespace skytape {

// Thread-local: other threads may allocate meanwhile, this one may do nothing that would wait.
void begin_capture_on(Cuda) {
  CUDA_CHECK(cudaStreamBeginCapture(cuda::stream(), cudaStreamCaptureModeThreadLocal));
}

std::pair<void*, std::int64_t> end_capture_on(Cuda) {
  cudaGraph_t graph = nullptr;
  CUDA_CHECK(cudaStreamEndCapture(cuda::stream(), &graph));
  std::size_t nodes = 0;
  cudaGraphExec_t executable = nullptr;
  const cudaError_t counted = cudaGraphGetNodes(graph, nullptr, &nodes);
  const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  CUDA_CHECK(counted);
  CUDA_CHECK(made);
  return {executable, static_cast<std::int64_t>(nodes)};
}

void abandon_capture_on(Cuda) noexcept {
  cudaGraph_t graph = nullptr;
  (void)cudaStreamEndCapture(cuda::stream(), &graph);  // fails where a call broke the capture
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  (void)cudaGetLastError();  // that failure is no longer news
}

void replay_on(Cuda, void* executable) {
  CUDA_CHECK(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable), cuda::stream()));
}

// A graph that still runs is freed when it is done.
void destroy_graph_on(Cuda, void* executable) noexcept {
  if (executable != nullptr) (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable));
}

}  // namespace skytape
