// Definitions that the two CUDA routines of tiled attention share: tiled.cu (fp32 and f64, any head
// width up to 128) and tiled_tensor_core.cu (tf32 and bf16, head widths up to 64).
#pragma once

#include <cstdint>
#include <limits>

#include "attention/tiled/tiled_plan.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/launch/cuda.hpp"

namespace skytape::attention::tiled_cuda {

/// Typed pointers of one call; see TiledInputs for the shapes. Null where undefined. Backward reads
/// `out` where it gets it.
template <class T> struct Arrays {
  const T *q, *k, *v, *row, *column, *mask, *keep;
  const T *dout, *delta, *dlse;  // backward
  T *out, *lse, *dq, *dk, *dv;   // results
  std::uint32_t* kept;           // TiledForward::kept: forward writes it, backward reads it
};

inline std::uint32_t* words(const Tensor& kept) {
  return reinterpret_cast<std::uint32_t*>(kept.data_or_null<std::int32_t>());
}

template <class T> Arrays<T> inputs(const TiledInputs& in) {
  Arrays<T> a{};
  a.q = in.q.data<T>();
  a.k = in.k.data<T>();
  a.v = in.v.data_or_null<T>();
  a.row = in.row.data_or_null<T>();
  a.column = in.column.data_or_null<T>();
  a.mask = in.mask.data_or_null<T>();
  a.keep = in.keep.data_or_null<T>();
  return a;
}
template <class T> Arrays<T> forward_arrays(const TiledInputs& in, const TiledForward& result) {
  Arrays<T> a = inputs<T>(in);
  a.out = result.out.data_or_null<T>();
  a.lse = result.lse.data_or_null<T>();
  a.kept = words(result.kept);
  return a;
}
template <class T> Arrays<T> backward_arrays(const TiledInputs& in, const Tensor& dout,
                                             const Tensor& delta, const TiledBackward& result) {
  Arrays<T> a = inputs<T>(in);
  a.dout = dout.data_or_null<T>();
  a.delta = delta.data_or_null<T>();
  a.out = in.out.data_or_null<T>();
  a.dlse = in.dlse.data_or_null<T>();
  a.dq = result.dq.data<T>();
  a.dk = result.dk.data<T>();
  a.dv = result.dv.data_or_null<T>();
  a.kept = words(in.kept);
  return a;
}

/// Blocks of a launch with one per tile of `rows` rows of every head.
inline std::int64_t blocks_for(const TiledPlan& plan, std::int64_t rows, int tile) {
  const std::int64_t blocks = plan.batch * plan.heads * ceil_div(rows, tile);
  ENSURE(blocks <= std::numeric_limits<std::int32_t>::max(), "tiled attention: ", blocks,
         " tiles are too many for one launch");
  return blocks;
}

/// The block's head and its first own row, where every `own` rows of a head have a block
/// (blocks_for).
struct OwnRows {
  std::int64_t bh;
  int first;
  __device__ OwnRows(std::int64_t rows, int own) {
    const auto blocks = static_cast<unsigned>(ceil_div(rows, own));
    bh = blockIdx.x / blocks;
    first = static_cast<int>(blockIdx.x % blocks) * own;
  }
};

/// Row r of a tile is row first + r of source [count, width], null beyond; all null without a
/// source.
template <class T> struct Consecutive {
  T* source;
  std::int64_t first, count, width;
  __device__ T* operator()(int row) const {
    return source != nullptr && first + row < count ? source + (first + row) * width : nullptr;
  }
};

/// Rows of an array [B, H, count, D] that belong to a head, from `first` on; zeros where it is
/// null.
template <class T> __device__ Consecutive<T> rows_of(T* source, const TiledPlan& plan,
                                                     std::int64_t bh, std::int64_t first,
                                                     std::int64_t count) {
  T* const head = source == nullptr ? nullptr : source + bh * count * plan.width;
  return {head, first, count, plan.width};
}

void tensor_core_forward(const TiledPlan& plan, const Arrays<float>& in);
void tensor_core_backward(const TiledPlan& plan, const Arrays<float>& in);

}  // namespace skytape::attention::tiled_cuda
