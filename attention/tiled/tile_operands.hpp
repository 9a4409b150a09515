// The operands that the kernels of tiled attention on tensor cores read, CUDA only. A separate
// kernel rounds rows to the products' number type once, instead of every block that walks over
// them. It takes them from where they are: by head, or side by side as a projection gives them. It
// pads heads to whole chunks and rows to a compiled width, so that a tile is one run of memory that
// is copied to shared memory (cp.async) without a test. Padding has weight zero. The same kernel
// makes the terms of scores and delta, (1) and (3), from the rows while it has them, as the
// products' initial values.
//
// Kernels divide terms by the scale and take the largest product for the largest score: theirs is
// positive, |scale|, or 1 for 0. The call's sign, 1, -1 or 0, is in q's operand.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "attention/tiled/tensor_core_tiles.hpp"
#include "attention/tiled/tiled_cuda.hpp"
#include "tensor/core/bf16.hpp"
#include "tensor/launch/four.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::attention::tiled_cuda {

/// Rows of a head are padded to a multiple of this: a chunk of dropout, two tiles.
inline constexpr int kPadded = tensor::kDropoutChunk;

/// Rows of heads by head, [B, H, count, D]. Null: zeros.
struct ByHead {
  const float* first = nullptr;

  /// Entries [c, c + 4) of row i of head bh = b H + h, zeros beyond D.
  __device__ cuda::Four<float> four(const TiledPlan& plan, std::int64_t bh, std::int64_t count,
                                    std::int64_t i, int c) const {
    const float* const row = first == nullptr ? nullptr : first + (bh * count + i) * plan.width;
    return cuda::load_four(row, c, plan.width);
  }
};
/// Rows [B, count, of_row] of f32 or bf16, a head's D entries behind those of the head before, and
/// a bias [H D] to be added, if it is not null.
template <class T> struct SideBySide {
  const T* first = nullptr;
  std::int64_t of_row = 0;
  const float* bias = nullptr;

  __device__ cuda::Four<float> four(const TiledPlan& plan, std::int64_t bh, std::int64_t count,
                                    std::int64_t i, int c) const {
    cuda::Four<float> numbers;
    const auto heads = static_cast<unsigned>(plan.heads), head = static_cast<unsigned>(bh);
    const std::int64_t row = head / heads * count + i, begin = head % heads * plan.width;
    const cuda::Four<T> stored = cuda::load_four(first + row * of_row + begin, c, plan.width);
    const cuda::Four<float> added =
        cuda::load_four(bias == nullptr ? nullptr : bias + begin, c, plan.width);
#pragma unroll
    for (int u = 0; u < 4; ++u) numbers.x[u] = static_cast<float>(stored.x[u]) + added.x[u];
    return numbers;
  }
};

/// Stands for rows that a pass has none of: all of them are zeros.
struct NoRows {
  __device__ cuda::Four<float> four(const TiledPlan&, std::int64_t, std::int64_t, std::int64_t,
                                    int) const {
    return {};
  }
};

/// The tensors that operands are made of: `In` is one of the above for what goes in, `Out` for what
/// comes out and its gradient.
template <class In, class Out> struct OperandSources {
  In q = {}, k = {}, v = {};
  Out dout = {}, out = {};      // backward
  const float* lse = nullptr;   // [B, H, N], backward of softmax
  const float* dlse = nullptr;  // [B, H, N], backward; null: zero
  const float* mask = nullptr;  // [B, M]
};

/// Which operands a pass has.
struct WantedOperands {
  bool q_and_k = true, v = true;
  bool dout = false;   // and minus_delta
  bool shift = false;  // of queries
  bool sums = false;
};

/// N' and M': queries and keys of a head, padded. Null where a pass has none.
template <class Number> struct TileOperands {
  Number *q, *dout;            // [B H, N', kWidth], sign q and dout, zeros beyond N and D
  Number *k, *v;               // [B H, M', kWidth]
  float* shift;                // [B H, N']: added to sign q.k, a_i / scale; -inf beyond N
  float* minus_delta;          // [B H, N']: -delta_i of (3) in tiled.cpp, backward; 0 beyond N
  float* sums;                 // [B H, N']: sign sum_j e_ij of (4), backward of gaussian
  float* column;               // [B H, M']: added to sign q.k, b_j / scale; -inf beyond M
  std::int64_t queries, keys;  // N', M'
  float scale, sign;           // of kernels and in q: their product is the call's scale
};

