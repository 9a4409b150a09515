#include "train/lab/studies/theory/theory.hpp"

#include <omp.h>

#include <cmath>
#include <limits>
#include <utility>

#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/program.hpp"
#include "tests/train/lab/studies/study_sources.hpp"

using namespace skytape;
using namespace skytape::train;

namespace {

const TheorySizes kSmall{48, 16, 0.5};

/// A statement whose seeds measure what `numbers` says.
Statement scripted(std::vector<double> numbers, double bound, double allowed = 0) {
  Statement s;
  s.name = "scripted";
  s.allowed = allowed;
  s.try_once = [numbers = std::move(numbers), bound](const TheorySizes&, std::uint64_t seed) {
    return std::vector<Trial>{{"", numbers.at(seed), bound}};
  };
  return s;
}

/// The matrices are too small to share.
struct OneThread {
  int threads = omp_get_max_threads();
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(threads); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
};

bool holds(const Statement& statement, std::int64_t seeds) {
  const std::vector<Statement> one = {statement};
  const std::vector<Verdict> verdicts = check(one, kSmall, 0, seeds);
  return all_hold(verdicts);
}

}  // namespace

TEST_CASE("every statement that must hold does, on small sizes") {
  const OneThread one_thread;
  for (const Statement& statement : theory_statements()) {
    if (!statement.must_hold) continue;
    CAPTURE(statement.name);
    const std::vector<Statement> one = {statement};
    const std::vector<Verdict> verdicts = check(one, kSmall, 5, 2);
    CHECK(!verdicts.empty());
    CHECK(all_hold(verdicts));
  }
}

TEST_CASE("block-norm holds where there are fewer rows than the most landmarks") {
  const OneThread one_thread;
  for (const Statement& statement : theory_statements()) {
    if (statement.name != "block-norm") continue;
    const std::vector<Statement> one = {statement};
    for (const auto& [n, counts] : {std::pair(16, 2u), std::pair(64, 4u)}) {  // of landmarks
      const std::vector<Verdict> verdicts = check(one, {n, 16, 0.5}, 0, 3);
      CHECK(verdicts.size() == counts);
      CHECK(all_hold(verdicts));
    }
  }
}

TEST_CASE("a statement that is wrong is noticed") {
  const OneThread one_thread;
  CHECK(holds(kernelized_identity(0.5), 1));
  CHECK_FALSE(holds(kernelized_identity(0.49), 1));
  CHECK(holds(sampling_expectation(1), 1));
  CHECK_FALSE(holds(sampling_expectation(1.2), 1));
}

TEST_CASE(
    "a statement holds if no more seeds break it than it allows, and a number that is none "
    "breaks it") {
  CHECK(holds(scripted({1, 2, 3}, 3), 3));
  CHECK_FALSE(holds(scripted({1, 2, 3.1}, 3), 3));
  CHECK(holds(scripted({1, 9, 1, 1}, 3, 0.25), 4));
  CHECK_FALSE(holds(scripted({1, 9, 9, 1}, 3, 0.25), 4));
  CHECK_FALSE(holds(scripted({std::numeric_limits<double>::quiet_NaN()}, 3), 1));

  const std::vector<Statement> one = {scripted({1, 5, 2}, 3, 0.5)};
  const std::vector<Verdict> verdicts = check(one, kSmall, 0, 3);
  REQUIRE(verdicts.size() == 1);
  CHECK(verdicts[0].worst == 5);
  CHECK(verdicts[0].mean == doctest::Approx(8.0 / 3));
  CHECK(verdicts[0].broken == 1);
  CHECK(verdicts[0].seeds == 3);
}

TEST_CASE(
    "what need not hold does not fail the check, and what is known to be false is not found "
    "true") {
  Statement optional = scripted({5}, 3);
  optional.must_hold = false;
  CHECK(holds(optional, 1));
  for (const Statement& statement : theory_statements()) {
    if (statement.must_hold) continue;
    if (statement.name != "attention-psd" && statement.name != "jl-relative" &&
        statement.name != "no-preconditioning" && statement.name != "theorem-2-equal-values" &&
        statement.name != "theorem-2-exchange") {
      continue;  // the others may hold for some inputs
    }
    CAPTURE(statement.name);
    const std::vector<Statement> one = {statement};
    for (const Verdict& v : check(one, kSmall, 5, 1)) CHECK_FALSE(v.holds);
  }
}

