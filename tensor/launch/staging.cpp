#include "tensor/launch/staging.hpp"

#include "tensor/core/on_device.hpp"
#include "tensor/launch/graph.hpp"

namespace skytape {

Staging::Staging(std::size_t capacity, Device device) {
  const auto words = static_cast<std::int64_t>((capacity + 3) / 4);
  place_ = Tensor::zeros({words}, DType::i32, device);
  if (device == Device::cuda)
    on_cuda([&](Cuda tag) { gpu_ = make_staging_on(tag, place_.bytes()); });
}

Staging::~Staging() = default;

std::byte* Staging::host() {
  if constexpr (kHaveCuda) {
    if (gpu_ != nullptr) return staging_host_on(Cuda{}, *gpu_);
  }
  return static_cast<std::byte*>(place_.raw());
}

void Staging::send(std::size_t bytes) {
  ENSURE(bytes <= place_.bytes(), "Staging::send: ", bytes, " bytes to a place of ",
         place_.bytes());
  ENSURE(!capturing(), "Staging::send: a CUDA graph is being captured; send before it replays");
  if constexpr (kHaveCuda) {
    if (gpu_ != nullptr) staging_send_on(Cuda{}, *gpu_, bytes, place_.raw());
  }
}

}  // namespace skytape
