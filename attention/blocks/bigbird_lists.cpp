#include "attention/blocks/bigbird_lists.hpp"

#include "tensor/core/on_device.hpp"

namespace skytape::attention {

Tensor fill_random_blocks(const BlockPattern& pattern, const Tensor& table) {
  ENSURE(table.rank() == 3 && table.size(1) == pattern.row_blocks - 2 &&
             table.device() == pattern.entries.device(),
         "bigbird: expected a table [H, ", pattern.row_blocks - 2, ", r], got ", table);
  Tensor entries = Tensor::empty({table.size(0), pattern.entries.size(1)}, DType::i32,
                                 table.device());  // [H, total]
  on_device(table.device(), [&](auto tag) { fill_random_blocks_on(tag, pattern, table, entries); });
  return entries;
}

}  // namespace skytape::attention
