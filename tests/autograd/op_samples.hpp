// Sample inputs for the rows of the op table: f64 on the CPU, from fixed seeds.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/tape.hpp"
#include "tensor/random/dropout.hpp"
#include "tests/autograd/op_table.hpp"
#include "tests/support/numbers.hpp"

namespace skytape::test::op {

using Vars = std::span<const Var>;
using Rows = std::vector<OpRow>;

[[nodiscard]] Tensor normal(const Shape& shape, std::uint64_t seed);
[[nodiscard]] Tensor uniform(const Shape& shape, std::uint64_t seed);
/// In (0.5, 2.5]: where log, sqrt and divisions are tame.
[[nodiscard]] Tensor positive(const Shape& shape, std::uint64_t seed);
/// At least 0.2 away from zero, of either sign: off the kink of relu, safe to divide by.
[[nodiscard]] Tensor nonzero(const Shape& shape, std::uint64_t seed);
/// Multiples of 0.37 in a scrambled order, all different below 211 entries: no ties for max.
[[nodiscard]] Tensor distinct(const Shape& shape);

/// 0 … n-1, scrambled and repeated over `count` places: i32[count].
[[nodiscard]] Tensor scrambled_ids(std::int64_t count, std::int64_t n);
/// 0/1 mask [B, N] with `real` ones at the start of each row.
[[nodiscard]] Tensor mask(std::int64_t n, const std::vector<std::int64_t>& real);

/// A constant tensor where and as x is: moved to its device, floats in its dtype.
[[nodiscard]] Tensor beside(Var x, const Tensor& t);
[[nodiscard]] Dropout dropping(double rate);
/// An f64 leaf of zeros, for bad uses.
[[nodiscard]] Var zeros(Tape& tape, const Shape& shape);

// The groups of the table.
[[nodiscard]] Rows elementwise_rows();
[[nodiscard]] Rows reduction_rows();
[[nodiscard]] Rows product_rows();
[[nodiscard]] Rows layout_rows();
[[nodiscard]] Rows index_rows();
[[nodiscard]] Rows network_rows();
[[nodiscard]] Rows fused_rows();

}  // namespace skytape::test::op
