#include "tests/autograd/op_table.hpp"

#include <algorithm>
#include <iterator>

#include "tests/autograd/op_samples.hpp"

namespace skytape::test {

const std::vector<OpRow>& op_table() {
  static const op::Rows table = [] {
    op::Rows all;
    for (auto* group : {op::elementwise_rows, op::reduction_rows, op::product_rows, op::layout_rows,
                        op::index_rows, op::network_rows, op::fused_rows}) {
      op::Rows rows = group();
      std::move(rows.begin(), rows.end(), std::back_inserter(all));
    }
    return all;
  }();
  return table;
}

const OpRow* find_op(const std::string& name) {
  for (const OpRow& row : op_table()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace skytape::test
