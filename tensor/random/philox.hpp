// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) and the
// dropout bits made from it. On a GPU the words are those of cuRAND's device function; the CPU's
// loop gives the same ones, bit for bit, and vectorises. draw() is where they meet.
//
// Mapping (cuRAND's): key = seed; counter = (number / 4, subsequence), 64 bits each, low word
// first; word number % 4 of the result. Here the seed is Random::key and the subsequence is the
// step.
#pragma once

#include <cstdint>

#include "tensor/launch/launch.hpp"
#if defined(__AVX512F__) && !defined(__CUDACC__)
#include <immintrin.h>
#endif
#ifdef __CUDACC__
#include <curand_philox4x32_x.h>  // header only: no library at run time
#endif

namespace skytape::philox {

/// The four words of one counter.
struct Words {
  std::uint32_t w[4];
};

/// `kRounds` rounds from a round key on; recursion, because only straight code vectorises.
template <int kRounds>
HD inline Words rounds(const Words& c, std::uint32_t key_low, std::uint32_t key_high) {
  if constexpr (kRounds == 0) {
    return c;
  } else {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c.w[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c.w[2];
    const Words next{
        {static_cast<std::uint32_t>(p1 >> 32) ^ c.w[1] ^ key_low, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c.w[3] ^ key_high, static_cast<std::uint32_t>(p0)}};
    return rounds<kRounds - 1>(next, key_low + 0x9E3779B9u, key_high + 0xBB67AE85u);
  }
}

/// Four random words for a counter of a subsequence.
HD inline Words draw(std::uint64_t key, std::uint64_t counter, std::uint64_t subsequence) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
#if defined(__CUDA_ARCH__) || (defined(__CUDACC__) && defined(SKYTAPE_CUDA_SIMULATED))
  const uint4 words = curand_Philox4x32_10(
      {low(counter), high(counter), low(subsequence), high(subsequence)}, {low(key), high(key)});
  return {{words.x, words.y, words.z, words.w}};
#else
  return rounds<10>({{low(counter), high(counter), low(subsequence), high(subsequence)}}, low(key),
                    high(key));
#endif
}

/// A word as cuRAND's uniform in (0, 1]: x 2^-32 + 2^-33, rounded to f32.
HD inline float uniform(std::uint32_t word) {
  return static_cast<float>(word) * 0x1p-32f + 0x1p-33f;
}

/// The step that kernels read: `step` points to device memory and may be null (step 0).
HD inline std::uint64_t step_of(const std::int32_t* step) {
  return step == nullptr ? 0 : static_cast<std::uint64_t>(*step);
}

// ---- dropout: 16 bits per element ------------------------------------------------------------
// 16 counters serve a chunk of 128 consecutive elements: half h of word k of counter 16 chunk + j
// decides about element (2 k + h) 16 + j of the chunk. So 16 counters in the lanes of a vector
// store contiguous runs of 16 elements. An element is dropped when its bits are < threshold.

inline constexpr int kChunk = 128;  // elements
inline constexpr int kLanes = 16;   // counters

/// The 16 bits of one element. Regenerates four words: for whole chunks prefer each_bits.
HD inline std::uint32_t dropout_bits(std::uint64_t key, std::uint64_t step, std::int64_t element) {
  const std::uint64_t chunk = static_cast<std::uint64_t>(element) / kChunk;
  const int position = static_cast<int>(element % kChunk);
  const int run = position / kLanes;  // 2 k + h
  const Words words = draw(key, chunk * kLanes + position % kLanes, step);
  return (words.w[run / 2] >> (16 * (run % 2))) & 0xffffu;
}

/// f(position, bits) for every position in [0, 128) of a chunk, shared out over a team.
template <class Team, class F> HD void each_bits(const Team& team, std::uint64_t key,
                                                 std::uint64_t step, std::int64_t chunk,
                                                 const F& f) {
  team.each(kChunk, [&](std::int64_t position) {
    f(position, dropout_bits(key, step, chunk * kChunk + position));
  });
}

#ifdef __CUDACC__
/// Warp: the lanes 16 h + j draw counter j and decide about elements 32 k + lane: full cache lines.
template <class F> __device__ void each_bits(const cuda::Warp& warp, std::uint64_t key,
                                             std::uint64_t step, std::int64_t chunk, const F& f) {
  const Words words =
      draw(key, static_cast<std::uint64_t>(chunk) * kLanes + warp.lane % kLanes, step);
  const int shift = 16 * (warp.lane / kLanes);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    f(std::int64_t{k * cuda::kWarp + warp.lane}, (words.w[k] >> shift) & 0xffffu);
  }
  __syncwarp();
}
#else
#ifdef __AVX512F__
/// Eight counters, one per 64-bit lane. Products read the low halves of lanes only, so the high
/// halves may hold anything and no round needs a shuffle: twice as fast as the vectorised loop.
struct WideWords {
  __m512i w[4];
};

