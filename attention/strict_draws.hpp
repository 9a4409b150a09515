// Injected draws that a user names: a slip in a name must not be without effect.
#pragma once

namespace skytape::attention {

/// While one lives, a call on this thread throws UsageError for an injected array that the method
/// does not read. Tests and reference vectors hand over more than a setting needs.
class StrictDraws {
 public:
  StrictDraws();
  ~StrictDraws();
  StrictDraws(const StrictDraws&) = delete;
  StrictDraws& operator=(const StrictDraws&) = delete;
};

}  // namespace skytape::attention
