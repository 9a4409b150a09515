// Nystromformer, the modified Nystrom method, and the pieces they bring.
#include <cmath>

#include "attention/linear/ratio.hpp"
#include "attention/sequence/sequence.hpp"
#include "autograd/gradcheck.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/layout.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

const Spec& nystrom_sm() { return attention::find("nystrom_sm"); }

/// After 16 steps Z has entries of 1e4: it may multiply nothing that was rounded to 8 or 11 bits.
void check_many_steps(Device device, Precision precision) {
  const Sizes sizes{.batch = 1, .heads = 2, .n = 96, .width = 8};
  const OptionValues options = {{"features", "64"}, {"inverse_steps", "16"}};
  for (const char* method : {"nystrom_sm", "skyformer", "nystrom"}) {
    const Spec& spec = attention::find(method);
    Problem p = make_problem(spec, sizes, Padding::none);
    p.in.q = tensor::affine(p.in.q, 0.5);
    p.in.k = tensor::affine(p.in.k, 0.5);
    const Layer exact = make_layer(spec, options, sizes, DType::f64);
    Call call = training_call(p.in);
    const Draws draws = exact.method->draw(p.in, call);
    call.injected = &draws;
    const Outcome expected = run(exact, p, call);

    const PrecisionScope scope(device, precision);
    const Layer layer = make_layer(spec, options, sizes, DType::f32, device);
    const Problem there = convert(p, DType::f32, device);
    const Draws moved = convert(draws, DType::f32, device);
    Call rounded = training_call(there.in);
    rounded.injected = &moved;
    const Outcome found = run(layer, there, rounded);
    // Nystromformer's softmax of landmarks has a condition number of 1e6; its gradients' errors
    // are those of the rounded scores.
    const double of_scores = spec.name == "nystrom" ? 0.15 : 0.02;
    for (const auto& [name, limit] : {std::pair{"out", 0.01}, {"dv", 0.01}, {"dq", of_scores}}) {
      const Tensor& truth = at(expected, name);
      INFO(method, ", precision ", static_cast<int>(precision), ", ", name);
      CHECK(distance(at(found, name).to(Device::cpu).to(DType::f64), truth) <= limit * norm(truth));
    }
  }
}

}  // namespace

TEST_CASE("many steps of the iterative inverse do not make rounded products diverge") {
  if (cpu_bf16_or_skip()) check_many_steps(Device::cpu, Precision::bf16);
  if (!cuda_or_skip()) return;
  check_many_steps(Device::cuda, Precision::tf32);
  check_many_steps(Device::cuda, Precision::bf16);
}

TEST_CASE("segment means follow the nominal length, whatever was trimmed") {
  const Tensor x =
      Tensor::from(std::vector<double>{1, 2, 3, 4, 5}, {1, 1, 5, 1}, DType::f64, Device::cpu);
  const Tensor mask =
      Tensor::from(std::vector<double>{1, 1, 1, 0, 1}, {1, 5}, DType::f64, Device::cpu);
  // Seven positions in three groups: 0-1, 2-3, 4-6; the last two positions were zero rows.
  const attention::SegmentMeans got = attention::segment_means(x, mask, 2, 3, 7);
  CHECK(relative_error(got.rows, {2, 4, 6, 0, 10}) == 0);
  CHECK(relative_error(got.means, {3, 3, 10.0 / 3}) < 1e-15);
  CHECK(relative_error(attention::segment_means(x, mask, 1, 5, 5).means, {1, 2, 3, 0, 5}) == 0);
}

TEST_CASE("rows and their segment means pass gradcheck when segments differ in size") {
  Tensor mask = Tensor::full({2, 19}, 1, DType::f64, Device::cpu);
  mask.data<double>()[3] = mask.data<double>()[20] = 0;
  for (const std::int64_t segments : {4, 21}) {  // fewer than a task's rows, and more
    const GradcheckReport report = gradcheck(
        [&](Tape&, std::span<const Var> v) {
          const Tensor x = v[0].value();
          const auto [rows, means] = attention::segment_means(x, mask, 0.5, segments, 21);
          const Tensor both[] = {rows, means};
          return record("segment_means", {v[0]}, tensor::concat(both, 2),
                        [=](const Tensor& d, Grads& g) {
                          Tensor dx = tensor::narrow(d, 2, 0, 19);
                          const Tensor dmeans = tensor::narrow(d, 2, 19, 19 + segments);
                          attention::segment_means_backward(dmeans, mask, 0.5, 21, dx);
                          g.add(0, dx);
                        });
        },
        {random_tensor({2, 1, 19, 3})});
    CHECK_MESSAGE(report.passed, report.to_string());
  }
}

TEST_CASE("a depthwise convolution equals its definition and passes gradcheck") {
  const Tensor x = random_tensor({2, 2, 6, 3});
  const Tensor weight = random_tensor({2, 1, 5, 1}, DType::f64, Device::cpu, 2);
  const std::vector<double> y = attention::depthwise_convolution(x, weight).to_vector();
  const std::vector<double> from = x.to_vector(), w = weight.to_vector();
  for (int i = 0; i < static_cast<int>(y.size()); ++i) {
    const int position = i / 3 % 6, head = i / 18 % 2;
    double expected = 0;
    for (int t = 0; t < 5; ++t) {
      const int source = position + t - 2;
      if (source >= 0 && source < 6) expected += w[5 * head + t] * from[i + 3 * (t - 2)];
    }
    CHECK(y[i] == doctest::Approx(expected).epsilon(1e-13));
  }
  const GradcheckReport report = gradcheck(
      [](Tape&, std::span<const Var> v) {
        const Tensor a = v[0].value(), b = v[1].value();
        return record("convolution", {v[0], v[1]}, attention::depthwise_convolution(a, b),
                      [=](const Tensor& dy, Grads& g) {
                        const auto d = attention::depthwise_convolution_backward(a, b, dy);
                        g.add(0, d.dx);
                        g.add(1, d.dweight);
                      });
      },
      {x, weight});
  CHECK_MESSAGE(report.passed, report.to_string());
}

