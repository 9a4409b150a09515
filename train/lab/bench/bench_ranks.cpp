#include "train/lab/bench/bench_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "nn/model.hpp"
#include "train/ranks/gradient_sum.hpp"
#include "train/step/trainer.hpp"

namespace skytape::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kSeed = 42;
constexpr int kShortRounds = 200;           // timed
constexpr std::int64_t kMostRanks = 1024;   // of the model
constexpr std::int64_t kLargeBatch = 1024;  // microbatches, where the batch is fixed
constexpr double kNumberBytes = 4;          // f32
constexpr double kRounds = 3;               // of a step: two of the sum, one about signals
// The latency and throughput that such networks are known to reach between two programs.
constexpr Network kNetworks[] = {{"10 Gb/s Ethernet", 30e-6, 1.1e9},
                                 {"100 Gb/s InfiniBand", 2e-6, 11e9}};

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Returns the seconds of that name, per step.
double part(const OpSeconds& seconds, const char* name, std::int64_t steps) {
  const auto found = seconds.find(name);
  return found == seconds.end() ? 0 : found->second / static_cast<double>(steps);
}

/// Returns how many microbatches rank 0 of `ranks` computes: the most that one has.
std::int64_t first_share(std::int64_t microbatches, std::int64_t ranks) {
  return Share{0, ranks}.of(microbatches);
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

RankTimes measure_ranks(const BenchCase& c, const Ranks& ranks) {
  const RunConfig config = configure(c);
  nn::Model model(config.model, DType::f32, c.device, kSeed);
  const data::Batch batch = bench_batch(c, config.model);
  const MicrobatchLimits limits = config.microbatch_limits();
  RankTimes times;
  times.microbatches = std::ssize(microbatches_of(batch, limits));
  times.parameters = model.parameters().gradients().numel();
  together(ranks, [&] {
    if (times.microbatches < ranks.size()) {
      throw UsageError(
          fmt::format("bench: {} ranks, but a batch of {} examples is computed in {} "
                      "microbatches: --batch makes more",
                      ranks.size(), c.batch, times.microbatches));
    }
  });
  GradientSum sum(ranks, model.parameters());
  Trainer trainer(model, config.adamw, config.schedule, kSeed, limits, c.graphs, sum.share());
  for (int warm_up = 0; warm_up < 2; ++warm_up) trainer.step(batch);

  OpSeconds seconds;
  trainer.time_ops(&seconds);
  const auto start = Clock::now();
  for (std::int64_t i = 0; i < c.steps; ++i) trainer.step(batch);
  const double step = since(start) / static_cast<double>(c.steps);
  std::vector<double> mine = {step, part(seconds, "exchange", c.steps),
                              part(seconds, "optimiser", c.steps), part(seconds, "data", c.steps)};
  const auto rounds = Clock::now();
  for (int i = 0; i < kShortRounds; ++i) (void)gather(ranks, {0});
  mine.push_back(since(rounds) / kShortRounds);
  const std::vector<double> all = gather(ranks, mine);
  for (auto one = all.begin(); one != all.end(); one += std::ssize(mine)) {
    times.ranks.push_back({one[0], one[0] - one[1] - one[2] - one[3], one[1], one[2], one[3]});
  }
  times.short_round_seconds = mine.back();
  times.microbatch_seconds =
      times.ranks[0].compute / static_cast<double>(first_share(times.microbatches, ranks.size()));
  return times;
}

Table measured_table(const RankTimes& times) {
  Table table{"ranks",
              "A training step, by rank",
              {{"rank"},
               {"step ms", "{:.2f}"},
               {"compute", "{:.2f}"},
               {"exchange", "{:.2f}"},
               {"of the step"},
               {"optimiser", "{:.2f}"},
               {"data", "{:.2f}"}},
              {},
              {}};
  double least = times.ranks[0].exchange;
  for (std::size_t r = 0; r < times.ranks.size(); ++r) {
    const RankTimes::One& one = times.ranks[r];
    table.add({static_cast<double>(r), 1e3 * one.step, 1e3 * one.compute, 1e3 * one.exchange,
               percent(one.exchange / one.step), 1e3 * one.optimiser, 1e3 * one.data});
    least = std::min(least, one.exchange);
  }
  table.notes = {
      fmt::format(
          "{} microbatches of {:.2f} ms; {} numbers exchanged; a short round takes {:.0f} µs",
          times.microbatches, 1e3 * times.microbatch_seconds, times.parameters,
          1e6 * times.short_round_seconds),
      fmt::format("exchange holds the wait for the slowest rank: without it at most {:.2f} ms",
                  1e3 * least)};
  return table;
}

double modelled_exchange(const Network& network, Reduce reduce, std::int64_t ranks,
                         std::int64_t microbatches, double parameters) {
  if (ranks == 1) return 0;
  const auto size = static_cast<double>(ranks);
  const auto rows = static_cast<double>(first_share(microbatches, ranks));
  const double sent = reduce == Reduce::fast ? 2 : rows + 1;  // in parameters
  const double bytes = sent * (1 - 1 / size) * kNumberBytes * parameters;
  const double rounds = kRounds * std::ceil(std::log2(size));
  return bytes / network.bytes_per_second + rounds * network.latency;
}

Table modelled_table(const RankTimes& times, double parameters, Reduce reduce) {
  const double part = times.microbatch_seconds * parameters / static_cast<double>(times.parameters);
  const bool fast = reduce == Reduce::fast;
  Table table{fast ? "ranks_fast" : "ranks_ordered",
              fmt::format("Modelled step (s; in brackets the exchange's share), {:.3g} parameters, "
                          "--reduce {}",
                          parameters, fast ? "fast" : "ordered"),
              {{"ranks"}},
              {},
              {}};
  for (const char* batch : {"fixed batch", "fixed batch a rank"}) {
    for (const Network& network : kNetworks) {
      table.columns.push_back({fmt::format("{}, {}", batch, network.name)});
    }
  }
  std::vector<std::int64_t> half(table.columns.size());  // ranks from which exchange costs half
  for (std::int64_t ranks = 1; ranks <= kMostRanks; ranks *= 2) {
    std::vector<Cell> row = {static_cast<double>(ranks)};
    for (const bool fixed : {true, false}) {
      const std::int64_t all = fixed ? kLargeBatch : ranks * times.microbatches;
      const auto mine = static_cast<double>(first_share(all, ranks));
      for (const Network& network : kNetworks) {
        const double exchange = modelled_exchange(network, reduce, ranks, all, parameters);
        const double step = mine * part + exchange;
        if (exchange >= 0.5 * step && half[row.size()] == 0) half[row.size()] = ranks;
        row.emplace_back(fmt::format("{:.4g} ({})", step, percent(exchange / step)));
      }
    }
    table.add(std::move(row));
  }
  std::vector<Cell> last = {"exchange is half from"};
  for (std::size_t i = 1; i < half.size(); ++i) {
    last.emplace_back(half[i] == 0 ? std::string("not up to 1024") : fmt::format("{}", half[i]));
  }
  table.add(std::move(last));
  table.notes = {fmt::format("fixed batch: {} microbatches of {:.3g} ms; a rank: {} of them",
                             kLargeBatch, 1e3 * part, times.microbatches)};
  return table;
}

}  // namespace skytape::train
