#include "train/lab/studies/approx.hpp"

#include <cmath>
#include <string_view>

#include "attention/registry.hpp"
#include "data/files/json.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/gemm/linear_algebra.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/lab/studies/study_sources.hpp"
#include "train/lab/studies/exact_attention.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::error_of;
using test::contains;
using test::normal_source;

namespace {

ApproxOptions small(std::vector<std::string> methods) {
  ApproxOptions options;
  options.lengths = {32};
  options.features = {4, 16};
  options.methods = std::move(methods);
  options.trials = 3;
  options.best_rank_trials = 2;
  return options;
}

const ApproxCell& cell(const std::vector<ApproxCell>& cells, std::string_view method,
                       std::optional<std::int64_t> features) {
  for (const ApproxCell& c : cells) {
    if (c.method == method && c.features == features) return c;
  }
  FAIL("no cell of " << method);
  return cells.front();
}

}  // namespace

TEST_CASE("an estimate is the mean and its standard error") {
  const Estimate e = estimate({1, 2, 3, 6});
  CHECK(e.mean == doctest::Approx(3));
  CHECK(e.error == doctest::Approx(std::sqrt(14.0 / 3 / 4)));
  CHECK(estimate({7}).error == 0);
}

TEST_CASE("V-Mean's cell is the spectral norm of what exact attention adds to the mean") {
  // The last five positions are padding: their rows do not count.
  const InputSource source = normal_source(1, 5);
  ApproxOptions options = small({"vmean"});
  options.trials = 1;
  options.layer = 1;
  const std::vector<ApproxCell> cells = run_approx(source, options);
  const attention::Inputs in = source.example(32, 0)[1].in;
  const Tensor exact = exact_output("softmax", in);  // [1, 2, 32, 8]
  double absolute = 0, relative = 0;
  for (std::int64_t h = 0; h < 2; ++h) {
    Tensor difference = exact[0][h].slice(0, 27).clone();  // [27, 8]
    const double norm = tensor::singular_values(difference).front();
    for (std::int64_t c = 0; c < 8; ++c) {
      double mean = 0;
      for (std::int64_t i = 0; i < 27; ++i) mean += in.v[0][h].data<double>()[i * 8 + c] / 27;
      for (std::int64_t i = 0; i < 27; ++i) difference.data<double>()[i * 8 + c] -= mean;
    }
    const double error = tensor::singular_values(difference).front();
    absolute += error / 2;
    relative += error / norm / 2;
  }
  const ApproxCell& found = cell(cells, "vmean", std::nullopt);
  CHECK(found.absolute.mean == doctest::Approx(absolute).epsilon(1e-9));
  CHECK(found.relative.mean == doctest::Approx(relative).epsilon(1e-9));
  CHECK(found.target == "softmax");
}

TEST_CASE("the row of the best rank is the truncated SVD of the attention matrix") {
  const InputSource source = normal_source(1, 3);  // three positions of padding
  const std::vector<ApproxCell> cells = run_approx(source, small({"skyformer"}));
  CHECK(cell(cells, kBestRank, 4).target == "kernelized");
  CHECK(cell(cells, kBestRank, 4).trials == 2);
  double expected = 0;
  for (std::int64_t trial = 0; trial < 2; ++trial) {
    const attention::Inputs in = source.example(32, trial)[0].in;
    for (std::int64_t h = 0; h < 2; ++h) {
      const Tensor p = attention_matrix("kernelized", in, h);
      const Tensor all = tensor::symmetric_eigen(tensor::matmul(p, p, Op::none, Op::transpose))
                             .vectors;                                 // [32, 32]
      Tensor last = Tensor::zeros({32, 32}, DType::f64, Device::cpu);  // without the first four
      for (std::int64_t i = 0; i < 32 * 32; ++i) {
        if (i % 32 >= 4) last.data<double>()[i] = all.data<double>()[i];
      }
      const Tensor out = tensor::matmul(p, in.v[0][h]);
      expected += tensor::spectral_norm(tensor::matmul(last, out, Op::transpose)) / 4;
    }
  }
  CHECK(cell(cells, kBestRank, 4).absolute.mean == doctest::Approx(expected).epsilon(1e-4));
}

