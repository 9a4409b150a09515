#include "train/lab/bench/roofline.hpp"

#include "attention/registry.hpp"
#include "tensor/core/on_device.hpp"
#include "tests/support/doctest.hpp"
#include "train/step/trainer.hpp"

using namespace skytape;
using namespace skytape::train;

namespace {

BenchCase small_case(const std::string& method, std::int64_t batch) {
  BenchCase c;
  c.attention = method;
  c.n = 256;
  c.batch = batch;
  c.features = 16;
  return c;
}

/// Counted without reckoning from smaller batches.
std::vector<Work> counted(const BenchCase& c) {
  const RunConfig config = configure(c);
  nn::Model model(config.model, DType::f32, Device::cpu, 1);
  const data::Batch batch = bench_batch(c, config.model);
  Trainer trainer(model, config.adamw, config.schedule, 1, {});
  trainer.step(batch);
  const TrafficCount count;
  trainer.step(batch);
  return count.launches();
}

}  // namespace

TEST_CASE("the work of any batch follows from two small ones, for every method") {
  for (const attention::Spec& spec : attention::registry()) {
    CAPTURE(spec.name);
    const BenchCase c = small_case(spec.name, 5);
    const std::vector<Work> reckoned = cpu_step_launches(c), direct = counted(c);
    REQUIRE(reckoned.size() == direct.size());
    for (std::size_t i = 0; i < direct.size(); ++i) {
      CAPTURE(i);
      CHECK(reckoned[i].bytes == direct[i].bytes);
      CHECK(reckoned[i].multiply_adds == direct[i].multiply_adds);
      CHECK(reckoned[i].product == direct[i].product);
    }
  }
}

TEST_CASE("a step's operations are those that the model's formula states") {
  for (const char* method : {"softmax", "skyformer", "reformer", "linformer", "vmean"}) {
    CAPTURE(method);
    const BenchCase c = small_case(method, 7);
    const RunConfig config = configure(c);
    const attention::CostSizes sizes{static_cast<double>(c.n), static_cast<double>(c.features),
                                     static_cast<double>(config.model.head_width)};
    std::int64_t multiply_adds = 0;
    for (const Work& launch : cpu_step_launches(c)) multiply_adds += launch.multiply_adds;
    CHECK(2.0 * static_cast<double>(multiply_adds) ==
          model_flops(config.model, sizes, c.batch, false));
  }
}

