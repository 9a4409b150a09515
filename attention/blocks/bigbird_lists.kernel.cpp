// Filling random blocks into BigBird's lists.
#include "attention/blocks/bigbird_lists.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

template <class T> struct FillRandomBlock {
  const std::int32_t *pattern, *row;  // [total]
  const T* table;                     // [H, Q - 2, r]
  std::int32_t* entries;              // [H, total]
  std::int64_t total, blocks, drawn;
  HD void operator()(std::int64_t e) const {
    const std::int64_t head = e / total, at = e % total;
    std::int64_t block = pattern[at];
    if (block < -1) {
      const std::int64_t s = -2 - block;
      block = static_cast<std::int64_t>(table[(head * (blocks - 2) + row[at] - 1) * drawn + s]);
    }
    entries[e] = static_cast<std::int32_t>(block >= 0 && block < blocks ? block : -1);
  }
};

}  // namespace

void fill_random_blocks_on(Backend, const BlockPattern& pattern, const Tensor& table,
                           Tensor& entries) {
  const auto fill = [&]<class T>() {
    map(entries.numel(),
        FillRandomBlock<T>{pattern.entries.data<std::int32_t>(), pattern.row.data<std::int32_t>(),
                           table.data<T>(), entries.data<std::int32_t>(), entries.cols(),
                           pattern.row_blocks, table.cols()});
  };
  if (table.dtype() == DType::i32) {
    fill.template operator()<std::int32_t>();
  } else {
    dispatch_float(table.dtype(), fill);
  }
}

}  // namespace skytape::attention
