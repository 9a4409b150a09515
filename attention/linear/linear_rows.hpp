// Linear attention's operations on one row, for tiles on the CPU and for kernels alike.
#pragma once

#include <cstdint>

#include "attention/linear/linear_plan.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention::linear_rows {

// Internal: both builds of a kernel file define these under one name.
namespace {

/// f(x) and f'(x). NaN stays NaN.
template <Activation A, class T> HD inline T value(T x) {
  const T positive = x < T(0) ? T(0) : x;
  if constexpr (A == Activation::relu) return positive;
  return positive + math::exp(math::min(x, T(0)));
}
template <Activation A, class T> HD inline T slope(T x) {
  if constexpr (A == Activation::relu) return x > T(0) ? T(1) : T(0);
  return math::exp(math::min(x, T(0)));
}

/// phi and its derivative.
template <Activation A, class T> struct Features {
  std::int64_t width;  // D
  T turn;

  /// f = weight phi(x) at position i. x: [D], f: [R].
  template <class Team>
  HD void make(const Team& team, std::int64_t i, const T* x, T weight, T* f) const {
    if (turn == T(0)) {
      team.each(width, [=](std::int64_t c) { f[c] = weight * value<A>(x[c]); });
      return;
    }
    const T cosine = weight * math::cos(turn * T(i)), sine = weight * math::sin(turn * T(i));
    T* const second = f + width;
    team.each(width, [=](std::int64_t c) {
      const T y = value<A>(x[c]);
      f[c] = cosine * y;
      second[c] = sine * y;
    });
  }

  /// dx: [D] from df: [R].
  template <class Team> HD void differentiate(const Team& team, std::int64_t i, const T* x,
                                              T weight, const T* df, T* dx) const {
    if (turn == T(0)) {
      team.each(width, [=](std::int64_t c) { dx[c] = weight * slope<A>(x[c]) * df[c]; });
      return;
    }
    const T cosine = weight * math::cos(turn * T(i)), sine = weight * math::sin(turn * T(i));
    const T* const second = df + width;
    team.each(width, [=](std::int64_t c) {
      dx[c] = slope<A>(x[c]) * (cosine * df[c] + sine * second[c]);
    });
  }
};

/// (2) of one row and its derivative.
template <class T> struct Normalise {
  std::int64_t width;  // D
  T added, least;

  /// From s: [P]; returns z.
  template <class Team> HD T divide(const Team& team, const T* s, T* out) const {
    const T sum = s[width] + added, z = sum < least ? least : sum;  // NaN stays NaN
    const T inverse = z == T(0) ? T(0) : T(1) / z;
    team.each(width, [=](std::int64_t c) { out[c] = s[c] * inverse; });
    return z;
  }

  /// ds: [P]; z is a constant where it was raised, which only z = least can have been.
  template <class Team>
  HD void differentiate(const Team& team, T z, const T* out, const T* dout, T* ds) const {
    const T inverse = z == T(0) ? T(0) : T(1) / z;
    const T dot = team.sum(width, [=](std::int64_t c) { return dout[c] * out[c]; });
    team.each(width, [=](std::int64_t c) { ds[c] = dout[c] * inverse; });
    if (team.leader()) ds[width] = z > least ? -dot * inverse : T(0);
  }
};

/// Calls f.operator()<T, A>() for a dtype and an activation.
template <class F> void dispatch(const LinearInputs& in, F&& f) {
  dispatch_float(in.q.dtype(), [&]<class T>() {
    if (in.options.activation == Activation::elu) {
      f.template operator()<T, Activation::elu>();
    } else {
      f.template operator()<T, Activation::relu>();
    }
  });
}

template <Activation A, class T> Features<A, T> features_of(const LinearInputs& in) {
  return {in.q.size(2), static_cast<T>(in.options.turn)};
}
template <class T> Normalise<T> normalise_of(const LinearInputs& in) {
  return {in.q.size(2), static_cast<T>(in.options.added), static_cast<T>(in.options.least)};
}

}  // namespace

}  // namespace skytape::attention::linear_rows
