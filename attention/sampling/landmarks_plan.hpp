// The plan that the CPU and CUDA builds of the landmark kernels are given.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "attention/sampling/landmarks.hpp"

namespace skytape::attention {

enum class LandmarkRule { independent, official, uniform };

struct LandmarkPlan {
  LandmarkRule rule = LandmarkRule::independent;
  std::int64_t batch = 0, heads = 0, rows = 0;  // B, H (1 for official), N
  std::int64_t slots = 0;                       // A L
  std::int64_t first_example = 0;
  bool alone = false;  // every example draws as example 0
  std::uint64_t key = 0;
  const std::int32_t* step = nullptr;  // on the tensors' device; null: step 0
};

/// Positions per block of the counts that find the k-th real token without a scan of the row.
inline constexpr std::int64_t kCountBlock = 64;

/// mask: [B, N] -> counts: i32[B, blocks], real tokens in each block of kCountBlock positions.
void count_tokens_on(Cpu, const Tensor& mask, Tensor& counts);
void count_tokens_on(Cuda, const Tensor& mask, Tensor& counts);

/// out: i32 [B, heads, slots].
void draw_landmarks_on(Cpu, const LandmarkPlan& plan, const Tensor& mask, const Tensor& counts,
                       Tensor& out);
void draw_landmarks_on(Cuda, const LandmarkPlan& plan, const Tensor& mask, const Tensor& counts,
                       Tensor& out);

/// The factors of gathered rows.
struct LandmarkFactors {
  Tensor mask;  // [B, N]; undefined: 1
  double scale = 1;
};

void gather_landmarks_on(Cpu, const Tensor& q, const Tensor& k, const Tensor& index,
                         const LandmarkFactors& factors, Tensor& w);
void gather_landmarks_on(Cuda, const Tensor& q, const Tensor& k, const Tensor& index,
                         const LandmarkFactors& factors, Tensor& w);

/// dw: the terms of a sum, those that there are not undefined.
inline constexpr std::size_t kScatterTerms = 3;
using ScatterTerms = std::array<Tensor, kScatterTerms>;
void scatter_landmarks_on(Cpu, const ScatterTerms& dw, const Tensor& index,
                          const LandmarkFactors& factors, Tensor& dq, Tensor& dk);
void scatter_landmarks_on(Cuda, const ScatterTerms& dw, const Tensor& index,
                          const LandmarkFactors& factors, Tensor& dq, Tensor& dk);

}  // namespace skytape::attention
