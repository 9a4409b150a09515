// Dropout and its fusions: memory is walked in chunks of 128 elements that share Philox counters.
#include "tensor/random/dropout.hpp"

#include <type_traits>

#include "tensor/launch/gelu.hpp"
#include "tensor/launch/launch.hpp"
#include "tensor/random/dropout_chunks.hpp"
#include "tensor/random/dropout_plan.hpp"

namespace skytape::tensor {
namespace {

template <class T> struct Factor {
  T* y;  // [B, N, E]
  HD auto at(std::int64_t base) const {
    return run_of_entries(y + base, [](T factor) { return factor; });
  }
};

template <class T> struct Multiply {
  const T* x;  // [B, N, E]
  T* y;        // [B, N, E]
  HD auto at(std::int64_t base) const {
    return run_of_entries(
        y + base, [](T factor, T value) { return value * factor; }, x + base);
  }
};

template <class T> struct MultiplyAdd {
  const T* residual;  // [B, N, E]
  const T* x;         // [B, N, E]
  T* y;               // [B, N, E]
  HD auto at(std::int64_t base) const {
    const auto f = [](T factor, T r, T value) { return r + value * factor; };
    return run_of_entries(y + base, f, residual + base, x + base);
  }
};

/// Column of entry `base`, which may lie before the memory's begin.
HD std::int64_t column(std::int64_t base, std::int64_t width) {
  const std::int64_t remainder = base % width;
  return remainder < 0 ? remainder + width : remainder;
}

template <class T> struct BiasMultiplyAdd {
  const T* residual;   // [B, N, E]
  const T* x;          // [B, N, E]
  const T* bias;       // [E], continued periodically as far as a chunk reaches
  T* y;                // [B, N, E]
  std::int64_t width;  // E
  HD auto at(std::int64_t base) const {
    const auto f = [](T factor, T r, T value, T b) { return r + (value + b) * factor; };
    return run_of_entries(y + base, f, residual + base, x + base, bias + column(base, width));
  }
};

// GELU computes in T; its operands and results are S in memory. On a GPU those of bf16 need no erf,
// whose instructions would take longer than the memory.

/// gelu(z) and its derivative.
template <class S, class T> HD inline T gelu_value(T z) {
#ifdef __CUDACC__
  if constexpr (std::is_same_v<S, Bf16>) return gelu(z).value;
#endif
  return z * math::normal_cdf(z);
}
template <class S, class T> HD inline T gelu_slope(T z) {
#ifdef __CUDACC__
  if constexpr (std::is_same_v<S, Bf16>) return gelu(z).derivative;
#endif
  return math::normal_cdf(z) + z * math::normal_pdf(z);
}

template <class T, class S> struct BiasGelu {
  const S* x;          // [B, N, F]
  const T* bias;       // as in BiasMultiplyAdd
  S* y;                // [B, N, F]
  std::int64_t width;  // F
  HD auto at(std::int64_t base) const {
    const auto f = [](T factor, S value, T b) {
      return static_cast<S>(gelu_value<S>(static_cast<T>(value) + b) * factor);
    };
    return run_of_entries(y + base, f, x + base, bias + column(base, width));
  }
};

template <class T, class S> struct BiasGeluBackward {
  const S* x;          // [B, N, F]
  const T* bias;       // as in BiasMultiplyAdd
  const S* dy;         // [B, N, F]
  S* dx;               // [B, N, F]
  std::int64_t width;  // F
  HD auto at(std::int64_t base) const {
    const auto f = [](T factor, S value, T b, S d) {
      const T slope = gelu_slope<S>(static_cast<T>(value) + b);
      return static_cast<S>(static_cast<T>(d) * factor * slope);
    };
    return run_of_entries(dx + base, f, x + base, bias + column(base, width), dy + base);
  }
};

/// f.operator()<T, S>() for numbers of that type in memory.
template <class F> void dispatch_stored(DType stored, const F& f) {
  if (stored == DType::bf16) return f.template operator()<float, Bf16>();
  dispatch_float(stored, [&]<class T>() { f.template operator()<T, T>(); });
}

template <class T> struct Repeat {
  const T* x;  // [n]
  T* y;        // longer
  std::int64_t n;
  HD void operator()(std::int64_t i) const { y[i] = x[i % n]; }
};

/// The bias, continued so that the 128 entries from any column on are contiguous.
template <class T> Tensor periodic(const Tensor& bias) {
  const std::int64_t width = bias.numel();
  if (width == 0 || width % philox::kChunk == 0) return bias;  // then no chunk crosses a row's end
  Tensor longer = empty_like(bias, {width + philox::kChunk - 1});
  map(longer.numel(), Repeat<T>{bias.data<T>(), longer.data<T>(), width});
  return longer;
}

}  // namespace

void dropout_factors_on(Backend, const DropoutPlan& plan, Tensor& factors) {
  dispatch_float(factors.dtype(),
                 [&]<class T>() { each_entry<T>(plan, Factor<T>{factors.data<T>()}); });
}

void dropout_on(Backend, const DropoutPlan& plan, const Tensor& x, Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    each_entry<T>(plan, Multiply<T>{x.data<T>(), y.data<T>()});
  });
}

void add_dropout_on(Backend, const DropoutPlan& plan, const Tensor& residual, const Tensor& x,
                    const Tensor& bias, Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    const T *const r = residual.data<T>(), *const from = x.data<T>();
    if (!bias.defined()) return each_entry<T>(plan, MultiplyAdd<T>{r, from, y.data<T>()});
    const Tensor b = periodic<T>(bias);
    each_entry<T>(plan, BiasMultiplyAdd<T>{r, from, b.data<T>(), y.data<T>(), bias.numel()});
  });
}

void bias_gelu_dropout_on(Backend, const DropoutPlan& plan, const Tensor& x, const Tensor& bias,
                          Tensor& y) {
  dispatch_stored(x.dtype(), [&]<class T, class S>() {
    const Tensor b = periodic<T>(bias);
    each_entry<T>(plan, BiasGelu<T, S>{x.data<S>(), b.data<T>(), y.data<S>(), bias.numel()});
  });
}

void bias_gelu_dropout_backward_on(Backend, const DropoutPlan& plan, const Tensor& x,
                                   const Tensor& bias, const Tensor& dy, Tensor& dx) {
  dispatch_stored(x.dtype(), [&]<class T, class S>() {
    const Tensor b = periodic<T>(bias);
    each_entry<T>(plan, BiasGeluBackward<T, S>{x.data<S>(), b.data<T>(), dy.data<S>(), dx.data<S>(),
                                               bias.numel()});
  });
}

}  // namespace skytape::tensor