template <int kRounds>
inline WideWords rounds(const WideWords& c, std::uint32_t key_low, std::uint32_t key_high) {
  if constexpr (kRounds == 0) {
    return c;
  } else {
    const __m512i p0 = _mm512_maskz_mul_epu32(0xff, c.w[0], _mm512_set1_epi64(0xD2511F53u));
    const __m512i p1 = _mm512_maskz_mul_epu32(0xff, c.w[2], _mm512_set1_epi64(0xCD9E8D57u));
    // The compiler makes one instruction of both xors. Its intrinsic would not compile without an
    // optimiser behind headers that ask for one by a pragma (fmt's).
    const auto xor3 = [](__m512i x, __m512i y, __m512i z) {
      return _mm512_xor_si512(_mm512_xor_si512(x, y), z);
    };
    const WideWords next{
        {xor3(_mm512_maskz_srli_epi64(0xff, p1, 32), c.w[1], _mm512_set1_epi64(key_low)), p1,
         xor3(_mm512_maskz_srli_epi64(0xff, p0, 32), c.w[3], _mm512_set1_epi64(key_high)), p0}};
    return rounds<kRounds - 1>(next, key_low + 0x9E3779B9u, key_high + 0xBB67AE85u);
  }
}
#endif

/// The words of 16 consecutive counters from `first`, a multiple of 16, on: words[k][j] is word k
/// of counter first + j.
inline void draw_lanes(std::uint64_t key, std::uint64_t first, std::uint64_t subsequence,
                       std::uint32_t (&words)[4][kLanes]) {
#ifdef __AVX512F__
  const auto all = [](std::uint64_t x) { return _mm512_set1_epi64(static_cast<long long>(x)); };
  const auto draw8 = [&](std::uint64_t odd) {
    return rounds<10>(WideWords{{_mm512_add_epi64(all((first & 0xffffffffu) + odd),
                                                  _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0)),
                                 all(first >> 32), all(subsequence), all(subsequence >> 32)}},
                      static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32));
  };
  const WideWords even = draw8(0), odd = draw8(1);
  for (int k = 0; k < 4; ++k) {
    _mm512_storeu_si512(
        words[k],
        _mm512_mask_blend_epi32(0xAAAA, even.w[k], _mm512_maskz_slli_epi64(0xff, odd.w[k], 32)));
  }
#else
#pragma omp simd simdlen(kLanes)
  for (int j = 0; j < kLanes; ++j) {
    // first + j never carries into the high word, which keeps the lanes 32 bits wide.
    const Words drawn =
        draw(key, (first & ~std::uint64_t{0xffffffffu}) | (static_cast<std::uint32_t>(first) + j),
             subsequence);
    for (int k = 0; k < 4; ++k) words[k][j] = drawn.w[k];
  }
#endif
}

/// CPU: the 16 counters of a chunk together. The bits wait in an array, because f may call
/// functions (erf) that keep the compiler from vectorising a loop which also draws.
template <class F> void each_bits(const cpu::Team&, std::uint64_t key, std::uint64_t step,
                                  std::int64_t chunk, const F& f) {
  std::uint32_t words[4][kLanes], bits[kChunk];
  draw_lanes(key, static_cast<std::uint64_t>(chunk) * kLanes, step, words);
  for (int k = 0; k < 4; ++k) {
#pragma omp simd
    for (int j = 0; j < kLanes; ++j) {
      bits[2 * k * kLanes + j] = words[k][j] & 0xffffu;
      bits[(2 * k + 1) * kLanes + j] = words[k][j] >> 16;
    }
  }
  const F local = f;  // through the reference, captured pointers would be reloaded
#pragma omp simd
  for (std::int64_t position = 0; position < kChunk; ++position) local(position, bits[position]);
}

/// CPU, for tiled kernels: the factors (0 or scale) of the elements of whole chunks, first_chunk
/// onwards, into out[count_chunks * 128]. Serial.
template <class T> void keep_factors(std::uint64_t key, std::uint64_t step,
                                     std::int64_t first_chunk, std::int64_t count_chunks,
                                     std::uint32_t threshold, T scale, T* out) {
  for (std::int64_t c = 0; c < count_chunks; ++c) {
    T* const chunk_out = out + c * kChunk;
    each_bits(cpu::Team{}, key, step, first_chunk + c,
              [=](std::int64_t position, std::uint32_t bits) {
                chunk_out[position] = bits >= threshold ? scale : T(0);
              });
  }
}
#endif

}  // namespace skytape::philox
