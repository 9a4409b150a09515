// Spec::cost_at of every method is compared with the multiply-adds of the products that oneDNN
// computes for it, where the build has oneDNN.
#include "attention/registry.hpp"
#include "autograd/tape.hpp"
#include "tensor/movement/layout.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/doctest.hpp"

#ifdef SKYTAPE_HAVE_DNNL
#include <dlfcn.h>
#include <dnnl.h>

#include <atomic>
#include <string>

using namespace skytape;
using namespace skytape::test;
using attention::Spec;

namespace {

std::atomic<std::int64_t> multiply_adds = 0;  // of oneDNN's products in f32

}  // namespace

/// Takes the place of oneDNN's, which it counts and calls.
extern "C" dnnl_status_t dnnl_sgemm(char op_a, char op_b, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k,
                                    float alpha, const float* a, dnnl_dim_t lda, const float* b,
                                    dnnl_dim_t ldb, float beta, float* c, dnnl_dim_t ldc) {
  static const auto counted =
      reinterpret_cast<decltype(&dnnl_sgemm)>(::dlsym(RTLD_NEXT, "dnnl_sgemm"));
  multiply_adds += m * n * k;
  return counted(op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

/// Compares what a method states with the products that it computes for n tokens.
void compare_cost(const Spec& spec, std::int64_t n) {
  constexpr std::int64_t kWidth = 16, kFeatures = 24;
  CAPTURE(spec.name);
  CAPTURE(n);
  const OptionValues options = spec.has_option("features")
                                   ? OptionValues{{"features", std::to_string(kFeatures)}}
                                   : OptionValues{};
  ParameterStore store;
  const auto method = spec.make({0, 1, kWidth, n, "attn.", &store, kWidth}, options);
  store.pack(DType::f32, Device::cpu, 3);
  const Sizes sizes{.batch = 1, .heads = 1, .n = n, .width = kWidth};
  const Problem p = convert(make_problem(spec, sizes, Padding::none), DType::f32);
  Tape tape;
  const auto input = [&](const Tensor& x) { return x.defined() ? tape.input(x) : Var(); };
  const Tensor x = p.in.x.defined() ? tensor::narrow(p.in.x, 2, 0, kWidth) : Tensor();
  const attention::InputVars vars{input(p.in.q), input(p.in.k), input(p.in.v), input(x)};
  multiply_adds = 0;
  const Var out = attention::apply(*method, vars, p.in.mask, training_call(p.in));
  const std::int64_t forward = multiply_adds.exchange(0);
  tape.backward(out, p.dout);
  const std::int64_t backward = multiply_adds.exchange(0);
  const attention::Cost stated = spec.cost_at({static_cast<double>(n), kFeatures, kWidth});
  // Informer scores sampled keys in a loop, with as many multiply-adds as each of its products.
  const bool has_loop = spec.name.starts_with("informer");
  CHECK(stated.forward == (has_loop ? 1.5 : 1) * static_cast<double>(forward));
  CHECK(stated.backward == static_cast<double>(backward));
}

TEST_CASE("the cost that a method states is that of the products of its forward and its backward") {
  for (const Spec& spec : attention::registry()) {
    for (const std::int64_t n : {320, 1024}) compare_cost(spec, n);
  }
}

TEST_CASE("a block that is longer than the sequence costs as much as one of its length") {
  for (const char* name : {"bigbird", "sinkhorn", "local"}) compare_cost(attention::find(name), 20);
}
#endif
