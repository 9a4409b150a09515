// The features that a head sees of two encodings, of one encoder on two documents.
//
// Notation: B batch, E width.
#pragma once

#include <cstdint>

#include "autograd/parameter.hpp"
#include "autograd/tape.hpp"

namespace skytape::nn {

/// x less the mean of all encodings, which is the first E entries of `mean` over its last, or 0
/// before the first step. To the mean x is no cause but a sample: the sum and number of its rows
/// stand where a gradient would. x: [B, E], mean: [E + 1] -> [B, E].
[[nodiscard]] Var centred(Var x, Var mean);

/// a, b, a * b and a - b, as the Long Range Arena joins two encodings. With `cosine` these are of
/// unit vectors u along a - c and v along b - c, where c is the running mean of all encodings in
/// training, and 4 u.v joins them. Mean encodings of long texts have nearly one direction: what
/// tells two of them apart is small against it, and drowns the cosine as well if they stay as they
/// are.
class PairFeatures {
 public:
  PairFeatures(ParameterStore& store, std::int64_t width, bool cosine);
  /// Features of one pair: 4 E, or 4 E + 1.
  [[nodiscard]] std::int64_t size() const { return 4 * width_ + (mean_ != nullptr ? 1 : 0); }
  /// a, b: [B, E] -> [B, size()].
  [[nodiscard]] Var operator()(Var a, Var b) const;

 private:
  std::int64_t width_;
  Parameter* mean_ = nullptr;  // [E + 1]: averages of the sum of a step's encodings, and of their
                               // number; of the cosine alone
};

}  // namespace skytape::nn