/// Operands of head bh and those behind it.
template <int kWidth, class Operands>
__device__ Operands head_of(const Operands& in, std::int64_t bh) {
  Operands head = in;
  const auto skip = [](auto*& from, std::int64_t count) {
    if (from != nullptr) from += count;
  };
  const std::int64_t queries = bh * in.queries, keys = bh * in.keys;
  skip(head.q, queries * kWidth);
  skip(head.dout, queries * kWidth);
  skip(head.k, keys * kWidth);
  skip(head.v, keys * kWidth);
  skip(head.shift, queries);
  skip(head.minus_delta, queries);
  skip(head.sums, queries);
  skip(head.column, keys);
  return head;
}

/// Rounds four numbers to `target`, in global memory; they become what was stored.
template <class Core>
__device__ void round_to(cuda::Four<float>& four, typename Core::Number* target) {
  cuda::Four<typename Core::Number> rounded;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    rounded.x[i] = Core::rounded(four.x[i]);
    four.x[i] = Core::value(rounded.x[i]);
  }
  rounded.store_global(target);
}
/// The product of two rows, of which each of kLanes neighbouring lanes has four entries.
template <int kLanes>
__device__ float row_dot(const cuda::Four<float>& a, const cuda::Four<float>& b) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) sum += a.x[i] * b.x[i];
  return cuda::warp_reduce<kLanes>(sum);
}

/// A block writes kPadded rows of one head: blockIdx.y = 0 of its queries, 1 of its keys. Eight
/// blocks fill a multiprocessor.
template <Precision kPrecision, int kWidth, class Sources>
__global__ void __launch_bounds__(cuda::kBlockThreads, 8)
    operands_kernel(TiledPlan plan, Sources in,
                    TileOperands<typename cuda::TensorCore<kPrecision>::Number> out) {
  using Core = cuda::TensorCore<kPrecision>;
  using tensor_core_tiles::kNothing;
  constexpr int kLanes = kWidth / 4;  // of a row
  const bool of_queries = blockIdx.y == 0, gaussian = plan.score == Score::gaussian;
  const std::int64_t count = of_queries ? plan.queries : plan.keys;
  const auto blocks = static_cast<unsigned>((of_queries ? out.queries : out.keys) / kPadded);
  if (blockIdx.x >= blocks * plan.batch * plan.heads) return;  // the other side has more
  const unsigned bh = blockIdx.x / blocks;
  const std::int64_t first = std::int64_t{blockIdx.x % blocks} * kPadded;
  const float* const mask = in.mask + bh / plan.heads * plan.keys;  // [M]

  for (int e = threadIdx.x; e < kPadded * kLanes; e += cuda::kBlockThreads) {
    const int c = e % kLanes * 4;
    const std::int64_t i = first + e / kLanes;
    const std::int64_t to = std::int64_t{bh} * blocks * kPadded + i;
    const bool inside = i < count;
    const auto four = [&](const auto& rows) {
      return inside ? rows.four(plan, bh, count, i, c) : cuda::Four<float>{};
    };
    if (of_queries) {
      cuda::Four<float> q = four(in.q), dout = four(in.dout), result = four(in.out);
      const float factor = plan.mask_queries && inside ? out.sign * mask[i] : out.sign;
#pragma unroll
      for (float& x : q.x) x *= factor;
      if (out.q != nullptr) round_to<Core>(q, out.q + to * kWidth + c);
      if (out.dout != nullptr) round_to<Core>(dout, out.dout + to * kWidth + c);
      const float square = row_dot<kLanes>(q, q), sum = row_dot<kLanes>(dout, result);
      if (c != 0 || out.shift == nullptr) continue;
      float shift = kNothing, minus_delta = 0;
      if (inside && gaussian) {
        shift = -0.5f * out.sign * square;
      } else if (inside) {
        const std::int64_t row = bh * count + i;
        // A row without a real key: its weights vanish by their column terms.
        shift = in.lse[row] == kNothing ? 0.0f : -in.lse[row] / out.scale;
        minus_delta = in.dlse == nullptr ? -sum : in.dlse[row] - sum;
      }
      out.shift[to] = shift;
      if (out.minus_delta != nullptr) out.minus_delta[to] = minus_delta;
      if (out.sums != nullptr) out.sums[to] = out.sign * sum;
    } else {
      cuda::Four<float> k = four(in.k), v = four(in.v);
      round_to<Core>(k, out.k + to * kWidth + c);
      if (out.v != nullptr) round_to<Core>(v, out.v + to * kWidth + c);
      const float square = row_dot<kLanes>(k, k);
      if (c != 0) continue;
      const float norm = gaussian ? 0.5f * out.sign * square : 0.0f;
      out.column[to] = inside ? math::log(mask[i]) / out.scale - norm : kNothing;
    }
  }
}

