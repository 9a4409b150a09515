// The plan that both halves of tiled attention are given (tiled_cpu.cpp; tiled.cu and
// tiled_tensor_core.cu). Equation (1) is tiled.hpp's, (2) to (5) are derived in tiled.cpp.
#pragma once

#include <cstdint>

#include "attention/tiled/tiled.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/random/dropout.hpp"

namespace skytape::attention {

/// Widest head that a GPU's tensor cores serve, at tf32 and bf16; wider ones would not leave their
/// sums in registers and stay in true fp32.
inline constexpr std::int64_t kTensorCoreWidth = 64;

namespace tiled_cuda {
/// Returns whether a GPU's tensor cores compute a call: f32 at tf32 or bf16, heads up to
/// kTensorCoreWidth.
[[nodiscard]] bool on_tensor_cores(const Tensor& q);
}  // namespace tiled_cuda

/// Rounded up to whole chunks of dropout.
constexpr std::int64_t whole_chunks(std::int64_t n) {
  return ceil_div(n, tensor::kDropoutChunk) * tensor::kDropoutChunk;
}

/// Sizes and constants of one call.
struct TiledPlan {
  Score score = Score::softmax;
  double scale = 1;
  bool mask_queries = false;
  std::int64_t batch = 0, heads = 0, queries = 0, keys = 0, width = 0;  // B, H, N, M, D
  // Dropout: the element number of (b, h, i, j) is
  //   ((first_head + b H + h) row_count + i) row_stride + j
  std::uint64_t key = 0;
  const std::int32_t* step = nullptr;  // on the device of the tensors; null: step 0
  std::uint32_t threshold = 0;         // an element whose 16 bits are below is dropped; 0: none
  double keep_scale = 1;               // of kept weights
  std::int64_t first_head = 0;         // first_example H
  std::int64_t row_count = 0;          // nominal length
  std::int64_t row_stride = 0;         // nominal length rounded up to whole dropout chunks
};

/// Returns the plan of a call with q of this shape [B, H, N, D]. Throws, naming op, where its dropout
/// does not fit.
[[nodiscard]] TiledPlan tiled_plan(const char* op, const Shape& q, std::int64_t keys,
                                   const TiledOptions& options, Device device);
/// Returns the tensor in which forward keeps dropout's decisions for backward. A GPU keeps them as
/// long as their bits, N M a head, take no more memory than q, k, v and out of that type, so that
/// memory stays linear in the length: heads 32 wide in f32 keep them up to N = M = 4096. Elsewhere
/// the tensor is undefined, and backward draws the decisions again.
[[nodiscard]] Tensor kept_decisions(const TiledPlan& plan, DType dtype, Device device);

/// Tensors that both passes read, undefined where the method has none. On tensor cores q, k and the
/// rest are as given, and the kernel that rounds q and k makes the terms of (1) and (3) from them;
/// elsewhere q is masked and row, column and delta are made before.
struct TiledInputs {
  Tensor q;          // [B, H, N, D]
  Tensor k, v;       // [B, H, M, D]
  Tensor row;        // [B, H, N]: a_i of (1) for gaussian; for softmax the lse, in backward only
  Tensor column;     // [B, H, M]: b_j of (1)
  Tensor keep;       // [B, H, N, M]
  Tensor kept = {};  // as TiledForward::kept, backward only
  Tensor mask = {};  // on tensor cores: [B, M]
  Tensor out = {};   // on tensor cores, backward: [B, H, N, D], undefined without dout
  Tensor dlse = {};  // on tensor cores, backward: [B, H, N]
};

/// Fills out [B, H, N, D] (if v is defined), lse [B, H, N] (softmax) and kept (if it is defined).
void tiled_forward_on(Cpu, const TiledPlan& plan, const TiledInputs& in, TiledForward& result);
void tiled_forward_on(Cuda, const TiledPlan& plan, const TiledInputs& in, TiledForward& result);

/// With e_ij = w_ij (keep_ij dout_i.v_j - delta_i) fills
///   dq_i = scale sum_j e_ij k_j    dk_j = scale sum_i e_ij q_i    dv_j = sum_i w_ij keep_ij dout_i
/// dout: [B, H, N, D], undefined iff v is; delta: [B, H, N]. On tensor cores delta is undefined, dq
/// and dk are complete: (4), (5) and the mask of queries included.
void tiled_backward_on(Cpu, const TiledPlan& plan, const TiledInputs& in, const Tensor& dout,
                       const Tensor& delta, TiledBackward& result);
void tiled_backward_on(Cuda, const TiledPlan& plan, const TiledInputs& in, const Tensor& dout,
                       const Tensor& delta, TiledBackward& result);

}  // namespace skytape::attention