TEST_CASE("each kernel waits for the slower of arithmetic and memory, products at their own rate") {
  const Rates rates{1000, 100, 10};  // GB/s, TFLOP/s
  const auto seconds = [&](const Work& launch, const char* precision) {
    return predict({{"", "", launch}}, rates, precision).seconds;
  };
  const Work product{1'000'000, 500'000'000'000, true};  // 1 us of memory, 10^12 operations
  CHECK(seconds(product, "bf16") == doctest::Approx(1e-2));
  CHECK(seconds(product, "tf32") == doctest::Approx(2e-2));
  CHECK(seconds(product, "fp32") == doctest::Approx(1e-1));
  const Work own{1'000'000, 500'000'000'000, false};  // no tensor cores
  CHECK(seconds(own, "bf16") == doctest::Approx(1e-1));
  // Three products each, whatever the precision of others.
  for (const auto& [name, time] :
       {std::pair("inverse 3xTF32", 6e-2), std::pair("inverse bf16x3", 3e-2)}) {
    const StepWork inverse = predict({{name, "", own}}, rates, "bf16");
    CHECK(inverse.seconds == doctest::Approx(time));
    CHECK(inverse.own_flops == doctest::Approx(1e12));
  }
  // 33 blocks keep a quarter of the 132 multiprocessors busy, which memory does not see.
  CHECK(predict({{"", "", own, 33}}, rates, "bf16").seconds == doctest::Approx(4e-1));
  CHECK(predict({{"", "", own, 1000}}, rates, "bf16").seconds == doctest::Approx(1e-1));
  const Work copy{2'000'000'000'000, 1, true};
  CHECK(seconds(copy, "bf16") == doctest::Approx(2));
  CHECK(predict({{"", "", copy, 1}}, rates, "bf16").seconds == doctest::Approx(2));
  const StepWork both = predict({{"", "", product}, {"", "", copy}}, rates, "bf16");
  CHECK(both.seconds == doctest::Approx(2.01));
  CHECK(both.bytes == 2'000'001'000'000);
  CHECK(both.launches == 2);
  CHECK_THROWS_AS((void)seconds(copy, "fp8"), UsageError);
}

TEST_CASE("the table holds every method and what it says of its rates") {
  RooflineOptions options;
  options.methods = {"softmax", "vmean", "skyformer"};
  options.n = 1024;
  options.batch = 32;  // enough for the GPU
  options.features = 8;
  const Table table = roofline_table(options);
  REQUIRE(table.rows.size() == 3);
  const auto number = [&](std::size_t row, std::size_t column) {
    return table.rows[row][column].number;
  };
  for (std::size_t row = 0; row < 3; ++row) {
    CHECK(number(row, 1) > 0);
    CHECK(number(row, 4) == doctest::Approx(number(row, 1) / number(row, 3)));
    CHECK(number(row, 6) >= number(row, 7));        // fp32 is never faster
    CHECK(1.2 * number(row, 7) >= number(row, 8));  // bf16 operands may be rounded by a kernel
    CHECK(number(row, 9) == doctest::Approx(50 * number(row, 8)));  // 50,000 steps of ms
  }
  // Softmax's tiles run on tensor cores. The fused head does not (three products of each of its
  // layers); a program without CUDA counts the head's products as the library's.
  const double head = kHaveCuda ? 6e-9 * 32 * (64 * 128 + 128 * 10) : 0;
  CHECK(number(0, 2) == doctest::Approx(head));
  CHECK(number(2, 2) > 0);             // Skyformer's inverse is counted apart
  CHECK(number(1, 1) < number(0, 1));  // vmean is cheaper
  CHECK(table.notes[0].find("4300 GB/s") != std::string::npos);
}

#ifdef SKYTAPE_CUDA
namespace {

double flops_on_gpu(const BenchCase& c) { return predict(step_kernels(c), {}, c.precision).flops; }

}  // namespace

TEST_CASE("a GPU's step computes what the formula states, and what its tiles compute again") {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const char* method : {"softmax", "linformer", "vmean"}) {
      CAPTURE(method);
      BenchCase c = small_case(method, 7);
      c.precision = precision;
      const nn::ModelConfig model = configure(c).model;
      const attention::CostSizes sizes{static_cast<double>(c.n), static_cast<double>(c.features),
                                       static_cast<double>(model.head_width)};
      // At bf16 two kernels form the gradients of tiled attention, each from scores and dL/dweights
      // of its own: two products more than are needed, with as many keys as there are or are
      // projected to. And the MLP's backward, as one kernel, forms the first of its products again.
      const std::int64_t keys = std::string(method) == "softmax"     ? c.n
                                : std::string(method) == "linformer" ? c.features
                                                                     : 0;
      const double tiles = 2.0 * static_cast<double>(c.batch * model.heads * c.n * keys) *
                           static_cast<double>(model.head_width);
      const double mlp = static_cast<double>(c.batch * c.n * model.width * model.ff_width);
      const double rounded = c.precision == "bf16" ? tiles + mlp : 0.0;
      const double again = 2.0 * static_cast<double>(model.layers) * rounded;
      CHECK(flops_on_gpu(c) == model_flops(model, sizes, c.batch, false) + again);
    }
  }
}

TEST_CASE(
    "Skyformer's inverse never rounds to bf16 alone on a GPU, and a step is the sum of its parts") {
  BenchCase c = small_case("skyformer", 8);
  c.precision = "bf16";
  const StepWork gpu = predict(step_kernels(c), {}, "bf16");
  CHECK(gpu.own_flops > 0);
  REQUIRE(gpu.parts.has_value());
  CHECK(gpu.parts->total() == doctest::Approx(1e3 * gpu.seconds));
  for (const double part : {gpu.parts->attention, gpu.parts->products, gpu.parts->rest,
                            gpu.parts->optimiser, gpu.parts->data}) {
    CHECK(part > 0);
  }
}
#endif
