// Tells whether a tape still lives.
#pragma once

#include <atomic>
#include <cstdint>

namespace skytape {

class Tape;

/// A slot that one tape after another uses, and that is never freed. Its generation changes when a
/// tape takes it and when that tape ends: a Var that remembers another one has outlived its tape.
/// Looking takes no lock; taking and leaving do.
class TapePlace {
 public:
  /// Gives a free place to the tape.
  [[nodiscard]] static TapePlace& take(Tape* tape);
  /// The tape's end: the place is free again.
  void leave();

  [[nodiscard]] std::uint32_t generation() const {
    return generation_.load(std::memory_order_acquire);
  }
  [[nodiscard]] Tape& tape() const { return *tape_; }

 private:
  Tape* tape_ = nullptr;
  std::atomic<std::uint32_t> generation_ = 0;
};

}  // namespace skytape
