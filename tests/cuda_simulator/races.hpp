// Races between the warps of a block: threads of two warps touch a byte of shared memory between
// two barriers, and one of them writes it. A GPU runs warps in any order, so what is read differs.
//
// Kernels are compiled with -fsanitize=thread: g++ then calls a function before each access, such
// as __tsan_read4. races.cpp has these functions in place of the sanitizer's library, which would
// not understand fibers. Lanes of one warp are not watched, and not under MODE=asan: g++ takes only
// one of these sanitizers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace skytape::cuda_simulator {

/// The accesses of a running block's warps to its shared memory since the last barrier.
class SharedAccesses {
 public:
  void start_block();
  void end_block();
  void barrier() { ++epoch_; }
  /// An array of the block's shared memory.
  void add(const unsigned char* begin, std::size_t bytes);
  /// Returns how this access races with an earlier one, or nothing.
  [[nodiscard]] std::string see(const unsigned char* at, std::size_t bytes, unsigned warp,
                                bool writes);

 private:
  /// The accesses to one byte. Older epochs do not count, so nothing is ever cleared.
  struct Touched {
    std::uint32_t epoch = 0;
    std::uint8_t writer = 0, reader = 0;  // warp + 1; 0: none
  };
  struct Array {
    const unsigned char* begin;
    std::size_t bytes;
    std::vector<Touched> touched;
  };
  [[nodiscard]] const char* touch(Touched& t, std::uint8_t warp, bool writes) const;

  std::vector<Array> arrays_;  // the first count_ are the block's
  std::size_t count_ = 0;
  std::uint32_t epoch_ = 0;
};

/// Called before an access in shared memory by the running thread; ends its block where it races.
void watched_access(const void* at, std::size_t bytes, bool writes);

}  // namespace skytape::cuda_simulator