TEST_CASE("pilots of Lemma 1 are as many as it prints, and bounds of Proposition 1 those of beta") {
  const OneThread one_thread;
  const auto cases = [](const char* name) {
    std::vector<Statement> one;
    for (const Statement& s : theory_statements()) {
      if (s.name == name) one.push_back(s);
    }
    REQUIRE(one.size() == 1);
    return one.front().try_once(kSmall, 9);
  };
  // Three numbers of columns, each with the paper's probabilities and two that are off.
  const std::vector<Trial> bounds = cases("frobenius-bound");
  REQUIRE(bounds.size() == 9);
  CHECK(bounds[0].at == "d = 16, beta = 1");
  CHECK(bounds[8].at == "d = 64, beta = 0.2");
  const std::vector<Trial> factor = cases("pilot-lemma");
  REQUIRE(factor.size() == 1);
  CHECK(factor[0].bound == doctest::Approx(std::sqrt(3.0)));
  CHECK(factor[0].measured >= 1);
  CHECK(factor[0].measured < factor[0].bound);
  // A few pilots are further off.
  CHECK(1 / cases("few-pilots")[0].measured > factor[0].measured);
  // Theorem 2's rows: 5 ln 48 / (1/4 - 1/8), fewer than 9 p ln p of a head of 16.
  CHECK(cases("theorem-2")[0].at == "k = 155");
}

TEST_CASE("the same seeds give the same table, other seeds another") {
  const OneThread one_thread;
  const std::vector<Statement> statements = sampling_statements();
  const auto table = [&](std::uint64_t seed) {
    return to_json(to_table(check(statements, kSmall, seed, 2)));
  };
  CHECK(table(1) == table(1));
  CHECK(table(1) != table(2));
}

TEST_CASE("with real attention a seed stands for a text and one of its heads") {
  const OneThread one_thread;
  const InputSource source = test::normal_source(0.5);
  const TheorySizes sizes = real_sizes(source, 1, 64, 10);
  CHECK(sizes.width == 8);
  const attention::Inputs in = source.example(64, 3)[1].in;  // text 3, and of two heads the second
  const auto same = [](const Tensor& a, const Tensor& b) { return a.to_vector() == b.to_vector(); };
  CHECK(same(theory_rows(64, sizes, 13, 1), in.q[0][1]));
  CHECK(same(theory_rows(64, sizes, 13, 2), in.k[0][1]));
  CHECK(same(theory_rows(20, sizes, 13, 3), in.v[0][1].slice(0, 20)));
  for (const Statement& statement : theory_statements()) {
    CAPTURE(statement.name);
    const std::vector<Statement> one = {statement};
    const std::vector<Verdict> verdicts = check(one, sizes, 10, 1);
    if (statement.must_hold) CHECK(all_hold(verdicts));
  }
  CHECK(data::synthetic::error_of<UsageError>([&] {
          (void)real_sizes(source, 2, 64, 0);
        }).find("--layer") != std::string::npos);
}

TEST_CASE("theory fails where a statement breaks, and refuses unknown ones") {
  if (!test::program_or_skip()) return;
  const data::synthetic::Folder folder;
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"theory", "--seeds", "1", "--n", "16"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return test::run_program(folder.path(), arguments);
  };
  const auto out = folder.path() / "out";
  CHECK(run({"--statements", "kernelized-identity", "--out", out}).code == 0);
  CHECK(data::synthetic::read_file(out / "theory.json").find("kernelized-identity") !=
        std::string::npos);
  // exp(q.k) overflows, and infinity times zero is no number.
  const test::Finished broken = run({"--statements", "kernelized-identity", "--deviation", "100"});
  CHECK(broken.code == 1);
  CHECK(broken.err.find("kernelized-identity  does not hold") != std::string::npos);
  CHECK(broken.out.find("NO") != std::string::npos);
  CHECK(run({"--statements", "jl-norm", "--threads", "2"}).out ==
        run({"--statements", "jl-norm"}).out);
  CHECK(run({"--threads", "-3"}).code == 2);
  const test::Finished unknown = run({"--statements", "kernel-spd"});
  CHECK(unknown.code == 2);
  CHECK(unknown.err.find("did you mean 'kernel-psd'?") != std::string::npos);
}
