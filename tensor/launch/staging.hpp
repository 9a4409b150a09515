// A place in device memory that the host refills before every step, while the device still works on
// earlier ones.
#pragma once

#include <cstddef>
#include <memory>

#include "tensor/core/tensor.hpp"

namespace skytape {

/// On a GPU: two pinned buffers on the host in turn, copied over on a separate stream, so that
/// the copy overlaps the previous step; the main stream then moves the contents to their place,
/// which never changes and so may be read by CUDA graphs. On a CPU the host writes to the place
/// itself.
class Staging {
 public:
  Staging(std::size_t capacity, Device device);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Returns the memory to write the next contents to. Waits only if the contents before last are
  /// still being copied: the host runs ahead of the device by so much and no more.
  [[nodiscard]] std::byte* host();
  /// Sends the first `bytes` of what was written: work submitted from now on finds them in place(),
  /// work submitted before still finds the old ones.
  void send(std::size_t bytes);

  /// i32[capacity / 4].
  [[nodiscard]] const Tensor& place() const { return place_; }

  struct Gpu;  // buffers, stream and events, in staging.cu

 private:
  Tensor place_;
  std::shared_ptr<Gpu> gpu_;  // null on a CPU
};

// CUDA half, in staging.cu.
std::shared_ptr<Staging::Gpu> make_staging_on(Cuda, std::size_t capacity);
std::byte* staging_host_on(Cuda, Staging::Gpu& gpu);
void staging_send_on(Cuda, Staging::Gpu& gpu, std::size_t bytes, void* place);

}  // namespace skytape
