// Scalar mathematics that vectorises: libm's SIMD clones on the CPU, device functions on CUDA.
//
// glibc has vector versions of exp, logf, erff, … but its headers announce them only under
// -ffast-math. We announce them ourselves and keep NaN tests and infinities intact. expf is written
// here: where one of 16 numbers is -inf, a hidden score, glibc's vector calls the scalar function.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

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

#ifdef __CUDACC__
HD inline float exp(float x) { return ::expf(x); }
#else
/// e^x = 2^n e^r with n = round(x / log 2), |r| <= log(2) / 2; e^r by a polynomial of degree 6,
/// fitted for the least relative error, 3e-9. Within 1.4 units of the last place of the true value;
/// below 1.7e-38 (x < -86.99) it is 0.
inline float exp(float x) {
  constexpr float kRound = 0x1.8p23f + 126;  // its sum with n has n + 126 in the last bits
  const float bounded = x < -87.3f ? -87.3f : x > 89.0f ? 89.0f : x;  // NaN stays
  const float shifted = std::fma(bounded, 1.44269504f, kRound);
  const float n = shifted - kRound;
  const float r = std::fma(n, 2.12194440e-4f, std::fma(n, -0.693359375f, bounded));
  float p = 1.38145988e-3f;
  p = std::fma(p, r, 8.36871658e-3f);
  p = std::fma(p, r, 4.16683890e-2f);
  p = std::fma(p, r, 1.66665211e-1f);
  p = std::fma(p, r, 4.99999940e-1f);
  p = std::fma(p * r, r, r);                                                             // e^r - 1
  const float half = std::bit_cast<float>(std::bit_cast<std::uint32_t>(shifted) << 23);  // 2^(n-1)
  return 2 * std::fma(p, half, half);
}
#endif
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
