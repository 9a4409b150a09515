// Stands in for cuRAND's header of this name: see curand.cpp.
#pragma once

struct uint2 {
  unsigned int x, y;
};
struct uint4 {
  unsigned int x, y, z, w;
};

uint4 curand_Philox4x32_10(uint4 counter, uint2 key);
