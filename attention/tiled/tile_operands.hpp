// What the kernels of tiled attention on tensor cores read, CUDA only: rows rounded to the products'
// numbers once, by a kernel of its own, instead of by every block that walks over them; heads padded
// to whole chunks and rows to a compiled width, so that a tile is one run of memory that is copied
// to shared memory (cp.async) without a question. Padding has weight zero.
#pragma once

#include <cstdint>

#include "attention/tiled/tensor_core_tiles.hpp"
#include "attention/tiled/tiled_cuda.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention::tiled_cuda {

/// Rows of a head are padded to a multiple of this: a chunk of dropout, two tiles.
inline constexpr int kPadded = tensor::kDropoutChunk;

/// N' and M': queries and keys of a head, padded. Null where a pass has none.
template <class Number> struct TileOperands {
  Number *q, *dout;            // [B H, N', kWidth], zeros beyond N and D
  Number *k, *v;               // [B H, M', kWidth]
  float* shift;                // [B H, N']: added to a query's scores, base 2; -inf beyond N
  float* delta;                // [B H, N']: delta_i of (3) in tiled.cpp, backward; 0 beyond N
  float* column;               // [B H, M']: added to a key's scores, base 2; -inf beyond M
  std::int64_t queries, keys;  // N', M'
};

/// Rows [first, first + kPadded) of source [count, width] to `target`, or zeros where it is null.
template <class P> __device__ void write_rows(const float* source, std::int64_t first,
                                              std::int64_t count, std::int64_t width,
                                              typename P::Number* target) {
  constexpr int kWidth = P::kWidth;
  const Consecutive<const float> rows{source, first, count, width};
  for (int e = threadIdx.x; e < kPadded * kWidth / 4; e += cuda::kBlock) {
    const int row = e / (kWidth / 4), c = e % (kWidth / 4) * 4;
    P::round_four(rows(row), c, width, target + row * kWidth + c);
  }
}

/// A block writes kPadded rows of one head: blockIdx.y = 0 of its queries, 1 of its keys.
template <Precision kPrecision, int kWidth> __global__ void __launch_bounds__(cuda::kBlock)
    operands_kernel(TiledPlan plan, Arrays<float> in,
                    TileOperands<typename cuda::TensorCore<kPrecision>::Number> out) {
  using P = tensor_core_tiles::Products<kPrecision, kWidth>;
  using tensor_core_tiles::kLog2E;
  using tensor_core_tiles::kNothing;
  const bool of_queries = blockIdx.y == 0;
  const std::int64_t count = of_queries ? plan.queries : plan.keys;
  const auto blocks = static_cast<unsigned>((of_queries ? out.queries : out.keys) / kPadded);
  if (blockIdx.x >= blocks * plan.batch * plan.heads) return;  // the other side has more
  const unsigned bh = blockIdx.x / blocks;
  const std::int64_t first = std::int64_t{blockIdx.x % blocks} * kPadded;
  const std::int64_t from = bh * count, to = std::int64_t{bh} * blocks * kPadded + first;

  const auto write = [&](const float* source, typename P::Number* target) {
    if (target == nullptr) return;
    write_rows<P>(source == nullptr ? nullptr : source + from * plan.width, first, count,
                  plan.width, target + to * kWidth);
  };
  write(of_queries ? in.q : in.k, of_queries ? out.q : out.k);
  write(of_queries ? in.dout : in.v, of_queries ? out.dout : out.v);
  if (threadIdx.x >= kPadded) return;
  const std::int64_t i = first + threadIdx.x;
  const bool inside = i < count;
  if (!of_queries) {
    out.column[to + threadIdx.x] = inside ? kLog2E * in.column[from + i] : kNothing;
    return;
  }
  if (out.shift != nullptr) {
    const float row = inside ? in.row[from + i] : kNothing;
    // A row without a real key: its weights vanish by their column terms.
    const float softmax = inside && row == kNothing ? 0.0f : -kLog2E * row;
    out.shift[to + threadIdx.x] = !inside                        ? kNothing
                                  : plan.score == Score::softmax ? softmax
                                                                 : kLog2E * row;
  }
  if (out.delta != nullptr) out.delta[to + threadIdx.x] = inside ? in.delta[from + i] : 0.0f;
}

/// The operands of a pass and the memory that holds them.
template <class Number> struct PreparedOperands {
  TileOperands<Number> tiles{};
  Tensor rows, entries;  // only memory: numbers of either kind, one array behind the other
};

/// Writes the operands of the forward pass, or of the backward pass if in.delta is given.
template <Precision kPrecision, int kWidth>
PreparedOperands<typename cuda::TensorCore<kPrecision>::Number> prepare_operands(
    const TiledPlan& plan, const Arrays<float>& arrays) {
  Arrays<float> in = arrays;  // without results
  in.out = in.lse = in.dq = in.dk = in.dv = nullptr;
  using Number = typename cuda::TensorCore<kPrecision>::Number;
  const bool backward = in.delta != nullptr;
  const std::int64_t heads = plan.batch * plan.heads;
  PreparedOperands<Number> p;
  TileOperands<Number>& t = p.tiles;
  t.queries = whole_chunks(plan.queries);
  t.keys = whole_chunks(plan.keys);
  const std::int64_t queries = heads * t.queries, keys = heads * t.keys;
  const bool with_v = backward || in.v != nullptr, with_shift = in.row != nullptr;

  const std::int64_t numbers = kWidth * (queries * (backward ? 2 : 1) + keys * (with_v ? 2 : 1));
  p.rows = Tensor::empty({numbers * static_cast<std::int64_t>(sizeof(Number)) / 4}, DType::f32,
                         Device::cuda);
  p.entries = Tensor::empty({keys + queries * (with_shift ? 1 : 0) + queries * (backward ? 1 : 0)},
                            DType::f32, Device::cuda);
  auto* number = reinterpret_cast<Number*>(p.rows.template data<float>());
  const auto take_rows = [&](bool wanted, std::int64_t rows) -> Number* {
    return wanted ? std::exchange(number, number + rows * kWidth) : nullptr;
  };
  t.q = take_rows(true, queries);
  t.dout = take_rows(backward, queries);
  t.k = take_rows(true, keys);
  t.v = take_rows(with_v, keys);
  float* entry = p.entries.template data<float>();
  const auto take = [&](bool wanted, std::int64_t rows) -> float* {
    return wanted ? std::exchange(entry, entry + rows) : nullptr;
  };
  t.column = take(true, keys);
  t.shift = take(with_shift, queries);
  t.delta = take(backward, queries);

  const std::int64_t blocks = blocks_for(plan, std::max(plan.queries, plan.keys), kPadded);
  if (blocks > 0) {
    cuda::launch("operands of tiled attention", operands_kernel<kPrecision, kWidth>,
                 dim3(static_cast<unsigned>(blocks), 2), cuda::kBlock, 0, plan, in, t);
  }
  return p;
}

}  // namespace skytape::attention::tiled_cuda
