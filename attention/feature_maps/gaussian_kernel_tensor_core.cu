// Fused kernel products on tensor cores, at tf32 and bf16.
//
// A block of eight warps takes 128 rows at a time against up to 128 landmarks. Its work is the same
// twice, with the sides exchanged. For own rows of either side, 16 a warp, against all rows of the
// other, 16 at a time (`walk`, gaussian_kernel_fragments.hpp):
//
//   C = exp(x.w - norms)    E = C (u.y)    d += E first    values += C second    sums += E 1
//
// with (first, second) the other side's (w, y) or (x, u). So rows end up with dx and C y, landmarks
// with dw and C^T u, and each result has one owner who adds it up in order. Scores are formed twice
// in backward: two products of seven, for which C and E never leave a lane's registers
// (tensor_core.hpp).
#include <cstdint>

#include "attention/feature_maps/gaussian_kernel_cuda.hpp"
#include "attention/feature_maps/gaussian_kernel_fragments.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/gemm/tensor_core.hpp"
#include "tensor/launch/four.hpp"
#include "tensor/launch/math.hpp"
#include "tensor/tokens/prefetch.hpp"

namespace skytape::attention::kernel_cuda {
namespace {

using cuda::TensorCore;

/// The least number of blocks that a multiprocessor holds; 0: as the compiler finds best. With 0 it
/// would spill registers to fit a second block for the gradients of wide rows, or a fourth for
/// tf32's narrow rows, and would just miss a second block for the values of wide rows and a fourth
/// for bf16's narrow ones.
template <Precision kPrecision, int kD, int kP, Form kForm>
inline constexpr int kResident = kPrecision == Precision::bf16&& kD > 32 && !has_gradient(kForm) ? 2
                                 : kD + kP > 64                                                  ? 1
                                 : has_gradient(kForm)                                           ? 0
                                 : kPrecision == Precision::tf32                                 ? 3
                                                                 : 4;

/// Has the L2 cache fetch rows [count, width] while their block works on others; a hint, which rows
/// that are no whole fours do without.
__device__ void fetch(const float* rows, int count, std::int64_t width) {
  if (threadIdx.x != 0 || width % 4 != 0 || !Four<float>::aligned(rows)) return;
  cuda::prefetch(rows, count * width);
}

template <Precision kPrecision, int kD, int kP, Form kForm>
__global__ void __launch_bounds__(kThreads, kResident<kPrecision, kD, kP, kForm>)
    form_kernel(Sizes s, Arrays in) {
  using Memory = Shared<TensorCore<kPrecision>, kD, kP>;
  constexpr bool kGradient = has_gradient(kForm), kValues = has_landmark_values(kForm);
  auto& shared = *reinterpret_cast<Memory*>(cuda::dynamic_shared());
  const WarpRows at;
  const std::int64_t g = blockIdx.x / s.chunks, chunk = blockIdx.x % s.chunks;
  const std::int64_t begin = g * s.rows + chunk * kChunkRows;  // of all heads' rows
  const int rows = static_cast<int>(math::min(kChunkRows, s.rows - chunk * kChunkRows));
  const int landmarks = static_cast<int>(s.landmarks);
  const auto fetch_tile = [&](int from) {
    if constexpr (kD > 32) {  // narrow rows are waited for once
      if (from >= rows) return;
      const int count = math::min(kTile, rows - from);
      fetch(in.x + (begin + from) * s.width, count, s.width);
      if (kForm != Form::times) fetch(in.u + (begin + from) * s.factor, count, s.factor);
    }
  };

  fetch_tile(0);
  shared.landmarks.first.load(in.w + g * s.landmarks * s.width, s.landmarks, s.width, s.gaussian,
                              shared.landmarks.term);
  if constexpr (kForm != Form::transposed) {
    shared.landmarks.second.load(in.y + g * s.landmarks * s.factor, s.landmarks, s.factor);
  }
  Totals<kD, kP> of_landmarks;
  for (int from = 0; from < rows; from += kTile) {
    const int count = math::min(kTile, rows - from);
    const std::int64_t first = begin + from;
    const RowFactors of_x = in.of_x.from(s, g, chunk * kChunkRows + from);
    const RowFactors of_u = in.of_u.from(s, g, chunk * kChunkRows + from);
    __syncthreads();  // everybody is done with the last rows
    shared.rows.first.load(in.x + first * s.width, count, s.width, s.gaussian, shared.rows.term,
                           of_x);
    if constexpr (kForm != Form::times) {
      shared.rows.second.load(in.u + first * s.factor, count, s.factor, of_u);
    }
    __syncthreads();
    fetch_tile(from + kTile);
    if constexpr (kForm != Form::transposed) {
      if (at.row < count) {
        Totals<kD, kP> of_rows;
        walk<kGradient, has_row_values(kForm)>(at, shared.rows, shared.landmarks, landmarks,
                                               of_rows);
        finish<kGradient, has_row_values(kForm)>(at, shared.rows.first, s, of_rows, in.dx, in.cy,
                                                 first, count, of_x,
                                                 kGradient ? of_u : RowFactors{});
      }
    }
    if constexpr (kForm != Form::times) {
      if (at.row >= landmarks) continue;
      walk<kGradient, kValues>(at, shared.landmarks, shared.rows, count, of_landmarks);
    }
  }
  if constexpr (kForm != Form::times) {
    if (at.row >= landmarks) return;
    finish<kGradient, kValues>(at, shared.landmarks.first, s, of_landmarks, in.dw, in.cu,
                               blockIdx.x * s.landmarks, landmarks);
  }
}

template <Precision kPrecision> void form_at(Form form, const Sizes& s, const Arrays& in) {
  dispatch(form, s, [&]<int kD, int kP, Form kForm>() {
    start("kernel products on tensor cores", form_kernel<kPrecision, kD, kP, kForm>, s, in,
          sizeof(Shared<TensorCore<kPrecision>, kD, kP>));
  });
}

}  // namespace

void tensor_core_form(Form form, const Sizes& s, const Arrays& in) {
  if (precision(Device::cuda) == Precision::tf32) {
    form_at<Precision::tf32>(form, s, in);
  } else {
    form_at<Precision::bf16>(form, s, in);
  }
}

std::size_t tensor_core_bytes(std::int64_t width, std::int64_t factor) {
  return dispatch_widths(width, factor, [&]<int kD, int kP>() {
    return precision(Device::cuda) == Precision::tf32
               ? sizeof(Shared<TensorCore<Precision::tf32>, kD, kP>)
               : sizeof(Shared<TensorCore<Precision::bf16>, kD, kP>);
  });
}

}  // namespace skytape::attention::kernel_cuda