TEST_CASE("a cell's norm is that of the exact output, head by head, whatever approximates it") {
  const InputSource source = normal_source(1, 4);  // four positions of padding
  const std::vector<ApproxCell> cells =
      run_approx(source, small({"skyformer", "vmean", "linformer"}));
  const auto norm = [&](const char* target, int trials) {
    double sum = 0;
    for (std::int64_t trial = 0; trial < trials; ++trial) {
      const attention::Inputs in = source.example(32, trial)[0].in;
      const Tensor exact = exact_output(target, in);  // [1, 2, 32, 8]
      for (std::int64_t h = 0; h < 2; ++h) {
        sum += tensor::singular_values(exact[0][h].slice(0, 28).clone()).front() / 2;
      }
    }
    return sum / trials;
  };
  REQUIRE(std::abs(norm("softmax", 3) / norm("kernelized", 3) - 1) > 0.05);
  const auto check = [&](const char* method, std::optional<std::int64_t> features,
                         const char* target, int trials) {
    CAPTURE(method);
    const ApproxCell& found = cell(cells, method, features);
    CHECK(found.target == target);
    CHECK(found.exact_norm.mean == doctest::Approx(norm(target, trials)).epsilon(1e-9));
    CHECK(found.exact_norm.mean != doctest::Approx(found.absolute.mean).epsilon(0.02));
  };
  check("vmean", std::nullopt, "softmax", 3);
  check("linformer", 4, "softmax", 3);
  check("linformer", 16, "softmax", 3);
  check("skyformer", 4, "kernelized", 3);
  check("skyformer", 16, "kernelized", 3);
}

TEST_CASE("with as many landmarks as tokens Nystromformer has no error") {
  ApproxOptions options = small({"nystrom"});
  options.features = {8, 32};
  const std::vector<ApproxCell> cells = run_approx(normal_source(), options);
  CHECK(cell(cells, "nystrom", 32).relative.mean <= 1e-12);
  CHECK(cell(cells, "nystrom", 8).relative.mean > 1e-2);
}

TEST_CASE("kernel methods approximate better with more landmarks, each its own attention") {
  ApproxOptions options = small({"skyformer", "nystrom_sm"});
  options.features = {4, 32};
  const std::vector<ApproxCell> cells = run_approx(normal_source(0.5), options);
  for (const char* method : {"skyformer", "nystrom_sm"}) {
    INFO(method);
    CHECK(cell(cells, method, 32).absolute.mean < 0.5 * cell(cells, method, 4).absolute.mean);
  }
  CHECK(cell(cells, "skyformer", 4).target == "kernelized");
  CHECK(cell(cells, "nystrom_sm", 4).target == "softmax");
}

TEST_CASE("every approximation runs; the same seed gives the same table bit for bit") {
  ApproxOptions options = small(approximating_methods(false));
  options.trials = 2;
  const std::vector<ApproxCell> cells = run_approx(normal_source(), options);
  for (const std::string& method : approximating_methods(false)) {
    const bool swept = std::any_of(cells.begin(), cells.end(), [&](const ApproxCell& c) {
      return c.method == method && c.features == 16;
    });
    const ApproxCell& one =
        cell(cells, method, swept ? std::optional<std::int64_t>(16) : std::nullopt);
    INFO(method);
    CHECK(std::isfinite(one.relative.mean));
    CHECK(one.target == attention::find(method).approximates);
  }
  const std::string again = data::json_text(to_json(run_approx(normal_source(), options)));
  CHECK(data::json_text(to_json(cells)) == again);
  options.seed = 43;
  CHECK(data::json_text(to_json(run_approx(normal_source(), options))) != again);
}

