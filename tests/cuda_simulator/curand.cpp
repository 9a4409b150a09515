// cuRAND of the simulated device: the words are Random123's, from which cuRAND's come.
#include <Random123/philox.h>

#include "tests/cuda_simulator/curand_philox4x32_x.h"

uint4 curand_Philox4x32_10(uint4 counter, uint2 key) {
  const r123::Philox4x32::ctr_type words =
      r123::Philox4x32()({{counter.x, counter.y, counter.z, counter.w}}, {{key.x, key.y}});
  return {words[0], words[1], words[2], words[3]};
}
