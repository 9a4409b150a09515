// Vectors of tokens: rows of a table by their ids.
#pragma once

#include <cstdint>

#include "tensor/core/tensor.hpp"

namespace skytape::tensor {

/// Returns the rows of a table [V, E] by ids i32[...]: [..., E]. Ids outside [0, V) are an error on
/// the CPU, and rows of NaN on a GPU.
[[nodiscard]] Tensor embedding(const Tensor& table, const Tensor& ids);
/// dtable[v] = sum of dy over the places where ids == v; zero rows for ids that do not occur.
[[nodiscard]] Tensor embedding_backward(const Tensor& dy, const Tensor& ids,
                                        std::int64_t vocabulary);

/// The CUDA half (embedding.cu). ids: i32[T], dy: [T, E] or more axes, dtable: [V, E].
void embedding_backward_on(Cuda, const Tensor& dy, const Tensor& ids, Tensor& dtable);

}  // namespace skytape::tensor