TEST_CASE("a table says that its trials repeat examples, since its errors do not") {
  InputSource two = normal_source();
  two.example = [all = two.example](std::int64_t n, std::int64_t index) {
    return all(n, index % 2);
  };
  const std::vector<ApproxCell> cells = run_approx(two, small({"vmean"}));
  CHECK(cell(cells, "vmean", std::nullopt).trials == 3);
  CHECK(cell(cells, "vmean", std::nullopt).examples == 2);
  CHECK(cell(cells, kBestRank, 4).examples == 2);
  CHECK(to_json(cells)[0]["examples"] == 2);
  CHECK(contains(to_text(tables(cells)[0]), "The source has 2 examples of n positions: "));
  const std::vector<ApproxCell> all = run_approx(normal_source(), small({"vmean"}));
  CHECK(cell(all, "vmean", std::nullopt).examples == 3);
  CHECK_FALSE(contains(to_text(tables(all)[0]), "The source has"));
}

TEST_CASE("a method's options change its cells") {
  ApproxOptions options = small({"skyformer"});
  const double before = cell(run_approx(normal_source(), options), "skyformer", 16).absolute.mean;
  options.method_options["skyformer"] = {{"gamma", "5"}};
  CHECK(cell(run_approx(normal_source(), options), "skyformer", 16).absolute.mean > 1.1 * before);
}

TEST_CASE("impossible studies are refused before anything is computed") {
  const auto refusal = [&](const ApproxOptions& options) {
    return error_of<UsageError>([&] { (void)run_approx(normal_source(), options); });
  };
  CHECK(contains(refusal(small({"softmax"})), "softmax is no approximation"));
  CHECK(contains(refusal(small({"skyfromer"})), "did you mean"));
  ApproxOptions options = small({"skyformer"});
  options.features = {33};
  CHECK(contains(refusal(options), "at most n = 32, got 33"));
  options = small({"skyformer"});
  options.lengths = {32, 2048};
  CHECK(contains(refusal(options), "--n: expected 1..1024"));
  options = small({"skyformer"});
  options.layer = 2;
  CHECK(contains(refusal(options), "--layer"));
  options = small({"skyformer"});
  options.method_options["skyformer"] = {{"gama", "1"}};
  CHECK(contains(refusal(options), "gama"));
  options.method_options = {{"linformer", {{"frozen", "1"}}}};
  CHECK(contains(refusal(options), "linformer is not among"));
  options.method_options = {{"skyformer", {{"features", "9"}}}};
  CHECK(contains(refusal(options), "skyformer.features"));
}

TEST_CASE("what is not finite shows as nan, null and a gap, and rows without features as lines") {
  std::vector<ApproxCell> cells;
  for (const std::int64_t d : {8, 16}) {
    ApproxCell c{"skeinformer", "softmax", 64, d, 2, 2, {0.5, 0.1}, {0.25, 0.05}, {2, 0}};
    if (d == 16) c.absolute = c.relative = {std::nan(""), std::nan("")};
    cells.push_back(c);
  }
  cells.push_back({"vmean", "softmax", 64, std::nullopt, 2, 2, {1, 0.1}, {0.5, 0.05}, {2, 0}});
  const std::vector<Table> shown = tables(cells);
  REQUIRE(shown.size() == 2);
  CHECK(shown[0].name == "softmax-64-relative");
  CHECK(contains(to_text(shown[0]), "25 +- 5"));
  CHECK(contains(to_text(shown[0]), "nan +- nan"));
  CHECK(shown[1].rows[1][1].words == "1 +- 0.1");
  CHECK(shown[1].rows[1][2].words == "same");  // vmean
  const data::Json json = to_json(cells);
  CHECK(json[1]["error_mean"].is_null());
  CHECK(json[2]["features"].is_null());
  CHECK(json[0]["relative_mean"] == 0.25);
}
