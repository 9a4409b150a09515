// Sinkhorn normalisation's operations on a row of a matrix, or of its transpose, on either device.
#pragma once

#include <cstdint>

#include "tensor/launch/launch.hpp"

namespace skytape::attention {

// Internal: both builds define these under one name.
namespace {

/// sums_i = log sum_j exp(x_ij - shift_j).
template <class T> struct LogSums {
  const T* x;      // [G, Q, Q]
  const T* shift;  // [G, Q]
  T* sums;         // [G, Q]
  std::int64_t size;

  template <class Team> HD void operator()(std::int64_t i, const Team& team) const {
    const T* const from = x + i * size;
    const T* const less = shift + i / size * size;
    const T largest = team.max(size, [&](std::int64_t j) { return from[j] - less[j]; });
    const T sum =
        team.sum(size, [&](std::int64_t j) { return math::exp(from[j] - less[j] - largest); });
    if (team.leader()) sums[i] = largest + math::log(sum);
  }
};

/// y_ij = exp(x_ij - row_i - column_j).
template <class T> struct Matrix {
  const T* x;             // [G, Q, Q]
  const T *row, *column;  // [G, Q]
  T* y;                   // [G, Q, Q]
  std::int64_t size;

  HD void operator()(std::int64_t e) const {
    const std::int64_t i = e / size;
    y[e] = math::exp(x[e] - row[i] - column[i / size * size + e % size]);
  }
};

/// With w_ij = exp(x_ij - row_i - column_j): dx_ij += w_ij g_j, drow_i -= sum_j w_ij g_j.
template <class T> struct LogSumsBackward {
  const T* x;                 // [G, Q, Q]
  const T *row, *column, *g;  // [G, Q]
  T* dx;                      // [G, Q, Q]
  T* drow;                    // [G, Q]
  std::int64_t size;

  template <class Team> HD void operator()(std::int64_t i, const Team& team) const {
    const T* const from = x + i * size;
    const T* const less = column + i / size * size;
    const T* const upstream = g + i / size * size;
    T* const to = dx + i * size;
    const T own = row[i];
    const auto part = [&](std::int64_t j) {
      return math::exp(from[j] - own - less[j]) * upstream[j];
    };
    const T total = team.sum(size, part);
    team.each(size, [&](std::int64_t j) { to[j] += part(j); });
    if (team.leader()) drow[i] -= total;
  }
};

}  // namespace
}  // namespace skytape::attention
