// The choice of the queries that Informer computes in full: the measure of how far a query is from
// attending to all keys alike, and the bookkeeping of the rows chosen by it.
//
// Notation: B batch, H heads, N queries and keys, D head width, S sampled keys per query, A sets of
// them, T slots for chosen rows. Arrays of slots have a fixed size; a slot that is not used holds
// -1.
#pragma once

#include <cstdint>

#include "tensor/core/tensor.hpp"

namespace skytape::attention {

/// Sampled keys floor(m u), u in (0, 1], at most m - 1: u [N, S], counts [A] of m (A = B, or 1 for
/// all examples alike) -> i32[A, N, S]. Computed in f64, so both dtypes agree on the same u.
[[nodiscard]] Tensor sampled_keys(const Tensor& u, const Tensor& counts);

/// M_i = max_t q_i.k_t - (sum_t q_i.k_t) / length over the sampled keys t of query i.
/// q, k: [B, H, N, D], keys: i32[A, N, S], A = B or 1 -> [B, H, N]. No array of sampled rows is
/// made.
[[nodiscard]] Tensor sampled_measure(const Tensor& q, const Tensor& k, const Tensor& keys,
                                     std::int64_t length);

/// The T = min(top, N) rows of largest measure, the first on ties: measure [B, H, N] ->
/// i32[B, H, T]. `trimmed` further rows of measure zero, behind the others, take part and are left
/// out.
[[nodiscard]] Tensor choose_rows(const Tensor& measure, std::int64_t top, std::int64_t trimmed);

struct ChosenRows {
  Tensor index;   // i32[B, H, T], 0 where unused
  Tensor used;    // [B, H, T, 1]: 1 for slots in use, else 0
  Tensor others;  // [B, H, N, 1]: 0 for chosen rows, else 1
};
/// rows: i32[B, H, T], each row of [0, N) at most once, or -1; `like` [B, H, N, D] gives the rest.
[[nodiscard]] ChosenRows chosen_rows(const Tensor& rows, const Tensor& like);

// The two builds of the kernels behind these. The measure is a backend pair: on the CPU one product
// after the other, each vectorised, on the GPU one thread per product.

void sampled_keys_on(Cpu, const Tensor& u, const Tensor& counts, Tensor& keys);
void sampled_keys_on(Cuda, const Tensor& u, const Tensor& counts, Tensor& keys);

void sampled_measure_on(Cpu, const Tensor& q, const Tensor& k, const Tensor& keys,
                        std::int64_t length, Tensor& measure);
void sampled_measure_on(Cuda, const Tensor& q, const Tensor& k, const Tensor& keys,
                        std::int64_t length, Tensor& measure);

/// rows: i32[B, H, T] in the order of their measure; those behind the trimmed ones become -1.
void drop_displaced_on(Cpu, const Tensor& measure, std::int64_t top, std::int64_t trimmed,
                       Tensor& rows);
void drop_displaced_on(Cuda, const Tensor& measure, std::int64_t top, std::int64_t trimmed,
                       Tensor& rows);

/// index, used: as in ChosenRows; others: [B, H, N], all 1 at the start.
void chosen_rows_on(Cpu, const Tensor& rows, Tensor& index, Tensor& used, Tensor& others);
void chosen_rows_on(Cuda, const Tensor& rows, Tensor& index, Tensor& used, Tensor& others);

}  // namespace skytape::attention
