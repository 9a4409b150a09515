// Tells whether a tape still lives.
#pragma once

#include <atomic>
#include <cstdint>

namespace skytape {

class Tape;

/// A slot that one living tape owns at a time, and that is never freed. stay() changes when a tape
/// enters and when it leaves, so that a Var which remembers its tape's number sees that it is gone.
/// Looking takes no lock; entering and leaving do.
class TapePlace {
 public:
  /// Gives a free place to the tape.
  [[nodiscard]] static TapePlace& take(Tape* tape);
  /// The tape's end: the place is free again.
  void leave();

  /// The number of the tape's stay here. Another one comes with each tape, and after its end.
  [[nodiscard]] std::uint32_t stay() const { return stay_.load(std::memory_order_acquire); }
  [[nodiscard]] Tape& tape() const { return *tape_; }

 private:
  Tape* tape_ = nullptr;
  std::atomic<std::uint32_t> stay_ = 0;
};

}  // namespace skytape
