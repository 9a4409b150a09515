// The simulated device's streams, which run immediately or as late as they may, events and graphs.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>

#include "tensor/core/error.hpp"
#include "tests/cuda_simulator/simulator.hpp"
#include "tests/cuda_simulator/state.hpp"

using skytape::join;
using namespace skytape::cuda_simulator;

struct CUgraphExec_st {
  CUgraph_st graph;
  CUgraph_st* origin;  // null once destroyed
  bool frees_on_launch;
};
struct CUevent_st {
  std::chrono::steady_clock::time_point time;
  cudaStream_t stream = nullptr;  // that it was recorded on
  CUgraph_st* capture = nullptr;  // that it was recorded in
};

namespace {

std::set<CUgraphExec_st*>& executables() {
  static auto* const all = new std::set<CUgraphExec_st*>;
  return *all;
}
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
bool new_streams_run_late = false;
bool streams_run_at_once = false;

/// Runs what a late stream still has to do: more than who waits for one of its events may rely on,
/// never less. Another stream has nothing left to do.
cudaError_t catch_up(cudaStream_t stream) {
  if (stream == nullptr || streams().count(stream) == 0) return cudaSuccess;
  cudaError_t status = cudaSuccess;
  while (!stream->waiting.empty()) {
    const Work work = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    if (const cudaError_t one = work(); one != cudaSuccess) status = one;
  }
  return status;
}

/// An event of a capture: the stream joins the capture, or waits for another stream of it.
cudaError_t wait_captured(cudaStream_t stream, const CUevent_st& event) {
  const cudaStream_t from = event.stream;
  if (streams().count(from) == 0 || from->capture != event.capture) {
    return failed(cudaErrorInvalidValue, "an event of a capture that is over");
  }
  if (stream->capture == nullptr) {
    stream->capture = from->capture;
    stream->origin = from->origin == nullptr ? from : from->origin;
  }
  if (stream->capture != from->capture) {
    return failed(cudaErrorStreamCaptureIsolation, "a captured wait for another capture");
  }
  auto& nodes = stream->capture->nodes;
  std::move(from->waiting.begin(), from->waiting.end(), std::back_inserter(nodes));
  from->waiting.clear();
  from->unjoined = false;
  return cudaSuccess;
}

}  // namespace

namespace skytape::cuda_simulator {

std::set<CUstream_st*>& streams() {
  static auto* const all = new std::set<CUstream_st*>;
  return *all;
}

cudaError_t no_capture(const char* call) {
  for (CUstream_st* const stream : streams()) {
    if (stream->capture == nullptr) continue;
    stream->invalidated = true;
    return failed(cudaErrorStreamCaptureUnsupported, join(call, " while a stream captures"));
  }
  return cudaSuccess;
}

cudaError_t unsafe(const char* call) {
  return thread_mode == cudaStreamCaptureModeRelaxed ? cudaSuccess : no_capture(call);
}

cudaError_t enqueue(cudaStream_t stream, Work work) {
  if (streams().count(stream) == 0) {
    return failed(cudaErrorInvalidValue, "work on the default stream or on a destroyed one");
  }
  stream->unjoined = stream->origin != nullptr;
  if (stream->capture != nullptr && (!stream->late || !stream->unjoined)) {
    stream->capture->nodes.push_back(std::move(work));
    return cudaSuccess;
  }
  if (stream->late && !streams_run_at_once) {
    stream->waiting.push_back(std::move(work));
    return cudaSuccess;
  }
  return work();
}

StreamsRunLate::StreamsRunLate() { new_streams_run_late = true; }
StreamsRunLate::~StreamsRunLate() { new_streams_run_late = false; }
StreamsRunAtOnce::StreamsRunAtOnce() { streams_run_at_once = true; }
StreamsRunAtOnce::~StreamsRunAtOnce() { streams_run_at_once = false; }

}  // namespace skytape::cuda_simulator

