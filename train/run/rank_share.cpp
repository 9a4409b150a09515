#include "train/run/rank_share.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "attention/method.hpp"
#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/tensor.hpp"
#include "train/config/identity.hpp"
#include "train/process/threads.hpp"
#include "train/process/version.hpp"

namespace skytape::train {
namespace {

using data::Json;

std::int64_t rounded_up(std::int64_t value, std::int64_t to) { return ceil_div(value, to) * to; }

/// The option without which the method would not need the whole batch; empty if that is no option's
/// doing.
std::string option_for_whole_batches(const RunConfig& config) {
  const nn::ModelConfig& m = config.model;
  for (const auto& [option, value] : m.attention_options) {
    attention::OptionValues others = m.attention_options;
    others.erase(option);
    ParameterStore scratch;
    const auto method =
        config.method->make({0, m.heads, m.head_width, m.nominal_length, "", &scratch}, others);
    if (!method->needs_whole_batch()) return m.attention + "." + option + "=" + value;
  }
  return {};
}

[[noreturn]] void refuse(const RunConfig& config, std::int64_t parts, const Ranks& ranks) {
  std::string why = "a larger batch or accumulate makes more";
  if (config.needs_whole_batch) {
    const std::string option = option_for_whole_batches(config);
    why = (option.empty() ? config.method->name : option) +
          " needs the whole batch at once, or as accumulate cuts it";
  }
  throw UsageError(
      fmt::format("{} ranks, but a batch of {} examples is computed in {} microbatch{}: {}",
                  ranks.size(), config.batches.batch, parts, parts == 1 ? "" : "es", why));
}

/// The most microbatches that a batch of a run on sequences of up to `longest` tokens has.
std::int64_t most_microbatches(const RunConfig& config, std::int64_t longest,
                               const MicrobatchLimits& limits) {
  const data::BatchOptions& b = config.batches;
  const std::int64_t most = ceil_div(b.batch, limits.accumulate);  // examples
  const std::int64_t read = b.max_length > 0 ? std::min(longest, b.max_length) : longest;
  const std::int64_t width =
      b.trim ? std::min(rounded_up(std::max<std::int64_t>(1, read), b.round_to), b.nominal_length)
             : b.nominal_length;
  const std::int64_t fitting =
      limits.positions > 0 ? limits.positions / (width * config.model.sequences) : most;
  const std::int64_t examples = std::clamp<std::int64_t>(fitting, 1, most);
  return ceil_div(b.batch, examples);
}

/// Returns everything that must be the same on all ranks.
Json facts_of(const RunConfig& config, const Splits& splits, const Json& flags) {
  Json all = to_json(config);
  all["data"] = facts(splits);
  all["flags"] = flags;
  all["revision"] = revision();
  all["threads"] = config.device == Device::cpu ? thread_count() : 0;
  return all;
}

}  // namespace

Splits open_splits(const RunConfig& config, const Json& provenance, Progress& progress,
                   const Ranks& ranks) {
  once_a_host(ranks,
              [&] { ensure_prepared(*config.task, config.data_root, provenance, progress); });
  std::optional<Splits> splits;
  together(ranks, [&] { splits.emplace(open_splits(config, progress)); });
  return *splits;
}

MicrobatchLimits microbatch_limits(const RunConfig& config, const Ranks& ranks) {
  MicrobatchLimits limits = config.microbatch_limits();
  if (config.device != Device::cpu && !config.needs_whole_batch) {
    limits.accumulate = rounded_up(limits.accumulate, ranks.size());
  }
  return limits;
}

std::string who_trains(const RunConfig& config, std::int64_t longest, const Ranks& ranks) {
  if (ranks.alone()) return {};
  return fmt::format("{}, gradients added up {} (--reduce); a batch has up to {} microbatches",
                     ranks.text(), name(ranks.reduce_on(config.device)),
                     most_microbatches(config, longest, microbatch_limits(config, ranks)));
}

void refuse_idle_ranks(const RunConfig& config, std::int64_t longest, const Ranks& ranks) {
  if (ranks.alone()) return;
  const MicrobatchLimits limits = microbatch_limits(config, ranks);
  const std::int64_t parts = most_microbatches(config, longest, limits);
  if (parts < ranks.size()) refuse(config, parts, ranks);
  const std::int64_t equal = limits.accumulate;
  if (config.device != Device::cpu && config.batches.batch % equal != 0) {
    throw UsageError(fmt::format(
        "batch: on GPUs every rank gets an equal part, expected a multiple of {}, got {}", equal,
        config.batches.batch));
  }
}

void agree(const RunConfig& config, const Splits& splits, const Json& flags, const Ranks& ranks) {
  if (ranks.alone()) return;
  const Json mine = facts_of(config, splits, flags);
  std::string text = data::json_text(mine);
  ranks.broadcast(text);
  const Json firsts = data::parse_json(text);
  together(ranks, [&] {
    const auto differs = [](const std::string& what, const Json& there, const Json& here) {
      return fmt::format("{}: {} on rank 0, {} here", what, data::json_text(there),
                         data::json_text(here));
    };
    if (firsts.at("data") != mine.at("data")) {
      throw DataError("other data than rank 0's: " + differences(firsts, mine));
    }
    for (const char* key : {"revision", "threads", "device", "flags"}) {
      if (firsts.at(key) == mine.at(key)) continue;
      throw UsageError(differs(key, firsts.at(key), mine.at(key)));
    }
    const std::string difference = differences(firsts, mine);
    if (!difference.empty()) throw UsageError("another configuration than rank 0's: " + difference);
  });
}

}  // namespace skytape::train
