#include "train/config/run_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "attention/registry.hpp"
#include "data/files/json.hpp"
#include "data/tokenisers/vocabulary.hpp"
#include "tensor/core/error.hpp"
#include "tensor/gemm/precision.hpp"
#include "train/config/run_checks.hpp"
#include "train/config/settings.hpp"

namespace skytape::train {
namespace {

using data::Json;

/// Takes the settings that custom data bring, from the provenance of a set.
void take_from(const Json& provenance, RunConfig& c) {
  c.pairs = provenance.is_object() && provenance.value("pairs", false);
  if (data::has_vocabulary(provenance)) c.vocabulary = data::vocabulary_in(provenance);
}

/// The id that stands behind the first text of a pair in one sequence; -1: texts are single, or
/// their tokens have none.
std::int32_t separator_id(const RunConfig& c) {
  if (!c.pairs) return -1;
  const std::int32_t token = c.vocabulary == nullptr ? '\t' : c.vocabulary->end_of_text();
  return token < 0 ? -1 : token + c.task->token_offset;
}

/// The id that stands for a hidden token.
std::int64_t hidden_id(const RunConfig& c) {
  return c.vocabulary == nullptr ? data::mask_id(*c.task) : c.vocabulary->mask_id();
}

void derive_batches(RunConfig& c) {
  data::BatchOptions& b = c.batches;
  b.nominal_length =
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(b.max_length)));
  b.drop_token = c.drop_close ? c.task->closing_symbol : -1;
  b.trim = !c.method->reads_padding;
  b.seed = c.seed;
  b.grow_start = std::min(b.grow_start, b.nominal_length);
  if (c.model.pooling == nn::Pooling::cls) b.first_token = static_cast<int>(c.model.vocabulary);
  // Pictures are square.
  const bool pixels = c.task->tokens == data::TokenKind::pixels;
  b.variations.columns =
      pixels ? std::llround(std::sqrt(static_cast<double>(c.task->max_length))) : 0;
  b.variations.black = c.task->token_offset;
}

/// Sets the ids that may stand for another token: those that sequences of this run are made of.
void replace_by_tokens(const RunConfig& c, data::MaskingOptions& m) {
  const std::int64_t offset = c.task->token_offset;
  if (c.vocabulary != nullptr) {
    m.first_id = offset;
    m.end_id = m.mask_id;
  } else if (c.task->tokens == data::TokenKind::symbols) {
    const std::int64_t last = c.task->symbols;  // which drop_close may leave out
    m.first_id = offset + 1;
    m.end_id = offset + last + (c.batches.drop_token == last ? 0 : 1);
  } else {
    m.first_id = offset;
    m.end_id = offset + 256;
  }
}

void derive_pretraining(RunConfig& c) {
  const Pretraining& p = c.pretraining;
  data::MaskingOptions& m = c.pretraining.masking;
  m.mask_id = hidden_id(c);
  replace_by_tokens(c, m);
  m.first = c.model.pooling == nn::Pooling::cls ? 1 : 0;
  m.seed = c.seed;
  if (p.steps > 0 && p.warmup > p.steps) {
    throw UsageError(fmt::format("pretrain_warmup: expected at most pretrain_steps = {}, got {}",
                                 p.steps, p.warmup));
  }
  if (m.keep + m.random > 1) {
    throw UsageError(fmt::format(
        "mask_keep: expected at most 1 together with mask_random = {}, got {}", m.random, m.keep));
  }
}

void derive_model(RunConfig& c) {
  nn::ModelConfig& m = c.model;
  m.attention = c.method->name;
  // Defaults are left to the method: some are empty, which is no value that a user could set.
  for (const attention::OptionInfo& option : c.method->options) {
    const Setting* const s = find_setting(
        c.settings, is_shared(option.key) ? option.key : m.attention + "." + option.key);
    if (s != nullptr && s->value != option.default_text) {
      m.attention_options[option.key] = s->value;
    }
  }
  m.pixels = c.task->tokens == data::TokenKind::pixels;
  m.columns = c.batches.variations.columns;
  m.classes = c.task->classes;
  m.nominal_length = c.batches.nominal_length;
  m.sequences = c.task->sequences;
  if (m.head_width == 0 && m.width % m.heads != 0) {
    throw UsageError(
        fmt::format("width: expected a multiple of heads = {}, got {}", m.heads, m.width));
  }
  m.head_width = m.width_of_head();
  m.separator = separator_id(c);

  // The method itself judges its options; the model that counts is built later.
  ParameterStore scratch;
  c.needs_whole_batch =
      c.method
          ->make({0, m.heads, m.head_width, m.nominal_length, "", &scratch, m.width},
                 m.attention_options)
          ->needs_whole_batch();
}

constexpr std::string_view kAutomatic = ": auto on ";  // in a precision's origin

/// A precision of `auto` becomes what it stands for on the run's device; its origin says so.
void settle_precision(RunConfig& c) {
  for (Setting& s : c.settings) {
    if (s.key != "precision" || s.value != "auto") continue;
    s.value = automatic_precision(c.device) == Precision::bf16 ? "bf16" : "fp32";
    s.origin += fmt::format("{}{}", kAutomatic, name(c.device));
  }
}

