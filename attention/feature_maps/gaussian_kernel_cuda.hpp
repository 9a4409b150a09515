// Definitions that the fused CUDA routines of the kernel products share: gaussian_kernel_fp32.cu
// and gaussian_kernel_tensor_core.cu (tf32 and bf16), one of which gaussian_kernel.cu calls.
//
// A block owns a chunk of rows of one head. The landmarks stay in its shared memory while the rows
// go by in tiles, each read once; C and E live in registers or shared memory for as long as their
// tile. Results of rows are complete. Results of landmarks are sums over rows: a block writes those
// of its chunk, and a second kernel adds the chunks in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "tensor/launch/cuda.hpp"
#include "tensor/launch/four.hpp"

namespace skytape::attention::kernel_cuda {

/// The result of a call: C y; C^T u; or dx and dw, with du = C y or with dy = C^T u.
enum class Form { times, transposed, backward_du, backward_dy };

constexpr bool has_gradient(Form f) { return f == Form::backward_du || f == Form::backward_dy; }
/// C y, a result of rows.
constexpr bool has_row_values(Form f) { return f == Form::times || f == Form::backward_du; }
/// C^T u, a result of landmarks.
constexpr bool has_landmark_values(Form f) {
  return f == Form::transposed || f == Form::backward_dy;
}

inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / cuda::kWarp;
inline constexpr int kLandmarks = 128;           // of a head at most: kFusedLandmarks
inline constexpr std::int64_t kChunkRows = 512;  // of a block, whole tiles

struct Sizes {
  std::int64_t heads, rows, landmarks, width, factor;  // G, N, L, D, P
  std::int64_t chunks;                                 // of a head's rows
  std::int64_t sharing;                                // heads of an example: they share a mask
  bool gaussian;                                       // as in KernelInputs
};

/// The factors of rows when they are loaded, and of their gradients when they are stored.
struct RowFactors {
  const float* mask = nullptr;  // [G / sharing, N]; null: all 1
  float scale = 1;

  /// From row `first` of head g on.
  __device__ RowFactors from(const Sizes& s, std::int64_t g, std::int64_t first) const {
    return {mask == nullptr ? nullptr : mask + g / s.sharing * s.rows + first, scale};
  }
  /// Returns the factor of a row; the row must exist.
  __device__ float of(int row) const { return mask == nullptr ? scale : scale * mask[row]; }
};

/// Null where the form has none.
struct Arrays {
  const float *x, *w;  // [G, N, D], [G, L, D]
  const float *u, *y;  // [G, N, P], [G, L, P]
  float *dx, *cy;      // [G, N, D], [G, N, P]
  float *dw, *cu;      // [G, chunks, L, D], [G, chunks, L, P]
  RowFactors of_x, of_u;
};

using cuda::Four;

/// Calls f.operator()<kD, kP>() for the smallest compiled widths of x and of u that hold the
/// call's.
template <class F> auto dispatch_widths(std::int64_t width, std::int64_t factor, const F& f) {
  if (width <= 32 && factor <= 32) return f.template operator()<32, 32>();
  if (width <= 32 && factor <= 48) return f.template operator()<32, 48>();
  if (factor <= 64) return f.template operator()<64, 64>();
  return f.template operator()<64, 80>();
}

/// Calls f.operator()<kD, kP, kForm>() for these widths.
template <class F> void dispatch(Form form, const Sizes& s, const F& f) {
  dispatch_widths(s.width, s.factor, [&]<int kD, int kP>() {
    switch (form) {
      case Form::times:
        return f.template operator()<kD, kP, Form::times>();
      case Form::transposed:
        return f.template operator()<kD, kP, Form::transposed>();
      case Form::backward_du:
        return f.template operator()<kD, kP, Form::backward_du>();
      case Form::backward_dy:
        return f.template operator()<kD, kP, Form::backward_dy>();
    }
  });
}

/// Launches one block per chunk of rows of every head, each with so many bytes of shared memory.
template <class Operands> void start(const char* name, void (*kernel)(Sizes, Operands),
                                     const Sizes& s, const Operands& in, std::size_t bytes) {
  const std::int64_t blocks = s.heads * s.chunks;
  ENSURE(blocks <= std::numeric_limits<std::int32_t>::max(), name, ": ", blocks,
         " chunks of rows are too many for one launch");
  cuda::launch({name, static_cast<unsigned>(blocks), kThreads, bytes}, kernel, s, in);
}

void fp32_form(Form form, const Sizes& s, const Arrays& in);
/// At tf32 or bf16.
void tensor_core_form(Form form, const Sizes& s, const Arrays& in);
/// Return the bytes of shared memory of a block of these, for rows and factors so wide.
[[nodiscard]] std::size_t fp32_bytes(std::int64_t width, std::int64_t factor);
[[nodiscard]] std::size_t tensor_core_bytes(std::int64_t width, std::int64_t factor);

}  // namespace skytape::attention::kernel_cuda
