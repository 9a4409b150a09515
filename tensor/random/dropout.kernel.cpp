// Dropout and its fusions: memory is walked in chunks of 128 elements that share Philox counters.
#include "tensor/random/dropout.hpp"

#include "tensor/launch/launch.hpp"
#include "tensor/random/dropout_chunks.hpp"
#include "tensor/random/dropout_plan.hpp"

namespace skytape::tensor {
namespace {

template <class T> struct Factor {
  T* y;  // [B, N, E]
  HD auto at(std::int64_t base) const {
    return [y = y + base](std::int64_t i, T factor) { y[i] = factor; };
  }
};

template <class T> struct Multiply {
  const T* x;  // [B, N, E]
  T* y;        // [B, N, E]
  HD auto at(std::int64_t base) const {
    return [x = x + base, y = y + base](std::int64_t i, T factor) { y[i] = x[i] * factor; };
  }
};

template <class T> struct MultiplyAdd {
  const T* residual;  // [B, N, E]
  const T* x;         // [B, N, E]
  T* y;               // [B, N, E]
  HD auto at(std::int64_t base) const {
    return [residual = residual + base, x = x + base, y = y + base](std::int64_t i, T factor) {
      y[i] = residual[i] + x[i] * factor;
    };
  }
};

/// Column of entry `base`, which may lie before the memory's begin.
HD std::int64_t column(std::int64_t base, std::int64_t width) {
  const std::int64_t remainder = base % width;
  return remainder < 0 ? remainder + width : remainder;
}

// GELU computes in T; its operands and results are S in memory.

template <class T, class S> struct BiasGelu {
  const S* x;          // [B, N, F]
  const T* bias;       // [F], continued periodically as far as a chunk reaches
  S* y;                // [B, N, F]
  std::int64_t width;  // F
  HD auto at(std::int64_t base) const {
    return
        [x = x + base, bias = bias + column(base, width), y = y + base](std::int64_t i, T factor) {
          const T z = static_cast<T>(x[i]) + bias[i];
          y[i] = static_cast<S>(z * math::normal_cdf(z) * factor);
        };
  }
};

template <class T, class S> struct BiasGeluBackward {
  const S* x;          // [B, N, F]
  const T* bias;       // as in BiasGelu
  const S* dy;         // [B, N, F]
  S* dx;               // [B, N, F]
  std::int64_t width;  // F
  HD auto at(std::int64_t base) const {
    return [x = x + base, bias = bias + column(base, width), dy = dy + base, dx = dx + base](
               std::int64_t i, T factor) {
      const T z = static_cast<T>(x[i]) + bias[i];
      const T slope = math::normal_cdf(z) + z * math::normal_pdf(z);
      dx[i] = static_cast<S>(static_cast<T>(dy[i]) * factor * slope);
    };
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
                    Tensor& y) {
  dispatch_float(x.dtype(), [&]<class T>() {
    each_entry<T>(plan, MultiplyAdd<T>{residual.data<T>(), x.data<T>(), y.data<T>()});
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
