// Loops over the op table: every property holds for every differentiable op.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "autograd/ops.hpp"
#include "autograd/tape_print.hpp"
#include "tensor/gemm/precision.hpp"
#include "tensor/random/random.hpp"
#include "tests/autograd/op_table.hpp"
#include "tests/support/close.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;
using test::contains;
using test::OpRow;
using test::Sample;

namespace {

/// A sample's output and gradients, in order, as f64 on the CPU.
using Results = std::vector<Tensor>;

/// Inputs rounded to f32 first, so that every dtype starts from the same numbers.
Results run(const Sample& sample, DType dtype, Device device) {
  Tape tape;
  std::vector<Var> inputs;
  for (const Tensor& x : sample.inputs) {
    inputs.push_back(tape.input(x.to(DType::f32).to(dtype).to(device)));
  }
  const Var y = sample.call(tape, inputs);
  const Tensor c = tensor::normal(y.shape(), Random{9, {}}, DType::f32, Device::cpu);
  tape.backward(y, c.to(dtype).to(device));
  Results results = {y.value()};
  for (const Var x : inputs) {
    const Tensor dx = tape.grad(x);
    results.push_back(dx.defined() ? dx : zeros_like(x.value()));
  }
  for (Tensor& t : results) t = t.to(Device::cpu).to(DType::f64);
  return results;
}

/// max |a - b| / max(1, max |b|); infinite when shapes differ or a number is NaN.
double distance(const Tensor& a, const Tensor& b) {
  if (!(a.shape() == b.shape())) return INFINITY;
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  double difference = 0, scale = 1;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) || std::isnan(y[i])) return INFINITY;
    difference = std::max(difference, std::abs(x[i] - y[i]));
    scale = std::max(scale, std::abs(y[i]));
  }
  return difference / scale;
}

double distance(const Results& a, const Results& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    worst = std::max(worst, distance(a[i], b[i]));
  }
  return worst;
}

template <class F> void for_each_sample(F&& f) {
  for (const OpRow& row : test::op_table()) {
    for (const Sample& sample : row.samples) {
      INFO(row.name, ", ", sample.label);
      f(row, sample);
    }
  }
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Every first group of `pattern` in the text.
std::set<std::string> matches(const std::string& text, const std::string& pattern) {
  std::set<std::string> found;
  const std::regex regex(pattern);
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
    found.insert((*it)[1]);
  }
  return found;
}

const std::filesystem::path kRoot =
    std::filesystem::path(__FILE__).parent_path() / ".." / "..";  // as the build named this file

}  // namespace

TEST_CASE("every op's gradient equals central differences") {
  for_each_sample([](const OpRow&, const Sample& sample) {
    const auto report = gradcheck(sample.call, sample.inputs);
    CHECK_MESSAGE(report.passed, report.to_string());
  });
}

TEST_CASE("every sample runs the op its row names") {
  for_each_sample([](const OpRow& row, const Sample& sample) {
    Tape tape;
    std::vector<Var> inputs;
    for (const Tensor& x : sample.inputs) inputs.push_back(tape.input(x));
    (void)sample.call(tape, inputs);
    CHECK(names(tape).back() == row.name);
  });
}

TEST_CASE("every op's f32 result is the f64 result to rounding") {
  // 64 units in the last place of the largest entry: room for the longest sums of the table.
  const double floor = 64 * 5.96e-8;
  for_each_sample([&](const OpRow&, const Sample& sample) {
    const Results exact = run(sample, DType::f64, Device::cpu);
    CHECK(distance(run(sample, DType::f32, Device::cpu), exact) <= floor);
  });
}

TEST_CASE("every op's CUDA result is as close to f64 as the CPU's") {
  if (!test::cuda_or_skip()) return;
  const double floor = 64 * 5.96e-8;
  for_each_sample([&](const OpRow&, const Sample& sample) {
    const Results exact = run(sample, DType::f64, Device::cpu);
    CHECK(distance(run(sample, DType::f64, Device::cuda), exact) <= 1e-12);
    const double allowed = 3 * distance(run(sample, DType::f32, Device::cpu), exact) + floor;
    CHECK(distance(run(sample, DType::f32, Device::cuda), exact) <= allowed);
  });
}

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("every op runs where blocks have the least shared memory, 99 KB (8.6, 8.9, 12.0)") {
  // At bf16, whose kernels ask for most. A composition in place of a kernel rounds elsewhere.
  const PrecisionScope scope(Device::cuda, Precision::bf16);
  for_each_sample([](const OpRow&, const Sample& sample) {
    const Results roomy = run(sample, DType::f32, Device::cuda);
    const cuda_simulator::ComputeCapability sm_86(8, 6);
    CHECK(distance(run(sample, DType::f32, Device::cuda), roomy) <= 1e-5);
  });
}
#endif

TEST_CASE("every op repeats bit for bit on CUDA") {
  if (!test::cuda_or_skip()) return;
  for_each_sample([](const OpRow&, const Sample& sample) {
    const Results once = run(sample, DType::f32, Device::cuda);
    CHECK(distance(run(sample, DType::f32, Device::cuda), once) == 0);
  });
}

TEST_CASE("every op refuses operands on two devices, by its name") {
  if (!test::cuda_or_skip()) return;
  for_each_sample([](const OpRow& row, const Sample& sample) {
    if (sample.inputs.size() < 2) return;
    Tape tape;
    std::vector<Var> mixed;
    for (const Tensor& x : sample.inputs) {
      const bool last = mixed.size() + 1 == sample.inputs.size();
      mixed.push_back(tape.input(last ? x.to(Device::cuda) : x));
    }
    const std::string text = test::error_text([&] { (void)sample.call(tape, mixed); });
    CHECK_MESSAGE((contains(text, row.name) && contains(text, "@cuda")), "got: ", text);
  });
}

