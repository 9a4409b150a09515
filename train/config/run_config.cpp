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

bool is_of_pairs(const Json& provenance) {
  return provenance.is_object() && provenance.value("pairs", false);
}

/// The id that stands behind the first text of a pair in one sequence; -1: texts are single, or their
/// tokens have none.
std::int32_t separator_id(const RunConfig& c) {
  if (!c.pairs) return -1;
  const std::int32_t token = c.vocabulary == nullptr ? '\t' : c.vocabulary->end_of_text();
  return token < 0 ? -1 : token + c.task->token_offset;
}

/// The id that stands for a hidden token.
std::int64_t hidden_id(const RunConfig& c) {
  return c.vocabulary == nullptr ? data::mask_id(*c.task) : c.vocabulary->mask_id();
}

void fill_batches(RunConfig& c, const Values& values) {
  data::BatchOptions& b = c.batches;
  b.batch = values.integer("batch");
  b.max_length = values.integer("max_length");
  b.nominal_length =
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(b.max_length)));
  b.mask = data::parse_mask_rule(values.text("mask", "length"));
  b.drop_token = values.flag("drop_close") ? c.task->closing_symbol : -1;
  b.trim = !c.method->reads_padding;
  b.group_by_length = values.flag("group_by_length");
  b.seed = c.seed;
  b.grow_steps = values.integer("length_warmup");
  b.grow_hold = values.integer("length_hold");
  b.grow_whole = values.integer("length_whole");
  b.grow_start = std::min(values.integer("length_start"), b.nominal_length);
  b.growth = values.choice<data::Growth>("length_growth");
  b.keep = values.choice<data::Keep>("length_keep");
  if (values.choice<nn::Pooling>("pooling") == nn::Pooling::cls) {
    b.first_token = static_cast<int>(c.model.vocabulary);
  }
}

/// Which ids may stand for another token: those that sequences of this run are made of.
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

void fill_pretraining(RunConfig& c, const Values& values) {
  Pretraining& p = c.pretraining;
  p.steps = values.integer("pretrain_steps");
  p.lr = values.real("pretrain_lr");
  p.warmup = values.integer("pretrain_warmup");
  data::MaskingOptions& m = p.masking;
  m.rate = values.real("mask_rate");
  m.span = values.integer("mask_span");
  m.keep = values.real("mask_keep");
  m.random = values.real("mask_random");
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

void fill_model(RunConfig& c, const Values& values) {
  nn::ModelConfig& m = c.model;
  m.attention = c.method->name;
  // Defaults are left to the method: some are empty, which is no value that a user could set.
  for (const attention::OptionInfo& option : c.method->options) {
    const Setting* s =
        values.find(is_shared(option.key) ? option.key : m.attention + "." + option.key);
    if (s != nullptr && s->value != option.default_text) {
      m.attention_options[option.key] = s->value;
    }
  }
  m.pixels = c.task->tokens == data::TokenKind::pixels;
  // Pictures are square.
  m.columns = m.pixels ? std::llround(std::sqrt(static_cast<double>(c.task->max_length))) : 0;
  c.batches.variations = {m.columns, values.flag("mirror"), values.integer("shift"),
                          c.task->token_offset};
  m.classes = c.task->classes;
  m.nominal_length = c.batches.nominal_length;
  m.towers = c.task->towers;
  m.layers = static_cast<int>(values.integer("layers"));
  m.width = values.integer("width");
  m.ff_width = values.integer("ff_width");
  m.heads = values.integer("heads");
  m.head_width = values.integer("head_width");
  if (m.head_width == 0 && m.width % m.heads != 0) {
    throw UsageError(
        fmt::format("width: expected a multiple of heads = {}, got {}", m.heads, m.width));
  }
  if (m.head_width == 0) m.head_width = m.width / m.heads;
  m.norm = values.choice<nn::Norm>("norm");
  m.norm_epsilon = values.real("norm_epsilon");
  m.dropout = values.real("dropout");
  m.pooling = values.choice<nn::Pooling>("pooling");
  m.positions = values.choice<nn::Positions>("positions");
  m.rotary_base = values.real("rotary_base");
  m.conv_width = values.integer("conv_width");
  m.both_ends = values.flag("both_ends");
  m.token_types = values.flag("token_types");
  m.separator = separator_id(c);
  m.patch = values.integer("patch");
  m.pair_cosine = values.flag("pair_cosine");
  m.residual_scale = values.real("residual_scale");
  m.ngrams = static_cast<int>(values.integer("ngrams"));
  m.ngram_rows = values.integer("ngram_rows");
  m.ngram_deviation = values.real("ngram_deviation");
  m.label_smoothing = values.real("label_smoothing");

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
    s.origin += join(kAutomatic, name(c.device));
  }
}