/// Fills the typed fields from `settings`, and what follows from them.
void fill(RunConfig& c) {
  for (const KeyInfo& key : recipe_keys()) {
    const std::string text = value_of(c.settings, key);
    if (key.fill != nullptr) key.fill(c, key, text);
  }
  c.precision = parse_precision(value_of(c.settings, *find_key("precision")));
  c.model.vocabulary = c.vocabulary == nullptr ? c.task->vocabulary : c.vocabulary->rows();
  // The hidden token needs a row of the embedding, in both phases: the encoder is the same.
  c.mask_token = c.mask_token || c.pretraining.steps > 0;
  if (c.mask_token) {
    c.model.vocabulary = std::max(c.model.vocabulary, hidden_id(c) + 1);
  }
  derive_batches(c);
  derive_model(c);
  derive_pretraining(c);
  if (c.accumulate > c.batches.batch) {
    throw UsageError(fmt::format("accumulate: expected at most batch = {}, got {}", c.batches.batch,
                                 c.accumulate));
  }
  // One of the arena's own schedules ends while it rises.
  const bool falls =
      c.schedule.curve == nn::Curve::one_cycle || c.schedule.curve == nn::Curve::linear;
  if (falls && c.schedule.warmup > c.schedule.steps) {
    throw UsageError(fmt::format("warmup: expected at most steps = {}, got {}", c.schedule.steps,
                                 c.schedule.warmup));
  }
  check_together(c);
}

}  // namespace

Precision parse_precision(const std::string& name) {
  if (name == "fp32") return Precision::fp32;
  if (name == "tf32") return Precision::tf32;
  if (name == "bf16") return Precision::bf16;
  throw UsageError(fmt::format("precision: expected fp32, tf32 or bf16, got {}", name));
}

MicrobatchLimits RunConfig::microbatch_limits() const {
  const bool at_once = device != Device::cpu || needs_whole_batch;
  return {accumulate, at_once ? 0 : cache_positions()};
}

RunConfig resolve(const Choices& choices) { return resolve(choices, find_recipe(choices.recipe)); }

RunConfig resolve(const Choices& choices, const Recipe& recipe) {
  RunConfig config;
  config.recipe = recipe.name;
  config.task = &data::find_task(choices.task);
  config.method = &attention::find(choices.attention);
  config.seed = choices.seed;
  config.device = choices.device;
  config.data_root = choices.data_root;
  config.settings = effective_settings(choices, recipe);
  settle_precision(config);
  fill(config);
  check_effects(choices, config);
  return config;
}

void unsettle_precision(Setting& setting) {
  const std::size_t mark = setting.origin.find(kAutomatic);
  if (setting.key != "precision" || mark == setting.origin.npos) return;
  setting.value = "auto";
  setting.origin.erase(mark);
}

RunConfig moved_to(Device device, RunConfig config) {
  config.device = device;
  for (Setting& s : config.settings) unsettle_precision(s);
  settle_precision(config);
  config.precision = parse_precision(value_of(config.settings, *find_key("precision")));
  return config;
}

Choices for_pretraining(Choices choices) {
  check_pretraining(choices);
  for (Setting& choice : choices.settings) {
    for (const char* key : {"steps", "lr", "warmup"}) {
      if (choice.key == key) choice.key = std::string("pretrain_") + key;
    }
  }
  // Keys that a recipe gives as a part of its steps, as length_warmup, are then a part of these.
  const Setting* const steps = find_setting(choices.settings, "pretrain_steps");
  if (steps == nullptr || steps->value == "0") return choices;
  const Setting same = {"steps", steps->value, steps->origin};
  choices.settings.push_back(same);
  return choices;
}

bool is_pretraining(const Json& config) { return config.value("phase", "") == "pretraining"; }

RunConfig with_mask_token(RunConfig config) {
  config.mask_token = true;
  fill(config);
  return config;
}

RunConfig with_vocabulary(RunConfig config, const Json& provenance) {
  take_from(provenance, config);
  check_token_types(config, separator_id(config) >= 0);
  if (config.vocabulary == nullptr && !config.pairs) return config;
  const bool first = config.model.objective == nn::Objective::predict_masked;
  fill(config);
  return first ? pretraining_of(config) : config;
}

RunConfig pretraining_of(const RunConfig& config) {
  RunConfig first = config;
  first.model.objective = nn::Objective::predict_masked;
  // Lengths grow over the same share of these steps as of the task's.
  const auto scaled = [&](std::int64_t steps) {
    return std::llround(static_cast<double>(steps) * static_cast<double>(config.pretraining.steps) /
                        static_cast<double>(config.schedule.steps));
  };
  first.batches.grow_steps = scaled(config.batches.grow_steps);
  first.batches.grow_hold = scaled(config.batches.grow_hold);
  first.schedule = {config.pretraining.lr, config.pretraining.steps, config.pretraining.warmup,
                    config.schedule.curve};
  first.select = Select::last;
  first.patience = 0;
  return first;
}

RunConfig config_from_json(const Json& saved, const std::string& file) {
  check_parts(saved, file);
  RunConfig config;
  try {
    config.recipe = saved.at("recipe").get<std::string>();
    config.task = &data::find_task(saved.at("task").get<std::string>());
    config.method = &attention::find(saved.at("attention").get<std::string>());
    config.seed = saved.at("seed").get<std::uint64_t>();
    config.settings = saved_settings(saved);
    config.mask_token = saved.value("mask_token", false);
    take_from(data::member(saved, "data_provenance"), config);
    fill(config);
  } catch (const data::JsonError& e) {
    throw DataError(
        fmt::format("{}: not a configuration of skytape: {}", file, data::problem_of(e)));
  } catch (const UsageError& e) {  // not of a flag, but of the file
    throw DataError(fmt::format("{}: {}", file, e.what()));
  }
  return is_pretraining(saved) ? pretraining_of(config) : config;
}

std::string run_name(const RunConfig& config) {
  return fmt::format("{}-{}-{}-s{}", config.task->name, config.method->name,
                     in_folder_names(config.recipe), config.seed);
}

}  // namespace skytape::train
