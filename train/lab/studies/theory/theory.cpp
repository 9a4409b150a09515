#include "train/lab/studies/theory/theory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "tensor/core/error.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/random/random.hpp"

namespace skytape::train {
namespace {

/// Returns by how much a trial breaks its bound; negative where it keeps it, infinite for NaN.
double excess(const Statement& statement, const Trial& trial) {
  const double excess = statement.relation == Relation::at_most ? trial.measured - trial.bound
                                                                : trial.bound - trial.measured;
  return std::isnan(excess) ? std::numeric_limits<double>::infinity() : excess;
}

/// The trials of a seed. Numbers that are too large overflow in exp, which an error then names.
std::vector<Trial> try_once(const Statement& statement, const TheorySizes& sizes,
                            std::uint64_t seed) {
  try {
    return statement.try_once(sizes, seed);
  } catch (const Error& error) {
    throw Error(fmt::format("theory: {}, seed {}: {}; --deviation {:g} may be too large",
                            statement.name, seed, error.what(), sizes.deviation));
  }
}

std::vector<Verdict> check_one(const Statement& statement, const TheorySizes& sizes,
                               std::uint64_t first_seed, std::int64_t seeds) {
  std::vector<Verdict> verdicts;
  std::vector<double> worst;  // excess of each case
  for (std::int64_t s = 0; s < seeds; ++s) {
    const std::vector<Trial> trials =
        try_once(statement, sizes, first_seed + static_cast<std::uint64_t>(s));
    if (s == 0) {
      for (const Trial& trial : trials) verdicts.push_back({&statement, trial.at});
      worst.assign(trials.size(), -std::numeric_limits<double>::infinity());
    }
    ENSURE(trials.size() == verdicts.size(), "theory: ", statement.name, ": ", trials.size(),
           " cases with one seed, ", verdicts.size(), " with another");
    for (std::size_t i = 0; i < trials.size(); ++i) {
      const double e = excess(statement, trials[i]);
      Verdict& v = verdicts[i];
      ++v.seeds;
      v.broken += e > 0 ? 1 : 0;
      v.mean += trials[i].measured / static_cast<double>(seeds);
      if (e < worst[i]) continue;
      worst[i] = e;
      v.worst = trials[i].measured;
      v.bound = trials[i].bound;
    }
  }
  for (Verdict& v : verdicts) {
    v.holds = static_cast<double>(v.broken) <= statement.allowed * static_cast<double>(v.seeds);
  }
  return verdicts;
}

/// "yes", "NO", or for what need not hold "yes (need not)", "no (need not)".
std::string judgement(const Verdict& v) {
  if (v.statement->must_hold) return v.holds ? "yes" : "NO";
  return v.holds ? "yes (need not)" : "no (need not)";
}

}  // namespace

std::vector<Statement> theory_statements() {
  std::vector<Statement> all;
  for (const auto& part : {kernel_statements(), inverse_statements(), sampling_statements(),
                           projection_statements()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::vector<Verdict> check(std::span<const Statement> statements, const TheorySizes& sizes,
                           std::uint64_t first_seed, std::int64_t seeds) {
  ENSURE(seeds > 0, "theory: expected at least one seed, got ", seeds);
  std::vector<Verdict> all;
  for (const Statement& statement : statements) {
    const std::vector<Verdict> verdicts = check_one(statement, sizes, first_seed, seeds);
    all.insert(all.end(), verdicts.begin(), verdicts.end());
  }
  return all;
}

bool all_hold(std::span<const Verdict> verdicts) {
  return std::ranges::none_of(verdicts,
                              [](const Verdict& v) { return v.statement->must_hold && !v.holds; });
}

Table to_table(std::span<const Verdict> verdicts) {
  Table table;
  table.name = "theory";
  table.title = "Statements of the papers, checked with numbers";
  table.columns = {{"statement"},       {"reference"},       {"at"},
                   {"mean", "{:.3g}"},  {"worst", "{:.3g}"}, {"is"},
                   {"bound", "{:.3g}"}, {"broken"},          {"holds"}};
  const Statement* last = nullptr;
  for (const Verdict& v : verdicts) {
    const Statement& s = *v.statement;
    table.add({s.name, s.reference, v.at, v.mean, v.worst,
               s.relation == Relation::at_most ? "<=" : ">=", v.bound,
               fmt::format("{}/{}", v.broken, v.seeds), judgement(v)});
    if (&s != last)
      table.notes.push_back(fmt::format("{}: {}; measured: {}", s.name, s.says, s.measured));
    last = &s;
  }
  return table;
}

TheorySizes real_sizes(const InputSource& source, std::int64_t layer, std::int64_t n,
                       std::uint64_t first_seed) {
  const auto place = static_cast<std::size_t>(check_layer(layer, source.layers, source.name));
  check_length(source, n);
  TheorySizes sizes;
  sizes.n = n;
  sizes.width = source.example(n, 0)[place].in.q.size(3);
  // Statements ask for the arrays of a seed one after the other.
  struct Last {
    std::int64_t index = -1;
    attention::Inputs in;
  };
  sizes.real = [source, place, n, first_seed, last = std::make_shared<Last>()](
                   std::uint64_t seed, std::uint64_t which) {
    const auto index = static_cast<std::int64_t>(seed - first_seed);
    if (last->index != index) *last = {index, source.example(n, index)[place].in};
    const Tensor& x = which == 1 ? last->in.q : which == 2 ? last->in.k : last->in.v;
    return x[0][index % x.size(1)];  // [N, D]
  };
  return sizes;
}

Tensor theory_rows(std::int64_t rows, const TheorySizes& sizes, std::uint64_t seed,
                   std::uint64_t which) {
  if (!sizes.real) return theory_numbers({rows, sizes.width}, sizes, seed, which);
  ENSURE(rows <= sizes.n, "theory: expected at most ", sizes.n, " real rows, got ", rows);
  return sizes.real(seed, which).slice(0, rows);
}

Tensor theory_numbers(const Shape& shape, const TheorySizes& sizes, std::uint64_t seed,
                      std::uint64_t which) {
  const Random random = fork(Random{seed, {}}, Purpose::data).fork(which);
  return tensor::affine(tensor::normal(shape, random, DType::f64, Device::cpu), sizes.deviation);
}

}  // namespace skytape::train
