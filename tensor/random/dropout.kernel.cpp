// Dropout and its fusions: memory is walked in chunks of 128 elements that share Philox counters.
#include "tensor/random/dropout.hpp"

#include "tensor/launch/launch.hpp"
#include "tensor/random/dropout_plan.hpp"
#include "tensor/random/philox.hpp"

namespace skytape::tensor {
namespace {

static_assert(kDropoutChunk == philox::kChunk);

/// Calls f(position, factor), f = entry.at(base), for every entry base + position of the plan's
/// memory. A rate of zero draws nothing.
template <class T, class Entry> struct Chunks {
  DropoutPlan plan;
  std::int64_t per_range;  // chunks that one range may touch
  Entry entry;

  template <class Team> HD void operator()(std::int64_t row, const Team& team) const {
    const std::int64_t range = row / per_range;
    const std::int64_t first = plan.first + range * plan.range_stride;  // element number
    const std::int64_t chunk = first / philox::kChunk + row % per_range;
    const std::int64_t begin = first - chunk * philox::kChunk;  // the range begins and ends at
    const std::int64_t end = begin + plan.range_size;           // these positions of the chunk
    const auto f = entry.at(range * plan.range_size - begin);
    if (begin <= 0 && philox::kChunk <= end) {
      walk(team, chunk, f);
    } else {
      walk(team, chunk, [=](std::int64_t position, T factor) {
        if (begin <= position && position < end) f(position, factor);
      });
    }
  }

  template <class Team, class F>
  HD void walk(const Team& team, std::int64_t chunk, const F& f) const {
    const std::uint32_t threshold = plan.threshold;
    const T scale = static_cast<T>(plan.scale);
    if (threshold == 0) {
      team.each(philox::kChunk, [=](std::int64_t position) { f(position, T(1)); });
    } else {
      philox::each_bits(team, plan.key, philox::step_of(plan.step), chunk,
                        [=](std::int64_t position, std::uint32_t bits) {
                          f(position, bits >= threshold ? scale : T(0));
                        });
    }
  }
};

template <class T, class Entry> void each_entry(const DropoutPlan& plan, const Entry& entry) {
  if (plan.ranges * plan.range_size == 0) return;
  // A range of s elements that starts anywhere in a chunk touches at most this many.
  const std::int64_t per_range = (plan.range_size + 2 * (philox::kChunk - 1)) / philox::kChunk;
  rows(plan.ranges * per_range, philox::kChunk, Chunks<T, Entry>{plan, per_range, entry});
}

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

template <class T> struct BiasGelu {
  const T* x;          // [B, N, F]
  const T* bias;       // [F], continued periodically as far as a chunk reaches
  T* y;                // [B, N, F]
  std::int64_t width;  // F
  HD auto at(std::int64_t base) const {
    return
        [x = x + base, bias = bias + column(base, width), y = y + base](std::int64_t i, T factor) {
          const T z = x[i] + bias[i];
          y[i] = z * math::normal_cdf(z) * factor;
        };
  }
};

template <class T> struct BiasGeluBackward {
  const T* x;          // [B, N, F]
  const T* bias;       // as in BiasGelu
  const T* dy;         // [B, N, F]
  T* dx;               // [B, N, F]
  std::int64_t width;  // F
  HD auto at(std::int64_t base) const {
    return [x = x + base, bias = bias + column(base, width), dy = dy + base, dx = dx + base](
               std::int64_t i, T factor) {
      const T z = x[i] + bias[i];
      dx[i] = dy[i] * factor * (math::normal_cdf(z) + z * math::normal_pdf(z));
    };
  }
};

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
  Tensor longer = Tensor::empty({width + philox::kChunk - 1}, bias.dtype(), bias.device());
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
  dispatch_float(x.dtype(), [&]<class T>() {
    const Tensor b = periodic<T>(bias);
    each_entry<T>(plan, BiasGelu<T>{x.data<T>(), b.data<T>(), y.data<T>(), bias.numel()});
  });
}

void bias_gelu_dropout_backward_on(Backend, const DropoutPlan& plan, const Tensor& x,
                                   const Tensor& bias, const Tensor& dy, Tensor& dx) {
  dispatch_float(x.dtype(), [&]<class T>() {
    const Tensor b = periodic<T>(bias);
    each_entry<T>(plan, BiasGeluBackward<T>{x.data<T>(), b.data<T>(), dy.data<T>(), dx.data<T>(),
                                            bias.numel()});
  });
}

}  // namespace skytape::tensor
