// Scalar mathematics that vectorises: libm's SIMD clones on the CPU, device functions on CUDA.
//
// glibc has vector versions of expf, logf, erff, … but its headers announce them only under
// -ffast-math. We announce them ourselves and keep NaN tests and infinities intact.
#pragma once

#include <cmath>

// Marks a function that kernels call: compiled for the CPU by g++, for the GPU by nvcc (whose host
// pass never computes, so it needs no host copy).
#ifdef __CUDACC__
#define HD __device__
#else
#define HD
#endif

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__CUDACC__)
#define SKYTAPE_SIMD_CLONE __attribute__((__simd__("notinbranch"), __const__))
extern "C" {
SKYTAPE_SIMD_CLONE float expf(float) noexcept;
SKYTAPE_SIMD_CLONE double exp(double) noexcept;
SKYTAPE_SIMD_CLONE float logf(float) noexcept;
SKYTAPE_SIMD_CLONE double log(double) noexcept;
SKYTAPE_SIMD_CLONE float erff(float) noexcept;
SKYTAPE_SIMD_CLONE double erf(double) noexcept;
SKYTAPE_SIMD_CLONE float sinf(float) noexcept;
// libm's cosf under another name: g++ would merge sinf and cosf of one angle into a scalar sincosf.
SKYTAPE_SIMD_CLONE float skytape_cosf(float) noexcept __asm__("cosf");
}
#undef SKYTAPE_SIMD_CLONE
#else
#define skytape_cosf cosf
#endif

namespace skytape::math {

HD inline float exp(float x) { return ::expf(x); }
HD inline double exp(double x) { return ::exp(x); }
HD inline float log(float x) { return ::logf(x); }
HD inline double log(double x) { return ::log(x); }
HD inline float erf(float x) { return ::erff(x); }
HD inline double erf(double x) { return ::erf(x); }
HD inline float sin(float x) { return ::sinf(x); }
HD inline double sin(double x) { return ::sin(x); }
HD inline float cos(float x) { return ::skytape_cosf(x); }
HD inline double cos(double x) { return ::cos(x); }
HD inline float sqrt(float x) { return ::sqrtf(x); }
HD inline double sqrt(double x) { return ::sqrt(x); }

template <class T> HD inline T max(T a, T b) { return a > b ? a : b; }
template <class T> HD inline T min(T a, T b) { return a < b ? a : b; }

/// Standard normal distribution function Φ(x) and density φ(x).
template <class T> HD inline T normal_cdf(T x) {
  return T(0.5) * (T(1) + erf(x * T(0.70710678118654752440)));
}
template <class T> HD inline T normal_pdf(T x) {
  return T(0.39894228040143267794) * exp(T(-0.5) * x * x);
}

}  // namespace skytape::math
