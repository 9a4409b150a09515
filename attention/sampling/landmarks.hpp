// Landmarks: rows of the stacked queries and keys that stand for all of them.
//
// Row i < N of the stack is query i, row N + j is key j. Notation: B batch, H heads, N queries and
// keys, A sets of landmarks (accumulation), L landmarks in a set, D head width.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "attention/method.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/random/random.hpp"

namespace skytape::attention {

/// The rule by which landmarks are drawn, with repetition, from the m real tokens (mask nonzero) of
/// an example.
///   independent  first half queries, second half keys; anew for every example and head
///   official     the same halves, but from positions 0 … m - 1 whatever the mask says there, with
///                one uniform number per landmark shared by the whole batch (the paper's code)
///   uniform      any of the 2 m queries and keys; anew for every example and head (the paper)
struct LandmarkDraw {
  std::string rule = "independent";
  std::int64_t sets = 1, size = 0;  // A, L
  std::int64_t heads = 0;           // H
};

/// Indices into the stack: i32 [B, H, A, L], or [B, A, L] for "official". A landmark depends on the
/// example's number in the full batch (0 where call.alone), the head and its place in the table,
/// never on trimming. An example without real tokens gets row 0 (and N): a zero vector, once
/// masked.
[[nodiscard]] Tensor draw_landmarks(const LandmarkDraw& draw, const Tensor& mask, const Call& call);

/// A table of landmarks as gather_landmarks takes it: i32 [B, L], [B, A, L] or [B, H, A, L] ->
/// [B, L], [B, A L] or [B, H, A L]. Throws unless it fits q [B, H, N, D] and, on the CPU, lies in
/// [0, 2 N).
[[nodiscard]] Tensor landmark_index(const Tensor& table, const Tensor& q);

/// Rows of the stack of s mu q and s mu k, of q and k [B, H, N, D] with scale s and mask mu [B, N]
/// (undefined: 1), at index [B, L] (shared by heads) or [B, H, L]: [B, H, L, D].
[[nodiscard]] Tensor gather_landmarks(const Tensor& q, const Tensor& k, const Tensor& index,
                                      const Tensor& mask = {}, double scale = 1);

/// The adjoint: adds the rows of dw, a sum of one to three terms [B, H, L, D], times s mu to dq and
/// dk [B, H, N, D], in place. Repeated indices accumulate in the order of the landmarks.
void scatter_landmarks(std::initializer_list<Tensor> dw, const Tensor& index, const Tensor& mask,
                       double scale, Tensor& dq, Tensor& dk);

}  // namespace skytape::attention