/// Fills the typed fields from `settings`.
void fill(RunConfig& c) {
  const Values values(c.settings);
  c.accumulate = values.integer("accumulate");
  c.adamw.weight_decay = values.real("weight_decay");
  c.adamw.clip_value = values.real("clip_value");
  c.adamw.beta2 = values.real("beta2");
  c.adamw.epsilon = values.real("adam_epsilon");
  c.schedule = {values.real("lr"), values.integer("steps"), values.integer("warmup"),
                values.choice<nn::Curve>("schedule")};
  c.eval_every = values.integer("eval_every");
  c.eval_examples = values.integer("eval_examples");
  c.patience = values.integer("patience");
  c.checkpoint_every = values.integer("checkpoint_every");
  const std::string select = values.text("select");
  c.select = select == "last"            ? Select::last
             : select == "best_accuracy" ? Select::best_accuracy
                                         : Select::best_loss;
  c.select_after = values.real("select_after");
  c.precision = parse_precision(values.text("precision"));
  c.dev_rule =
      values.text("text.dev", "heldout") == "test" ? data::DevRule::test : data::DevRule::held_out;
  c.model.vocabulary = c.vocabulary == nullptr ? c.task->vocabulary : c.vocabulary->rows();
  // The hidden token needs a row of the embedding, in both phases: the encoder is the same.
  c.mask_token = c.mask_token || values.integer("pretrain_steps") > 0;
  if (c.mask_token) {
    c.model.vocabulary = std::max(c.model.vocabulary, hidden_id(c) + 1);
  }
  fill_batches(c, values);
  fill_model(c, values);
  fill_pretraining(c, values);
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

Choices::Choices() = default;
Choices::Choices(const Choices& other) = default;
Choices::Choices(Choices&& other) noexcept = default;
Choices& Choices::operator=(const Choices& other) = default;
Choices& Choices::operator=(Choices&& other) noexcept = default;
Choices::~Choices() = default;

RunConfig::RunConfig() = default;
RunConfig::RunConfig(const RunConfig& other) = default;
RunConfig::RunConfig(RunConfig&& other) noexcept = default;
RunConfig& RunConfig::operator=(const RunConfig& other) = default;
RunConfig& RunConfig::operator=(RunConfig&& other) noexcept = default;
RunConfig::~RunConfig() = default;

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

RunConfig resolve(const Choices& choices) {
  RunConfig config;
  config.recipe = choices.recipe;
  config.task = &data::find_task(choices.task);
  config.method = &attention::find(choices.attention);
  config.seed = choices.seed;
  config.device = choices.device;
  config.data_root = choices.data_root;
  config.settings = effective_settings(choices);
  settle_precision(config);
  fill(config);
  check_effects(choices, config);
  return config;
}

RunConfig moved_to(Device device, RunConfig config) {
  config.device = device;
  for (Setting& s : config.settings) {
    const std::size_t mark = s.origin.find(kAutomatic);
    if (s.key != "precision" || mark == s.origin.npos) continue;
    s.value = "auto";
    s.origin.erase(mark);
  }
  settle_precision(config);
  config.precision = parse_precision(Values(config.settings).text("precision"));
  return config;
}

Choices for_pretraining(Choices choices) {
  for (Choice& choice : choices.values) {
    for (const char* key : {"steps", "lr", "warmup"}) {
      if (choice.key == key) choice.key = std::string("pretrain_") + key;
    }
  }
  // Keys that a recipe gives as a part of its steps, as length_warmup, are then a part of these.
  const auto steps = std::find_if(choices.values.begin(), choices.values.end(),
                                  [](const Choice& c) { return c.key == "pretrain_steps"; });
  if (steps == choices.values.end() || steps->value == "0") return choices;
  const Choice same = {"steps", steps->value, steps->said_by};
  choices.values.push_back(same);
  return choices;
}

bool is_pretraining(const Json& config) { return config.value("phase", "") == "pretraining"; }

RunConfig with_mask_token(RunConfig config) {
  config.mask_token = true;
  fill(config);
  return config;
}

RunConfig with_vocabulary(RunConfig config, const Json& provenance) {
  config.pairs = is_of_pairs(provenance);
  if (data::has_vocabulary(provenance)) config.vocabulary = data::vocabulary_in(provenance);
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
  RunConfig config;
  try {
    config.recipe = saved.at("recipe").get<std::string>();
    config.task = &data::find_task(saved.at("task").get<std::string>());
    config.method = &attention::find(saved.at("attention").get<std::string>());
    config.seed = saved.at("seed").get<std::uint64_t>();
    const Json settings = in_todays_spelling(saved.at("settings"));
    for (const auto& [key, entry] : settings.items()) {
      config.settings.push_back(
          {key, entry.at("value").get<std::string>(), entry.at("origin").get<std::string>()});
    }
    config.mask_token = saved.value("mask_token", false);
  } catch (const data::JsonError& e) {
    throw DataError(fmt::format("{}: not a configuration of skytape: {}", file, e.what()));
  }
  const Json& provenance = saved["data_provenance"];
  config.pairs = is_of_pairs(provenance);
  if (data::has_vocabulary(provenance)) {
    config.vocabulary = data::vocabulary_in(provenance);
  }
  fill(config);
  return is_pretraining(saved) ? pretraining_of(config) : config;
}

std::string run_name(const RunConfig& config) {
  return fmt::format("{}-{}-{}-s{}", config.task->name, config.method->name, config.recipe,
                     config.seed);
}

}  // namespace skytape::train

template class std::vector<skytape::train::Choice>;
template class std::vector<skytape::train::Setting>;