TEST_CASE("every op repeats bit for bit, whatever the number of threads") {
  const int threads = omp_get_max_threads();
  for_each_sample([](const OpRow&, const Sample& sample) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      omp_set_num_threads(1);
      const Results once = run(sample, dtype, Device::cpu);
      for (const int count : {1, 2, 3}) {
        omp_set_num_threads(count);
        CHECK(distance(run(sample, dtype, Device::cpu), once) == 0);
      }
    }
  });
  omp_set_num_threads(threads);
}

TEST_CASE("every op writes into none of its inputs, nor into the upstream gradient") {
  for_each_sample([](const OpRow&, const Sample& sample) {
    std::vector<std::vector<double>> before;
    Tape tape;
    std::vector<Var> inputs;
    for (const Tensor& x : sample.inputs) {
      before.push_back(x.to_vector());
      inputs.push_back(tape.input(x));
    }
    const Var y = sample.call(tape, inputs);
    const Tensor cotangent = Tensor::full(y.shape(), 0.75, DType::f64, Device::cpu);
    tape.backward(y, cotangent);
    for (std::size_t i = 0; i < before.size(); ++i) {
      CHECK(sample.inputs[i].to_vector() == before[i]);
    }
    CHECK(cotangent.to_vector() ==
          std::vector<double>(static_cast<std::size_t>(cotangent.numel()), 0.75));
  });
}

TEST_CASE("every op refuses bad inputs with a text that says what came") {
  for (const OpRow& row : test::op_table()) {
    CHECK_MESSAGE(!row.bad.empty(), row.name, " has no bad input");
    for (const test::BadUse& bad : row.bad) {
      Tape tape;
      const std::string text = test::error_text([&] { (void)bad.call(tape); });
      CHECK_MESSAGE(contains(text, bad.expected), row.name, ": expected '", bad.expected,
                    "', got: ", text);
    }
  }
}

TEST_CASE("every op refuses operands of mixed dtype or of two tapes, by its name") {
  for_each_sample([](const OpRow& row, const Sample& sample) {
    if (sample.inputs.size() < 2) return;
    Tape tape, other;
    std::vector<Var> mixed, strangers;
    for (const Tensor& x : sample.inputs) {
      const bool last = mixed.size() + 1 == sample.inputs.size();
      mixed.push_back(tape.input(last ? x.to(DType::f32) : x));
      strangers.push_back((last ? other : tape).input(x));
    }
    const std::string dtypes = test::error_text([&] { (void)sample.call(tape, mixed); });
    CHECK_MESSAGE((contains(dtypes, row.name) && contains(dtypes, "f32")), "got: ", dtypes);
    const std::string tapes = test::error_text([&] { (void)sample.call(tape, strangers); });
    CHECK_MESSAGE((contains(tapes, row.name) && contains(tapes, "tape")), "got: ", tapes);
  });
}

TEST_CASE("every function of one variable has a row, and the value that it states") {
  for (const std::string name : {
#define UNARY(name, value, derivative) #name,
#include "tensor/kernels/elementwise.def"
       }) {
    const OpRow* row = test::find_op(name);
    REQUIRE_MESSAGE(row != nullptr, name, " of tensor/kernels/elementwise.def has no row");
    const bool stated = row->value != nullptr;
    CHECK_MESSAGE(stated, name, ": its row states no value");
  }
  for_each_sample([](const OpRow& row, const Sample& sample) {
    if (row.value == nullptr) return;
    std::vector<double> expected = sample.inputs[0].to_vector();
    for (double& x : expected) x = row.value(x);
    Tape tape;
    const Var x = tape.input(sample.inputs[0]);
    const Tensor y = sample.call(tape, std::vector<Var>{x}).value();
    CHECK(test::relative_error(y, expected) <= test::rounding(DType::f64));
  });
}

TEST_CASE("every op has exactly one row") {
  std::set<std::string> rows;
  for (const OpRow& row : test::op_table()) {
    CHECK_MESSAGE(rows.insert(row.name).second, row.name, " has two rows");
    CHECK_MESSAGE(!row.samples.empty(), row.name, " has no sample");
  }

  const std::string header = read(kRoot / "autograd" / "ops.hpp");
  REQUIRE_MESSAGE(!header.empty(), "run the tests from the repository's root");
  for (const std::string& op : matches(header, R"(\bVar (\w+)\()")) {
    CHECK_MESSAGE(rows.count(op) == 1, op, " of autograd/ops.hpp has no row");
  }
  for (const char* op : {"add", "subtract", "multiply", "divide"}) {
    CHECK(rows.count(op) == 1);
  }
  CHECK(matches(header, R"(\bVar operator(.)\()").size() == 4);  // - has two forms

  for (const char* folder : {"autograd", "attention", "nn", "train"}) {
    for (const auto& file : std::filesystem::recursive_directory_iterator(kRoot / folder)) {
      if (file.path().extension() != ".cpp") continue;
      for (const std::string& op : matches(read(file.path()), R"(\brecord\(\s*\"(\w+)\")")) {
        if (op == "attention") continue;  // the coarse op has the registry's own loop of checks
        CHECK_MESSAGE(rows.count(op) == 1, op, ", recorded in ", file.path().string(),
                      ", has no row");
      }
    }
  }
}
