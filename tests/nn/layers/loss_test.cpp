// The classifier and its loss as one op, against the same composed of an op for each step.
#include "nn/layers/loss.hpp"

#include <cmath>

#include "autograd/ops.hpp"
#include "tensor/classifier/classifier.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/norm/softmax.hpp"
#include "tests/support/both_ways.hpp"
#include "tests/support/classification_loss.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;
using namespace skytape::test;

namespace {

struct Sizes {
  std::int64_t B, K, F, C;
};

// A kernel has 64 rows of a weight and 256 examples at a time.
const Sizes kSizes[] = {
    {32, 64, 128, 10}, {1, 1, 1, 1}, {3, 7, 5, 2}, {300, 33, 70, 3}, {5, 257, 129, 66}};

std::vector<Tensor> inputs(const Sizes& s) {
  const auto entries = [](const Shape& shape, std::uint64_t seed, double high) {
    return random_tensor(shape, DType::f64, Device::cpu, seed, -high, high);
  };
  return {entries({s.B, s.K}, 1, 1), entries({s.F, s.K}, 2, 0.5), entries({s.F}, 3, 0.5),
          entries({s.C, s.F}, 4, 0.5), entries({s.C}, 5, 0.5)};
}

Tensor labels_of(const Sizes& s, Device device) {
  std::vector<std::int32_t> labels;
  for (std::int64_t b = 0; b < s.B; ++b) labels.push_back(static_cast<std::int32_t>(b * 7 % s.C));
  return Tensor::from(labels, {s.B}, DType::i32, device);
}

Var logits_of(const std::vector<Var>& v) {
  return linear(relu(linear(v[0], v[1], v[2])), v[3], v[4]);
}

}  // namespace

TEST_CASE("a fused classifier equals the one composed of an op for each step, at every precision") {
  for (const Sizes& s : kSizes) {
    for (const double smoothing : {0.0, 0.1}) {
      CAPTURE(s.B);
      CAPTURE(s.K);
      CAPTURE(s.C);
      CAPTURE(smoothing);
      check_both_ways(inputs(s), 100, [&](const std::vector<Var>& v, Way way) {
        const Tensor labels = labels_of(s, v[0].value().device());
        if (way == Way::fused) {
          return nn::classifier_loss({v[0], v[1], v[2], v[3], v[4]}, labels, smoothing, 1).loss;
        }
        return classification_loss(logits_of(v), labels, smoothing);
      });
    }
  }
}

TEST_CASE("an example's loss is worth the weight of its class") {
  const Sizes s = {7, 5, 6, 3};
  const std::vector<double> weights = {0.5, 2, 0.25};
  for (const double smoothing : {0.0, 0.1}) {
    check_both_ways(inputs(s), 100, [&](const std::vector<Var>& v, Way way) {
      const Device device = v[0].value().device();
      const Tensor labels = labels_of(s, device);
      if (way == Way::fused) {
        const Tensor w = Tensor::from(weights, {s.C}, v[0].value().dtype(), device);
        return nn::classifier_loss({v[0], v[1], v[2], v[3], v[4]}, labels, smoothing, 1, w).loss;
      }
      // The loss of each example alone, its weight times.
      const Var logits = logits_of(v);  // [B, C]
      Var sum;
      for (std::int64_t b = 0; b < s.B; ++b) {
        const Var loss =
            classification_loss(narrow(logits, 0, b, b + 1), labels.slice(b, b + 1), smoothing);
        const double weight = weights[static_cast<std::size_t>(b * 7 % s.C)];
        sum = b == 0 ? affine(loss, weight) : sum + affine(loss, weight);
      }
      return affine(sum, 1.0 / static_cast<double>(s.B));
    });
  }
}

TEST_CASE("a classifier counts the answers that are right as argmax finds them") {
  for_each_device([](Device device) {
    for (const Sizes& s : kSizes) {
      for (const bool all_alike : {false, true}) {  // then class 0 comes first
        Tape tape;
        std::vector<Var> v;
        for (const Tensor& t : inputs(s)) v.push_back(tape.input(t.to(DType::f32).to(device)));
        if (all_alike) v[3] = affine(v[3], 0), v[4] = affine(v[4], 0);
        const Tensor labels = labels_of(s, device);
        const double right = tensor::sum_all(tensor::correct(logits_of(v).value(), labels)).item();
        const nn::Scored scored = nn::classifier_loss({v[0], v[1], v[2], v[3], v[4]}, labels, 0, 8);
        CHECK(scored.correct.item() == right / 8);
        CHECK((right > 0) == (scored.correct.item() > 0));
      }
    }
  });
}

TEST_CASE("a logit that is not finite shows in the loss as in the composed one") {
  const Sizes s = {3, 7, 5, 4};  // labels 0, 3 and 2
  for_each_device([&](Device device) {
    for (const double logit : {-INFINITY, INFINITY, NAN}) {
      for (const double smoothing : {0.0, 0.1}) {
        std::vector<Tensor> all = inputs(s);
        all[4].data<double>()[1] = logit;
        Tape tape;
        std::vector<Var> v;
        for (const Tensor& t : all) v.push_back(tape.input(t.to(device)));
        const Tensor labels = labels_of(s, device);
        const double found =
            nn::classifier_loss({v[0], v[1], v[2], v[3], v[4]}, labels, smoothing, 1)
                .loss.value()
                .item();
        const double want = classification_loss(logits_of(v), labels, smoothing).value().item();
        CAPTURE(logit);
        CAPTURE(smoothing);
        if (std::isfinite(want)) {
          CHECK(found == doctest::Approx(want).epsilon(1e-12));
        } else {
          CHECK(std::isnan(found) == std::isnan(want));
          CHECK(std::isinf(found) == std::isinf(want));
        }
      }
    }
  });
}

TEST_CASE("a label out of range is an error on a CPU and NaN on CUDA") {
  const Sizes s = {2, 3, 4, 5};
  for_each_device([&](Device device) {
    for (const std::int32_t label : {-1, 5}) {
      Tape tape;
      std::vector<Var> v;
      for (const Tensor& t : inputs(s)) v.push_back(tape.input(t.to(DType::f32).to(device)));
      const std::vector<std::int32_t> labels = {0, label};
      const auto loss = [&] {
        return nn::classifier_loss({v[0], v[1], v[2], v[3], v[4]},
                                   Tensor::from(labels, {2}, DType::i32, device), 0, 1)
            .loss.value()
            .item();
      };
      if (device == Device::cpu) {
        CHECK_THROWS_WITH_AS((void)loss(), doctest::Contains("expected labels in [0, 5)"), Error);
      } else {
        CHECK(std::isnan(loss()));
      }
    }
  });
}

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("on CUDA the papers' classifier is two kernels forward and one backward") {
  using cuda_simulator::LaunchesOnly;
  const LaunchesOnly only;
  const auto somewhere = [](const Shape& shape) {
    return Tensor::empty(shape, DType::f32, Device::cuda);
  };
  const tensor::ClassifierWeights w{somewhere({128, 64}), somewhere({128}), somewhere({10, 128}),
                                    somewhere({10})};
  const Tensor x = somewhere({32, 64});
  const auto f = tensor::classify(x, w, Tensor::empty({32}, DType::i32, Device::cuda), 0.1, 32);
  CHECK(LaunchesOnly::all().size() == 2);
  (void)tensor::classify_backward(x, w, f, somewhere({}));
  CHECK(LaunchesOnly::all().size() == 3);
}
#endif