// ---- streams and events
// --------------------------------------------------------------------------
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  (*stream)->late = new_streams_run_late;
  streams().insert(*stream);
  return cudaSuccess;
}
// The second stream runs as late as it may, or, in the reverse order, immediately.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  const cudaError_t status = cudaStreamCreateWithFlags(stream, flags);
  (*stream)->late |= priority != 0 && !order_is_reverse();
  return status;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -5, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (streams().erase(stream) == 0) return failed(cudaErrorInvalidValue, "no such stream");
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t status = no_capture("cudaStreamSynchronize"); status != cudaSuccess) {
    return status;
  }
  return catch_up(stream);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = new CUevent_st, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = stream;
  event->capture = streams().count(stream) == 0 ? nullptr : stream->capture;
  if (event->capture != nullptr) return cudaSuccess;
  return enqueue(stream, [event] {
    event->time = std::chrono::steady_clock::now();
    return cudaSuccess;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t status = no_capture("cudaEventSynchronize"); status != cudaSuccess) {
    return status;
  }
  return catch_up(event->stream);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->capture != nullptr) return wait_captured(stream, *event);
  if (streams().count(stream) > 0 && stream->capture != nullptr) {
    stream->invalidated = true;
    return failed(cudaErrorStreamCaptureIsolation, "a captured wait for what is not captured");
  }
  return enqueue(stream, [event] { return catch_up(event->stream); });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}

// ---- graphs
// --------------------------------------------------------------------------------------
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (streams().count(stream) == 0 || stream->capture != nullptr) {
    return failed(cudaErrorIllegalState, "this stream cannot begin a capture");
  }
  stream->capture = new CUgraph_st;
  stream->invalidated = false;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (streams().count(stream) == 0 || stream->capture == nullptr) {
    return failed(cudaErrorIllegalState, "this stream does not capture");
  }
  *graph = std::exchange(stream->capture, nullptr);
  bool unjoined = false;
  for (CUstream_st* const other : streams()) {
    if (other->capture != *graph) continue;
    unjoined |= std::exchange(other->unjoined, false);
    stream->invalidated |= std::exchange(other->invalidated, false);
    other->capture = nullptr;
    other->origin = nullptr;
    other->waiting.clear();
  }
  if (!stream->invalidated && !unjoined) return cudaSuccess;
  delete std::exchange(*graph, nullptr);
  if (unjoined) {
    return failed(cudaErrorStreamCaptureUnjoined, "the capture's second stream is not waited for");
  }
  return failed(cudaErrorStreamCaptureInvalidated, "a forbidden call came during the capture");
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream == nullptr || stream->capture == nullptr ? cudaStreamCaptureStatusNone
            : stream->invalidated                           ? cudaStreamCaptureStatusInvalidated
                                                            : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  if (!graph->memory.empty() && graph->has_executable) {
    return failed(cudaErrorNotSupported, "a graph that allocates has one executable at a time");
  }
  graph->has_executable = true;
  *exec =
      new CUgraphExec_st{*graph, graph, (flags & cudaGraphInstantiateFlagAutoFreeOnLaunch) != 0};
  executables().insert(*exec);
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return enqueue(stream, [exec] {
    for (const auto& memory : exec->graph.memory) {
      if (!device().pieces.at(memory->data).exists) continue;
      if (!exec->frees_on_launch) {
        return failed(cudaErrorInvalidValue, "memory of the last launch was not freed");
      }
      cease_to_exist(memory->data);
    }
    for (const Work& work : exec->graph.nodes) {
      if (const cudaError_t status = work(); status != cudaSuccess) return status;
    }
    return cudaSuccess;
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  if (executables().erase(exec) == 0) return failed(cudaErrorInvalidValue, "no such executable");
  if (exec->origin != nullptr) exec->origin->has_executable = false;
  delete exec;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  for (CUgraphExec_st* const exec : executables()) {
    if (exec->origin == graph) exec->origin = nullptr;
  }
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  if (nodes != nullptr) return failed(cudaErrorNotSupported, "only counts nodes");
  return *count = graph->nodes.size(), cudaSuccess;
}