/// The memory of a pass's operands.
struct OperandMemory {
  Tensor rows, entries;  // numbers of either kind, one array behind the other
};

/// Returns the operands that a pass wants, without their numbers, in this memory; where there is
/// none yet, it is made.
template <class Number, int kWidth> TileOperands<Number> operands_in(OperandMemory& memory,
                                                                     const TiledPlan& plan,
                                                                     const WantedOperands& wanted) {
  TileOperands<Number> t{};
  t.queries = whole_chunks(plan.queries);
  t.keys = whole_chunks(plan.keys);
  const auto scale = static_cast<float>(plan.scale);
  t.sign = scale == 0 ? 0.0f : std::copysign(1.0f, scale);
  t.scale = scale == 0 ? 1.0f : std::abs(scale);
  const std::int64_t heads = plan.batch * plan.heads;
  const std::int64_t queries = heads * t.queries, keys = heads * t.keys;

  struct Part {
    bool wanted;
    std::int64_t rows;
  };
  const Part q{wanted.q_and_k, queries}, dout{wanted.dout, queries}, k{wanted.q_and_k, keys},
      v{wanted.v, keys}, column{wanted.q_and_k, keys}, shift{wanted.shift, queries},
      sums{wanted.sums, queries};
  const auto all = [](std::initializer_list<Part> parts) {
    std::int64_t rows = 0;
    for (const Part& part : parts) rows += part.wanted ? part.rows : 0;
    return rows;
  };
  if (!memory.rows.defined()) {
    const std::int64_t numbers = all({q, dout, k, v}) * kWidth;
    const Shape words{numbers * static_cast<std::int64_t>(sizeof(Number)) / 4};
    memory.rows = Tensor::empty(words, DType::f32, Device::cuda);
    memory.entries =
        Tensor::empty(Shape{all({column, shift, dout, sums})}, DType::f32, Device::cuda);
  }
  auto* number = reinterpret_cast<Number*>(memory.rows.data<float>());
  const auto take_rows = [&](const Part& part) -> Number* {
    return part.wanted ? std::exchange(number, number + part.rows * kWidth) : nullptr;
  };
  t.q = take_rows(q);
  t.dout = take_rows(dout);
  t.k = take_rows(k);
  t.v = take_rows(v);
  float* entry = memory.entries.data<float>();
  const auto take = [&](const Part& part) -> float* {
    return part.wanted ? std::exchange(entry, entry + part.rows) : nullptr;
  };
  t.column = take(column);
  t.shift = take(shift);
  t.minus_delta = take(dout);
  t.sums = take(sums);
  return t;
}

/// The operands of a pass and the memory that holds them.
template <class Number> struct PreparedOperands {
  OperandMemory memory;
  TileOperands<Number> tiles;
};

/// Writes the operands that a pass wants.
template <Precision kPrecision, int kWidth, class Sources>
PreparedOperands<typename cuda::TensorCore<kPrecision>::Number> prepare_operands(
    const TiledPlan& plan, const WantedOperands& wanted, const Sources& in) {
  using Number = typename cuda::TensorCore<kPrecision>::Number;
  PreparedOperands<Number> p;
  p.tiles = operands_in<Number, kWidth>(p.memory, plan, wanted);
  const std::int64_t rows = wanted.q_and_k ? std::max(plan.queries, plan.keys) : plan.queries;
  const std::int64_t blocks = blocks_for(plan, rows, kPadded);
  if (blocks > 0) {
    const unsigned sides = wanted.q_and_k ? 2 : 1;
    cuda::launch({"operands of tiled attention", dim3(static_cast<unsigned>(blocks), sides),
                  cuda::kBlockThreads},
                 operands_kernel<kPrecision, kWidth, Sources>, plan, in, p.tiles);
  }
  return p;
}

}  // namespace skytape::attention::tiled_cuda