TEST_CASE("a kernel wider than the sequence is cut off at its ends") {
  const Tensor x = Tensor::full({1, 1, 2, 1}, 1, DType::f64, Device::cpu);
  const Tensor weight = Tensor::from(std::vector<double>{1, 2, 4, 8, 16, 32, 64}, {1, 1, 7, 1},
                                     DType::f64, Device::cpu);
  CHECK(relative_error(attention::depthwise_convolution(x, weight), {8 + 16, 4 + 8}) == 0);
  const auto d = attention::depthwise_convolution_backward(x, weight, x);
  CHECK(relative_error(d.dweight, {0, 0, 1, 2, 1, 0, 0}) == 0);
}

TEST_CASE("ratio divides by the last column and gives zeros where it is zero") {
  const Tensor x =
      Tensor::from(std::vector<double>{6, 3, 3, 5, 5, 0}, {1, 1, 2, 3}, DType::f64, Device::cpu);
  const attention::Ratio r = attention::ratio(x);
  CHECK(relative_error(r.out, {2, 1, 0, 0}) == 0);
  CHECK(relative_error(r.normaliser, {3, 0}) == 0);
  const Tensor ones = Tensor::full({1, 1, 2, 2}, 1, DType::f64, Device::cpu);
  CHECK(relative_error(attention::ratio_backward(r, ones), {1.0 / 3, 1.0 / 3, -1, 0, 0, 0}) <
        1e-15);
}

TEST_CASE("Nystromformer refuses an even convolution") {
  const Spec& spec = attention::find("nystrom");
  CHECK(error_text([&] {
          (void)make_layer(spec, {{"conv_kernel", "4"}}, {}, DType::f32);
        }).find("expected an odd width") != std::string::npos);
}

TEST_CASE("with all keys as landmarks the exact Nystrom method is softmax attention") {
  const Sizes sizes{.batch = 2, .heads = 2, .n = 20, .width = 8};
  const Problem problem = make_problem(nystrom_sm(), sizes, Padding::mixed);
  std::vector<int> rows;
  for (int b = 0; b < 2; ++b) {
    for (int j = 0; j < 20; ++j) rows.push_back(20 + j);
  }
  Draws draws;
  draws.set("landmarks", Tensor::from(rows, {2, 20}, DType::i32, Device::cpu));
  const auto result = [&](const char* name, const OptionValues& options) {
    const Layer layer = make_layer(attention::find(name), options, sizes, DType::f64);
    Call call = training_call(problem.in);
    call.training = false;
    return layer.method->forward(problem.in, draws, call);
  };
  const attention::Result exact = result("nystrom_sm", {{"solver", "exact"}});
  const attention::Result softmax = result("softmax", {});
  // Padded queries are zero vectors here and ordinary rows there.
  CHECK(relative_error(tensor::mask_rows(exact.out, problem.in.mask),
                       tensor::mask_rows(softmax.out, problem.in.mask)) < 1e-8);
  CHECK(error_text([&] { (void)exact.backward(problem.dout); }).find("has no derivative") !=
        std::string::npos);
}

TEST_CASE("the exact Nystrom method stays finite where exponentials of norms are not") {
  const Sizes sizes{.batch = 1, .heads = 1, .n = 20, .width = 8};
  const Spec& spec = attention::find("nystrom_sm");
  Problem p = convert(make_problem(spec, sizes, Padding::none), DType::f32);
  p.in.k = tensor::affine(p.in.k, 12);  // e^{|y|^2 / 2} is beyond f32
  const Layer layer =
      make_layer(spec, {{"solver", "exact"}, {"features", "40"}}, sizes, DType::f32);
  const Call call = training_call(p.in);
  CHECK(tensor::all_finite(layer.method->forward(p.in, layer.method->draw(p.in, call), call).out));
}

TEST_CASE("segment means and convolutions name what does not fit") {
  const Tensor x = random_tensor({1, 2, 6, 3}), mask = ones_like(x, {1, 6});
  for (const auto& [segments, nominal] : {std::pair(7, 6), {0, 6}, {2, 5}}) {
    CHECK_THROWS_WITH_AS((void)attention::segment_means(x, mask, 1, segments, nominal),
                         doctest::Contains("segment_means: expected N <= nominal"), Error);
  }
  CHECK_THROWS_WITH_AS((void)attention::depthwise_convolution(x, random_tensor({2, 1, 4, 1})),
                       doctest::Contains("weight [H, 1, W, 1] with odd W, got x"), Error);
}

TEST_CASE("a modified Nystrom sequence without real tokens gives zeros and gets zeros") {
  const Sizes sizes{.batch = 1, .heads = 2, .n = 12, .width = 4};
  const Layer layer = make_layer(nystrom_sm(), {{"features", "5"}}, sizes, DType::f64);
  const Problem problem = make_problem(nystrom_sm(), sizes, Padding::all);
  for (const auto& [name, tensor] : run(layer, problem, training_call(problem.in))) {
    CHECK(norm(tensor) == 0);
  }
}

}  // namespace skytape::test
