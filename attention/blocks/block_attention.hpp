// Block-sparse softmax attention: each block of queries looks at a list of blocks of keys.
//
// Rows are taken in slots: slot s of a head is token s, or whatever token a table puts there (a
// sorted order, several rounds of it). A block is c consecutive slots, for queries and for keys.
// A rule about places expresses anything finer than a block (a window, a stride): head_views.hpp
// makes it.
//
// Notation: B batch, H heads, N tokens, n nominal tokens, D head width, c rows of a block, Q blocks
// of a head, A sets of lists or of places, P = Q c slots, R slots of each token (rounds).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// Says which blocks see which. A block that is listed twice counts twice.
struct BlockPattern {
  std::int64_t block = 64;      // c
  std::int64_t row_blocks = 0;  // Q
  Tensor begin;                 // i32[Q + 1]: where each query block's list starts
  Tensor row;                   // i32[total]: the query block of each entry
  Tensor order;                 // i32[Q]: query blocks, those with long lists first
  Tensor entries;               // i32[A, total]: key blocks, -1 for none; A = 1, or H for own lists
  Tensor token;                 // i32[B, H, P]: token of each slot, -1 for none; undefined: slot
                                // s is token s, and slots from N on hold none
  Tensor slot;                  // i32[B, H, R, N]: its inverse. Undefined: each token has one slot,
                                // the result goes by tokens, and `token`, if there is one, may be
                                // i32[1, 1 or H, P], where numbers from N on stand for none
  Tensor query_place;           // i32[A, n], A = 1 or H: see `reach`; undefined: every query of a
  Tensor key_place;             // i32[A, n]: block sees every key of the blocks that it lists
  Tensor reach;                 // i32[A]: query i sees those listed keys j whose key_place is at
                                // most this far from query_place i, or kSeenByAll
  bool avoid_self = false;      // a token's score for itself is kSelfScore, without gradient, be
                                // it padding or not
};

/// Key place of tokens that every query sees. Other places, and reaches, are smaller than half.
inline constexpr std::int32_t kSeenByAll = 1 << 30;

/// Score of a query for its own key where it shall count only if there is no other key.
inline constexpr double kSelfScore = -1e5;

/// Gives a pattern its row_blocks, begin, row and order; begin: where each query block's list
/// starts, and the end.
void set_rows(BlockPattern& pattern, const std::vector<std::int32_t>& begin, Device device);

/// Lists that shapes alone decide, one for each query block, uploaded at their first use: a step
/// that is repeated copies nothing to the device. Not for several threads at a time.
class BlockLists {
 public:
  using Lists = std::vector<std::vector<std::int32_t>>;
  /// A pattern with row_blocks, begin, row, order and entries [1, total] on `device`; `make` is
  /// called the first time that a key comes.
  [[nodiscard]] BlockPattern pattern(std::int64_t key, Device device,
                                     const std::function<Lists()>& make) const;

 private:
  mutable std::map<std::pair<std::int64_t, Device>, BlockPattern> known_;
};

struct BlockForward {
  Tensor out;  // [B, H, P, D] by slots; [B, H, N, D] where each token has one
  Tensor lse;  // [B, H, P] or [B, H, N]: log of the row sums
};

/// out_i = sum_j w_ij v_j, w_ij = exp(scale q_i.k_j) / row sum, over the real keys that are listed
/// and seen. q, k, v: [B, H, N, D], mask: [B, N]. A row without such keys is zero, its lse -inf.
[[nodiscard]] BlockForward block_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                         const Tensor& mask, const BlockPattern& pattern,
                                         double scale);

struct BlockBackward {
  Tensor dq, dk, dv;  // [B, H, N, D]
};
/// Gradients from dout (as out) and, if defined, dlse (as lse). Weights are recomputed.
[[nodiscard]] BlockBackward block_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                           const Tensor& mask, const BlockPattern& pattern,
                                           double scale, const BlockForward& saved,
                                           const Tensor& dout, const Tensor& dlse = {});

}  // namespace skytape::attention
