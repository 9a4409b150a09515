#include "train/lab/studies/spectrum.hpp"

#include <cmath>
#include <numeric>

#include "data/files/json.hpp"
#include "tensor/gemm/linear_algebra.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/lab/studies/study_sources.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::error_of;
using test::normal_source;

namespace {

SpectrumOptions small() {
  SpectrumOptions options;
  options.n = 24;
  options.examples = 2;
  options.landmarks = 8;
  return options;
}

}  // namespace

TEST_CASE("where all queries and keys are alike, every matrix has rank one and one dimension") {
  const std::vector<HeadSpectrum> heads = run_spectrum(normal_source(0), small());
  REQUIRE(heads.size() == 4);  // two layers of two heads
  for (const HeadSpectrum& s : heads) {
    for (const MatrixSpectrum* m : {&s.softmax, &s.kernelized}) {
      CHECK(m->cumulative.front() == doctest::Approx(1));
      CHECK(m->condition >= 1e14);
      CHECK(rank_at(*m, 0.9) == 1);
    }
    for (std::size_t r = 0; r < kRidges.size(); ++r) {
      CHECK(s.dimension[r] == doctest::Approx(1 / (1 + kRidges[r])));
      CHECK(s.coherence[r] == doctest::Approx(1));
    }
    CHECK(s.landmarks >= 1e14);
    CHECK(s.shifted == doctest::Approx(8.1 / 0.1));  // eigenvalues L + gamma and gamma
    CHECK(s.scaled == doctest::Approx(8.1 / 0.1));
  }
}

TEST_CASE("where queries and keys are far apart, the kernel matrix is the identity") {
  const std::vector<HeadSpectrum> heads = run_spectrum(normal_source(100), small());
  for (const HeadSpectrum& s : heads) {
    for (std::size_t r = 0; r < kRidges.size(); ++r) {
      CHECK(s.dimension[r] == doctest::Approx(48 / (1 + kRidges[r])));
      CHECK(s.coherence[r] == doctest::Approx(1));
    }
  }
}

TEST_CASE("spectra are means over the examples, cumulative, and complete") {
  const InputSource source = normal_source();
  const std::vector<HeadSpectrum> heads = run_spectrum(source, small());
  REQUIRE(heads.size() == 4);
  const HeadSpectrum& s = heads[3];
  CHECK(s.layer == 1);
  CHECK(s.head == 1);
  std::vector<double> expected(8);
  for (std::int64_t e = 0; e < 2; ++e) {
    const std::vector<double> values = tensor::singular_values(source.example(24, e)[1].out[0][1]);
    for (std::size_t i = 0; i < 8; ++i) expected[i] += values[i] / 2;
  }
  REQUIRE(s.output.size() == 8);
  for (std::size_t i = 0; i < 8; ++i) CHECK(s.output[i] == doctest::Approx(expected[i]));
  for (const MatrixSpectrum* m : {&s.softmax, &s.kernelized}) {
    REQUIRE(m->cumulative.size() == 24);
    CHECK(std::is_sorted(m->cumulative.begin(), m->cumulative.end()));
    CHECK(m->cumulative.back() == doctest::Approx(1));
    CHECK(share_at_quarter(*m) == m->cumulative[5]);
    const std::int64_t rank = rank_at(*m, 0.9);
    CHECK(m->cumulative[static_cast<std::size_t>(rank - 1)] >= 0.9);
    CHECK(m->cumulative[static_cast<std::size_t>(rank - 2)] < 0.9);
  }
  REQUIRE(s.leverage.size() == 48);
  CHECK(std::is_sorted(s.leverage.rbegin(), s.leverage.rend()));
  CHECK(std::accumulate(s.leverage.begin(), s.leverage.end(), 0.0) ==
        doctest::Approx(s.dimension[kLeverageRidge]));
  CHECK(s.dimension[0] < s.dimension[1]);
  CHECK(s.shifted < s.landmarks);
}

TEST_CASE("the same seed gives the same spectra bit for bit, another one other landmarks") {
  const std::string first = data::json_text(to_json(run_spectrum(normal_source(), small())));
  CHECK(data::json_text(to_json(run_spectrum(normal_source(), small()))) == first);
  SpectrumOptions other = small();
  other.seed = 43;
  CHECK(data::json_text(to_json(run_spectrum(normal_source(), other))) != first);
}

TEST_CASE("spectra at impossible lengths or numbers of landmarks are refused") {
  SpectrumOptions options = small();
  options.landmarks = 49;
  const auto run = [&] { (void)run_spectrum(normal_source(), options); };
  CHECK(error_of<UsageError>(run).find("expected 1..48 landmarks") != std::string::npos);
  options = small();
  options.n = 2000;
  CHECK(error_of<UsageError>(run).find("--n: expected 1..1024") != std::string::npos);
}

TEST_CASE("tables and JSON show each layer, head and matrix") {
  const std::vector<HeadSpectrum> heads = run_spectrum(normal_source(), small());
  const data::Json json = to_json(heads);
  REQUIRE(json.size() == heads.size());
  CHECK(json[3]["layer"] == 1);
  CHECK(json[3]["head"] == 1);
  CHECK(json[3]["softmax"]["share_at_quarter"] == share_at_quarter(heads[3].softmax));
  CHECK(json[3]["output_singular_values"] == heads[3].output);
  // Curves have each of the first indices, then eight an octave, and the last.
  const data::Json& curve = json[2]["kernelized"]["cumulative"];
  std::vector<std::size_t> index;
  for (const data::Json& point : curve) {
    index.push_back(point[0].get<std::size_t>());
    CHECK(point[1] == heads[2].kernelized.cumulative.at(index.back() - 1));
  }
  CHECK(index == std::vector<std::size_t>{1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                          11, 12, 13, 14, 15, 16, 18, 20, 22, 24});
  const std::vector<Table> shown = tables(heads);
  REQUIRE(shown.size() == 3);
  REQUIRE(shown[0].rows.size() == 2);  // layers
  CHECK(
      shown[0].rows[1][1].number ==
      doctest::Approx((share_at_quarter(heads[2].softmax) + share_at_quarter(heads[3].softmax)) / 2)
          .epsilon(1e-12));
  CHECK(shown[1].title.find("n = 24") != std::string::npos);
  CHECK(shown[1].rows.size() == heads.size());
  CHECK(shown[1].rows[3][4].number == share_at_quarter(heads[3].softmax));
  CHECK(shown[2].rows[2].back().number == heads[2].scaled);
}

TEST_CASE("a layer's range is that of its own heads") {
  std::vector<HeadSpectrum> heads = run_spectrum(normal_source(), small());
  REQUIRE(heads.size() == 4);  // two layers of two
  const std::vector<double> softmax = {0.31, 0.12, 0.55, 0.67}, kernelized = {0.2, 0.4, 0.9, 0.8};
  for (std::size_t i = 0; i < 4; ++i) {
    for (double& share : heads[i].softmax.cumulative) share = softmax[i];
    for (double& share : heads[i].kernelized.cumulative) share = kernelized[i];
  }
  const Table layers = tables(heads)[0];
  CHECK(layers.rows[0][2].words == "0.12..0.31");
  CHECK(layers.rows[1][2].words == "0.55..0.67");
  CHECK(layers.rows[0][5].words == "0.20..0.40");
  CHECK(layers.rows[1][5].words == "0.80..0.90");
}
