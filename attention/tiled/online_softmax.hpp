// The softmax of a row whose scores come some at a time, on the CPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tensor/core/bf16.hpp"
#include "tensor/launch/math.hpp"

namespace skytape::attention {

/// Running maximum and sum of a row's exponentials.
template <class T> struct OnlineSoftmax {
  T max = -std::numeric_limits<T>::infinity();
  T sum = 0;

  /// The online softmax update (Milakov and Gimelshein 2018): turns scores into weights relative to
  /// `largest`, the maximum of them and of those before; returns what earlier sums must be
  /// multiplied by. `round`: weights and their sum are of bf16, as the product with v has them:
  /// rows of v that are alike then come out as they are, and what their gradients cancel does
  /// cancel.
  T update(T* score, std::int64_t cols, T largest, bool round = false) {
    if (largest == -std::numeric_limits<T>::infinity()) return without_maximum(score, cols);
    T total = 0;
#pragma omp simd reduction(+ : total)
    for (std::int64_t j = 0; j < cols; ++j) {
      score[j] = math::exp(score[j] - largest);
      total += score[j];
    }
    if (round) {
      total = 0;
#pragma omp simd reduction(+ : total)
      for (std::int64_t j = 0; j < cols; ++j) {
        score[j] = static_cast<float>(Bf16(static_cast<float>(score[j])));
        total += score[j];
      }
    }
    const T correction = std::exp(max - largest);  // 0 for the first keys
    max = largest;
    sum = sum * correction + total;
    return correction;
  }

  [[nodiscard]] T lse() const { return max + std::log(sum); }  ///< -inf without real keys
  [[nodiscard]] T inverse() const { return sum > 0 ? 1 / sum : T(0); }

 private:
  /// Handles a row that has had only padding: it has no weights. NaN scores have no maximum either,
  /// and stay.
  T without_maximum(T* score, std::int64_t cols) {
    const bool numbers = std::none_of(score, score + cols, [](T s) { return s != s; });
    if (numbers) {
      std::fill_n(score, cols, T(0));
    } else {
      sum = std::numeric_limits<T>::quiet_NaN();
    }
    return 1;
  }
};

}  // namespace skytape::attention
