// The iterative inverse on the CPU: one task per matrix, whose few L x L blocks of a step stay in a
// core's cache. A few large matrices are left to the library products, which cut each into tiles.
// The choice depends on sizes alone, never on the number of threads: so do the results.
#include <algorithm>
#include <optional>

#include "attention/inverse/iterative_inverse_plan.hpp"
#include "attention/inverse/iterative_inverse_steps.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/launch/first_failure.hpp"
#include "tensor/launch/launch.hpp"

namespace skytape::attention {
namespace {

/// Fewer tasks than cores, and blocks of 1 MiB and more that no cache keeps.
bool few_and_large(const Tensor& m) { return m.size(0) < 4 && m.size(1) >= 512; }

/// Matrices [size, size] in memory, worked on by the calling thread alone.
template <class T> struct SerialAlgebra {
  using Matrix = T*;
  std::int64_t size;

  void gemm(Op op_a, const T* a, Op op_b, const T* b, T* c, double alpha, double beta) const {
    tensor::gemm_cpu<T>(static_cast<T>(alpha), {a, size, size, size, op_a},
                        {b, size, size, size, op_b}, static_cast<T>(beta), {c, size, size});
  }
  void shifted(const T* x, double scale, double shift, T* y) const {
    const T factor = static_cast<T>(scale), addend = static_cast<T>(shift);
    if (factor == T(0)) {
      std::fill_n(y, size * size, T(0));
    } else {
#pragma omp simd
      for (std::int64_t e = 0; e < size * size; ++e) y[e] = factor * x[e];
    }
    for (std::int64_t i = 0; i < size; ++i) y[i * size + i] += addend;
  }
};

/// Scratch blocks of one thread.
template <class T> class Blocks {
 public:
  Blocks(std::int64_t count, std::int64_t size)
      : memory_(Tensor::empty({count, size, size}, kDTypeOf<T>, Device::cpu)),
        next_(memory_.template data<T>()),
        elements_(size * size) {}
  T* take() { return std::exchange(next_, next_ + elements_); }
  InverseGradients<T*> gradients() { return {take(), take(), take()}; }

 private:
  Tensor memory_;  // [count, size, size]
  T* next_;
  std::int64_t elements_;
};

/// Matrix g of a trace, by pointers.
template <class T> class TraceOf {
 public:
  TraceOf(const InverseTrace& trace, std::int64_t g, std::int64_t elements)
      : trace_(trace), offset_(g * elements) {}
  [[nodiscard]] T* iterate(std::size_t t) const { return at(trace_.iterates[t]); }
  [[nodiscard]] InverseFactors<T*> factors(std::size_t t) const {
    const InverseFactors<Tensor>& f = trace_.factors[t];
    return {at(f.x), at(f.r), at(f.p)};
  }

 private:
  [[nodiscard]] T* at(const Tensor& whole) const { return whole.data<T>() + offset_; }

  const InverseTrace& trace_;
  std::int64_t offset_;
};

template <class T> void run_steps(const Tensor& m, const InverseTrace& trace) {
  const std::int64_t matrices = m.size(0), size = m.size(1), elements = size * size;
  const SerialAlgebra<T> on{size};
  cpu::FirstFailure failure;
#pragma omp parallel for schedule(static) if (matrices > 1)
  for (std::int64_t g = 0; g < matrices; ++g) {
    failure.guard([&] {
      const TraceOf<T> own(trace, g, elements);
      for (std::size_t t = 0; t < trace.factors.size(); ++t) {
        InverseFactors<T*> factors = own.factors(t);
        T* next = own.iterate(t + 1);
        inverse_step(on, m.data<T>() + g * elements, own.iterate(t), factors, next);
      }
    });
  }
  failure.rethrow();
}

template <class T> void run_backward(const Tensor& m, const InverseTrace& trace, const Tensor& dz,
                                     Tensor& dm, Tensor& dstart) {
  const std::int64_t matrices = m.size(0), size = m.size(1), elements = size * size;
  const SerialAlgebra<T> on{size};
  cpu::FirstFailure failure;
#pragma omp parallel if (matrices > 1)
  {
    std::optional<Blocks<T>> blocks;
    InverseGradients<T*> gradients{};
    T *dnext = nullptr, *dv = nullptr;
    failure.guard([&] {
      blocks.emplace(5, size);
      gradients = blocks->gradients();
      dnext = blocks->take();
      dv = blocks->take();
    });
#pragma omp for schedule(static)
    for (std::int64_t g = 0; g < matrices; ++g) {
      failure.guard([&] {
        const TraceOf<T> own(trace, g, elements);
        T* const matrix = m.data<T>() + g * elements;
        T* dmatrix = dm.data<T>() + g * elements;
        std::fill_n(dmatrix, elements, T(0));
        std::copy_n(dz.data<T>() + g * elements, elements, dnext);
        for (std::size_t t = trace.factors.size(); t-- > 0;) {
          inverse_step_backward(on, matrix, own.iterate(t), own.factors(t), gradients, dnext, dv,
                                dmatrix);
          std::swap(dnext, dv);
        }
        std::copy_n(dnext, elements, dstart.data<T>() + g * elements);
      });
    }
  }
  failure.rethrow();
}

}  // namespace

InverseKept inverse_kept_on(Cpu, const Tensor&) { return InverseKept::factors; }

void inverse_steps_on(Cpu, const Tensor& m, InverseTrace& trace) {
  const PrecisionScope exact(Device::cpu, Precision::fp32);
  if (few_and_large(m)) return inverse_steps_batched(m, trace);
  dispatch_float(m.dtype(), [&]<class T>() { run_steps<T>(m, trace); });
}

void inverse_steps_backward_on(Cpu, const Tensor& m, const InverseTrace& trace, const Tensor& dz,
                               Tensor& dm, Tensor& dstart) {
  const PrecisionScope exact(Device::cpu, Precision::fp32);
  if (few_and_large(m)) return inverse_steps_backward_batched(m, trace, dz, dm, dstart);
  dispatch_float(m.dtype(), [&]<class T>() { run_backward<T>(m, trace, dz, dm, dstart); });
}

}  // namespace skytape::attention
