// The iterative inverse on the CPU: one task per matrix, whose dozen L x L blocks stay in a core's
// cache from the first step to the last. A few large matrices are left to the library products,
// which cut each into tiles; the choice depends on sizes alone, as results must.
#include <algorithm>

#include "attention/iterative_inverse_steps.hpp"
#include "tensor/launch.hpp"

namespace skytape::attention {
namespace {

/// Fewer tasks than cores, and blocks of 1 MiB and more that no cache keeps.
bool few_and_large(const Tensor& m) { return m.size(0) < 4 && m.size(1) >= 512; }

/// Matrices [size, size] in memory, worked on by the calling thread alone.
template <class T> struct SerialAlgebra {
  using Matrix = T*;
  std::int64_t size;

  void gemm(Op op_a, const T* a, Op op_b, const T* b, T* c, double alpha, double beta) const {
    tensor::gemm_cpu<T>(op_a, op_b, size, size, size, static_cast<T>(alpha), a, size, b, size,
                        static_cast<T>(beta), c, size);
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
  InverseFactors<T*> factors() { return {take(), take(), take()}; }
  InverseGradients<T*> gradients() { return {take(), take(), take()}; }

 private:
  Tensor memory_;  // [count, size, size]
  T* next_;
  std::int64_t elements_;
};

template <class T> void run_steps(const Tensor& m, std::vector<Tensor>& iterates) {
  const std::int64_t matrices = m.size(0), size = m.size(1), elements = size * size;
  const SerialAlgebra<T> on{size};
#pragma omp parallel if (matrices > 1)
  {
    Blocks<T> blocks(3, size);
    InverseFactors<T*> factors = blocks.factors();
#pragma omp for schedule(static)
    for (std::int64_t g = 0; g < matrices; ++g) {
      for (std::size_t t = 0; t + 1 < iterates.size(); ++t) {
        T* next = iterates[t + 1].data<T>() + g * elements;
        inverse_step(on, m.data<T>() + g * elements, iterates[t].data<T>() + g * elements, factors,
                     next);
      }
    }
  }
}

template <class T> void run_backward(const Tensor& m, const std::vector<Tensor>& iterates,
                                     const Tensor& dz, Tensor& dm, Tensor& dstart) {
  const std::int64_t matrices = m.size(0), size = m.size(1), elements = size * size;
  const SerialAlgebra<T> on{size};
#pragma omp parallel if (matrices > 1)
  {
    Blocks<T> blocks(8, size);
    InverseFactors<T*> factors = blocks.factors();
    InverseGradients<T*> gradients = blocks.gradients();
    T *dnext = blocks.take(), *dv = blocks.take();
#pragma omp for schedule(static)
    for (std::int64_t g = 0; g < matrices; ++g) {
      T* const matrix = m.data<T>() + g * elements;
      T* const dmatrix = dm.data<T>() + g * elements;
      std::fill_n(dmatrix, elements, T(0));
      std::copy_n(dz.data<T>() + g * elements, elements, dnext);
      for (std::size_t t = iterates.size() - 1; t-- > 0;) {
        T* const v = iterates[t].data<T>() + g * elements;
        T* target = dmatrix;
        inverse_step_backward(on, matrix, v, factors, gradients, dnext, dv, target);
        std::swap(dnext, dv);
      }
      std::copy_n(dnext, elements, dstart.data<T>() + g * elements);
    }
  }
}

}  // namespace

void inverse_steps_on(Cpu, const Tensor& m, std::vector<Tensor>& iterates) {
  if (few_and_large(m)) return inverse_steps_batched(m, iterates);
  dispatch_float(m.dtype(), [&]<class T>() { run_steps<T>(m, iterates); });
}

void inverse_steps_backward_on(Cpu, const Tensor& m, const std::vector<Tensor>& iterates,
                               const Tensor& dz, Tensor& dm, Tensor& dstart) {
  if (few_and_large(m)) return inverse_steps_backward_batched(m, iterates, dz, dm, dstart);
  dispatch_float(m.dtype(), [&]<class T>() { run_backward<T>(m, iterates, dz, dm, dstart); });
}

}  // namespace skytape::attention
