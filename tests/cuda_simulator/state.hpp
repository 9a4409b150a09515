// The simulated device's state, as memory.cpp, streams.cpp and runtime.cpp share it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda_simulator/device.hpp"
#include "tests/cuda_simulator/simulator.hpp"

namespace skytape::cuda_simulator {

using Work = std::function<cudaError_t()>;

/// A piece of device memory. A graph's own memory keeps its address between launches, but exists
/// only from its allocating to its freeing node.
struct Piece {
  std::size_t bytes = 0;
  bool of_graph = false;
  bool exists = true;
  bool mapped = false;  // pages that cost nothing until touched, neither filled nor guarded
};

struct Device {
  std::map<char*, Piece> pieces;
  int opened = 0;  // OpenMemory objects alive
  cudaError_t last = cudaSuccess;
  std::string reason;
  std::map<const void*, int> dynamic_limits;  // by kernel
  std::size_t used = 0, used_high = 0;
  std::size_t limit = SIZE_MAX;  // MemoryLimit
  std::size_t pooled = 0;        // freed into the stream-ordered pool, which keeps it

  /// The piece that holds data, or its end.
  auto piece_of(const void* data) {
    char* const at = static_cast<char*>(const_cast<void*>(data));
    auto piece = pieces.upper_bound(at);
    if (piece == pieces.begin()) return pieces.end();
    --piece;
    return at <= piece->first + piece->second.bytes ? piece : pieces.end();
  }

  void guard(char* data, const Piece& piece) const;
  void guard_all() const;
};

/// The state of LaunchesOnly.
struct Launches {
  bool only_counted = false;
  std::vector<LaunchesOnly::Launch> all;
};
extern Launches launches;

[[nodiscard]] Device& device();

/// A piece of memory that does not exist yet; null where there is none.
[[nodiscard]] char* reserve(std::size_t bytes, bool of_graph);
void begin_to_exist(char* data);
void cease_to_exist(char* data);
void release(char* data);

/// The address of memory that a graph allocates; reserved until graph and executable are gone.
struct Reservation {
  char* data;
  explicit Reservation(char* at) : data(at) {}
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() {
    if (!device().pieces.at(data).exists) release(data);  // else whoever frees it does
  }
};

/// All streams that were created and not destroyed.
[[nodiscard]] std::set<CUstream_st*>& streams();

/// An error if some stream captures: the call would wait for the device.
cudaError_t no_capture(const char* call);
/// The same for calls that a thread in relaxed mode may make.
cudaError_t unsafe(const char* call);

}  // namespace skytape::cuda_simulator

struct CUgraph_st {
  std::vector<skytape::cuda_simulator::Work> nodes;
  std::vector<std::shared_ptr<skytape::cuda_simulator::Reservation>> memory;
  std::set<char*> live;  // allocated and not freed by the nodes so far
  bool has_executable = false;
};
struct CUstream_st {
  CUgraph_st* capture = nullptr;
  cudaStream_t origin =
      nullptr;  // of the capture, which this one joined by waiting for an event; else null
  bool unjoined = false;  // it did, and nobody waits for what it submitted last
  bool invalidated = false;
  bool late = false;  // see StreamsRunLate
  std::deque<skytape::cuda_simulator::Work>
      waiting;  // of a late stream: submitted and not yet run, or not yet a graph's node
};
