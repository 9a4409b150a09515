#include "tensor/gemm/gemm_bf16.hpp"

#include <map>
#include <unordered_map>
#include <vector>
#ifdef SKYTAPE_HAVE_DNNL
#include <dnnl.hpp>

#include "tensor/core/bf16.hpp"
#endif

namespace skytape::tensor {

#ifdef SKYTAPE_HAVE_DNNL
namespace {

/// A factor as the product reads it: packed rows of bf16, [rows, columns].
Bf16* pack(const MatrixView<const float>& x, std::vector<Bf16>& target) {
  target.resize(static_cast<std::size_t>(x.rows * x.columns));
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const float* const from = x.data + r * x.stride;
    Bf16* const to = target.data() + r * x.columns;
#pragma omp simd
    for (std::int64_t c = 0; c < x.columns; ++c) to[c] = Bf16(from[c]);
  }
  return target.data();
}

/// Everything that code is generated for.
struct Form {
  Op op_a, op_b;
  std::int64_t m, n, k, ldc;
  float alpha, beta;
  auto operator<=>(const Form&) const = default;
};

dnnl::engine& engine() {
  static auto* const cpu = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *cpu;  // never destroyed: threads may outlive main's statics
}

/// A compiled product. Each thread has its own: they own scratch memory.
class Product {
 public:
  explicit Product(const Form& f) {
    using dnnl::memory;
    const auto strides = [](Op op, std::int64_t rows, std::int64_t columns) {
      return op == Op::none ? memory::dims{columns, 1} : memory::dims{1, rows};
    };
    const memory::desc a({f.m, f.k}, memory::data_type::bf16, strides(f.op_a, f.m, f.k));
    const memory::desc b({f.k, f.n}, memory::data_type::bf16, strides(f.op_b, f.k, f.n));
    const memory::desc c({f.m, f.n}, memory::data_type::f32, memory::dims{f.ldc, 1});
    a_ = memory(a, engine(), nullptr);  // run says where the numbers are
    b_ = memory(b, engine(), nullptr);
    c_ = memory(c, engine(), nullptr);
    arguments_ = {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}};
    dnnl::primitive_attr attributes;
    if (f.beta != 0) {
      dnnl::post_ops sum;
      sum.append_sum(f.beta);
      attributes.set_post_ops(sum);
    }
#if DNNL_VERSION_MAJOR < 3
    attributes.set_output_scales(0, {f.alpha});
    product_ = dnnl::matmul({{a, b, c}, attributes, engine()});
#else  // alpha is an argument there: as an operation before the sum, 3.7 wrote some columns wrong
    if (f.alpha != 1) {
      attributes.set_scales_mask(DNNL_ARG_SRC, 0);
      const memory alpha({{1}, memory::data_type::f32, memory::dims{1}}, engine());
      *static_cast<float*>(alpha.get_data_handle()) = f.alpha;
      arguments_.emplace(DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, alpha);
    }
    product_ = dnnl::matmul({engine(), a, b, c, attributes});
#endif
  }

  void run(Bf16* a, Bf16* b, float* c) {
    thread_local dnnl::stream stream(engine());
    a_.set_data_handle(a);
    b_.set_data_handle(b);
    c_.set_data_handle(c);
    product_.execute(stream, arguments_);
    stream.wait();
  }

 private:
  dnnl::matmul product_;
  dnnl::memory a_, b_, c_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

/// This thread's product of a form. oneDNN keeps the code of recent forms for all threads.
Product& product_for(const Form& form) {
  constexpr std::size_t kForms = 256;  // widths of trimmed batches come and go
  thread_local std::map<Form, Product> products;
  const auto found = products.find(form);
  if (found != products.end()) return found->second;
  if (products.size() >= kForms) products.clear();
  return products.try_emplace(form, form).first->second;
}

}  // namespace

const char* why_no_bf16_on_cpu() {
  return dnnl_get_effective_cpu_isa() >= dnnl_cpu_isa_avx512_core_bf16
             ? nullptr
             : "this CPU has no AVX-512 BF16 or AMX";
}

void gemm_bf16_cpu(float alpha, const MatrixView<const float>& a, const MatrixView<const float>& b,
                   float beta, const MatrixView<float>& c) {
  thread_local std::vector<Bf16> rounded_a, rounded_b;
  Bf16* const left = pack(a, rounded_a);
  Bf16* const right = pack(b, rounded_b);
  const std::int64_t m = c.rows, n = c.columns, k = a.op == Op::none ? a.columns : a.rows;
  try {
    product_for({a.op, b.op, m, n, k, c.stride, alpha, beta}).run(left, right, c.data);
  } catch (const dnnl::error& e) {
    throw Error(
        join("gemm: oneDNN's bf16 product failed for m ", m, ", n ", n, ", k ", k, ": ", e.what()));
  }
}
#else
const char* why_no_bf16_on_cpu() { return "this program was built without oneDNN"; }

void gemm_bf16_cpu(float, const MatrixView<const float>&, const MatrixView<const float>&, float,
                   const MatrixView<float>&) {
  throw Error(join("gemm: bf16 on the cpu: ", why_no_bf16_on_cpu()));
}
#endif

}  // namespace skytape::tensor
