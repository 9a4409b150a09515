// The exact attentions that studies compare with, and their matrices. Everything on the CPU, in the
// dtype of the inputs.
//
// Notation: H heads, N positions, D head width.
#pragma once

#include <cstdint>
#include <string>

#include "attention/method.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::train {

/// Output of "softmax", "kernelized" or "shared_qk" attention (softmax with the normalised queries
/// as keys, what Reformer stands for): [B, H, N, D].
[[nodiscard]] Tensor exact_output(const std::string& name, const attention::Inputs& in);

/// Returns whether attention_matrix() knows the attention.
[[nodiscard]] bool has_matrix(const std::string& name);

/// The matrix P of one head of a single example, of which P V is the output at real tokens: [N, N],
/// with zero rows and columns for the others.
///   softmax      exp(q_i.k_j / sqrt(D)), divided by the sum over j
///   kernelized   exp(-|q_i - k_j|^2 / (2 sqrt(D)))
[[nodiscard]] Tensor attention_matrix(const std::string& name, const attention::Inputs& in,
                                      std::int64_t head);

/// The positive semidefinite matrix of all queries and keys of a head, scaled by D^(-1/4), that
/// Skyformer rebuilds: k(X, X) with X = [Q; K] and the Gaussian kernel k. [2 N, 2 N].
[[nodiscard]] Tensor stacked_kernel(const attention::Inputs& in, std::int64_t head);

/// |M|_F of any array.
[[nodiscard]] double frobenius(const Tensor& m);

}  // namespace skytape::train
