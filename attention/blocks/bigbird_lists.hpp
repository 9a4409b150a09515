// BigBird's lists of blocks: the static part with the random blocks of each head filled in, on the
// device that has the table.
#pragma once

#include <cstdint>

#include "attention/blocks/block_attention.hpp"

namespace skytape::attention {

/// Stands for random block s of a query block in a list.
[[nodiscard]] inline std::int32_t random_entry(std::int32_t s) { return -2 - s; }

/// Entries i32[H, total] of the lists of each head. pattern.entries: i32[1, total] with
/// random_entry(s) where block table[h, i - 1, s] of query block i goes; table: [H, Q - 2, r] of
/// block numbers or -1 (none), in any dtype. Numbers outside [0, Q) count as none.
[[nodiscard]] Tensor fill_random_blocks(const BlockPattern& pattern, const Tensor& table);

void fill_random_blocks_on(Cpu, const BlockPattern& pattern, const Tensor& table, Tensor& entries);
void fill_random_blocks_on(Cuda, const BlockPattern& pattern, const Tensor& table, Tensor& entries);

}  // namespace skytape::attention
