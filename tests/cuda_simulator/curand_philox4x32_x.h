// Stands in for cuRAND's header of this name: its words are Random123's, which cuRAND's come from.
#pragma once

#include <Random123/philox.h>

struct uint2 {
  unsigned int x, y;
};
struct uint4 {
  unsigned int x, y, z, w;
};

inline uint4 curand_Philox4x32_10(uint4 counter, uint2 key) {
  const r123::Philox4x32::ctr_type words =
      r123::Philox4x32()({{counter.x, counter.y, counter.z, counter.w}}, {{key.x, key.y}});
  return {words[0], words[1], words[2], words[3]};
}
