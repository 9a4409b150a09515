#include "train/config/run_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "attention/registry.hpp"
#include "data/files/json.hpp"
#include "data/tokenisers/vocabulary.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "tensor/gemm/precision.hpp"

namespace skytape::train {
namespace {

using data::Json;

/// Keys of a recipe that are options of the method: `features` stands for `<method>.features`.
constexpr std::string_view kShared[] = {"features", "attention_dropout"};

bool is_shared(std::string_view key) {
  return std::find(std::begin(kShared), std::end(kShared), key) != std::end(kShared);
}

/// Pictures have one length, and id 0 is a real token of theirs: a black pixel.
bool is_image(const data::TaskInfo& task) { return task.tokens == data::TokenKind::pixels; }

/// Why a recipe key changes nothing in a run of this task and method; empty if it does.
std::string no_effect(std::string_view key, const data::TaskInfo& task,
                      const attention::Spec& method) {
  if (is_shared(key) && !method.has_option(key)) {
    return fmt::format("{} has no such option", method.name);
  }
  if (key == "drop_close" && task.closing_symbol < 0) {
    return fmt::format("{} has no closing symbol, as `]` of listops", task.name);
  }
  if (key == "text.dev" && task.held_out == 0) {
    return fmt::format("{} has a dev split of its own", task.name);
  }
  if (key == "mask" && !is_image(task)) {
    return fmt::format("both rules agree on {}, where id 0 is padding only", task.name);
  }
  if (key == "group_by_length" && is_image(task)) {
    return fmt::format("all sequences of {} have one length", task.name);
  }
  return {};
}

/// The first of several names that is `text`, as a value of an enumeration in their order.
template <class T> T parse_choice(const KeyInfo& key, const std::string& text) {
  std::istringstream names{std::string(key.choices)};
  int value = 0;
  for (std::string name; std::getline(names, name, '|'); ++value) {
    if (name == text) return static_cast<T>(value);
  }
  throw UsageError(fmt::format("{}: expected {}, got '{}'", key.key, key.choices, text));
}

template <class T> T parse_number(const KeyInfo& key, const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const auto number = static_cast<double>(value);
  if (error != std::errc{} || stop != end || !(number >= key.low && number <= key.high)) {
    throw UsageError(
        fmt::format("{}: expected {}, got '{}' ({})", key.key, range_of(key), text, key.meaning));
  }
  return value;
}

/// Checks a value against its key's range. UsageError.
void check_value(const KeyInfo& key, const std::string& text) {
  if (key.kind == KeyKind::integer) {
    (void)parse_number<std::int64_t>(key, text);
  } else if (key.kind == KeyKind::real) {
    (void)parse_number<double>(key, text);
  } else {
    const std::string range = "|" + range_of(key) + "|";
    if (text.find('|') != text.npos || range.find("|" + text + "|") == range.npos) {
      throw UsageError(
          fmt::format("{}: expected {}, got '{}' ({})", key.key, range_of(key), text, key.meaning));
    }
  }
}

/// A key and its value as they are spelled today: `skyformer.constant_init` ->
/// `skyformer.detach_start`. Keys of no known method come back as they are.
std::pair<std::string, std::string> in_todays_spelling(const std::string& key,
                                                       const std::string& value) {
  const std::size_t dot = key.find('.');
  if (dot == key.npos) return {key, value};
  for (const attention::Spec& spec : attention::registry()) {
    if (spec.name != key.substr(0, dot)) continue;
    const auto [option, text] =
        attention::in_todays_spelling(spec.options, key.substr(dot + 1), value);
    return {spec.name + "." + option, text};
  }
  return {key, value};
}

/// The settings of a run while they are put together.
class Resolver {
 public:
  explicit Resolver(const Choices& choices)
      : task_(data::find_task(choices.task)), method_(attention::find(choices.attention)) {
    for (const Setting& s : recipe_settings(choices.recipe, task_.name, method_.name)) {
      recipe_[s.key] = s;
    }
    recipe_.try_emplace("max_length", Setting{"max_length", std::to_string(task_.max_length),
                                              "task " + std::string(task_.name)});
    for (const Choice& choice : choices.values) choose(choice);
    rescale("warmup", "steps", 2);
    rescale("length_hold", user_.contains("length_warmup") ? "length_warmup" : "steps", 0);
    rescale("length_warmup", "steps", 0);
    shorten_pretraining_warmup();
  }

  /// Effective values in the order of the keys, then the method's options in theirs.
  [[nodiscard]] std::vector<Setting> settings() const {
    std::vector<Setting> all;
    for (const KeyInfo& key : recipe_keys()) {
      if (!no_effect(key.key, task_, method_).empty()) continue;
      all.push_back(effective(std::string(key.key), std::nullopt));
      check_value(key, all.back().value);
    }
    for (const attention::OptionInfo& option : method_.options) {
      if (is_shared(option.key)) continue;
      all.push_back(effective(method_.name + "." + option.key, option.default_text));
    }
    return all;
  }

 private:
  [[nodiscard]] Setting effective(const std::string& key,
                                  const std::optional<std::string>& fallback) const {
    if (const auto user = user_.find(key); user != user_.end()) return user->second;
    if (const auto row = recipe_.find(key); row != recipe_.end()) return row->second;
    ENSURE(fallback.has_value(), "recipes: no value for ", key, " of task ", task_.name);
    return {key, *fallback, "default of " + method_.name};
  }

  void choose(const Choice& choice) {
    auto [key, value] = in_todays_spelling(choice.key, choice.value);
    // `skyformer.features` and `features` are one key.
    if (key.starts_with(method_.name + ".") && is_shared(key.substr(method_.name.size() + 1)) &&
        method_.has_option(key.substr(method_.name.size() + 1))) {
      key = key.substr(method_.name.size() + 1);
    }
    require_known(key);
    const auto [place, fresh] = user_.try_emplace(key, Setting{key, value, choice.said_by});
    if (!fresh) {
      throw UsageError(fmt::format("{} is set twice: {} by {}, {} by {}", key, place->second.value,
                                   place->second.origin, value, choice.said_by));
    }
  }

  /// UsageError for a key that does not exist or changes nothing in this run.
  void require_known(const std::string& key) const {
    if (const KeyInfo* info = find_key(key)) {
      const std::string reason = no_effect(info->key, task_, method_);
      if (reason.empty()) return;
      throw UsageError(fmt::format("{} has no effect on this run: {}", key, reason));
    }
    std::vector<std::string> known;
    for (const KeyInfo& info : recipe_keys()) known.emplace_back(info.key);
    for (const attention::OptionInfo& option : method_.options) {
      known.push_back(method_.name + "." + option.key);
      if (known.back() == key) return;
    }
    const std::size_t dot = key.find('.');
    for (const attention::Spec& other : attention::registry()) {
      if (dot != key.npos && key.substr(0, dot) == other.name && other.name != method_.name &&
          other.has_option(key.substr(dot + 1))) {
        throw UsageError(
            fmt::format("{} has no effect on this run: its attention is {}", key, method_.name));
      }
    }
    throw UsageError(unknown_name("key", key, known));
  }

  /// Where the user set `of` alone, `which` keeps its share of it, `least` at least.
  void rescale(const char* which, const char* of, std::int64_t least) {
    const auto chosen = user_.find(of);
    if (chosen == user_.end() || user_.contains(which)) return;
    const KeyInfo& key = *find_key(of);
    const auto steps = parse_number<std::int64_t>(key, chosen->second.value);
    const auto full = parse_number<std::int64_t>(key, recipe_.at(of).value);
    Setting& warmup = recipe_.at(which);
    const auto before = parse_number<std::int64_t>(*find_key(which), warmup.value);
    if (steps == full || before == 0) return;
    const auto scaled = static_cast<std::int64_t>(
        static_cast<double>(before) * static_cast<double>(steps) / static_cast<double>(full) + 0.5);
    warmup.origin = fmt::format("{} of {} steps, scaled to {}", before, full, steps);
    warmup.value = std::to_string(std::max(least, scaled));
  }

  /// Where the user set pretrain_steps alone, warming up takes a tenth of them at most.
  void shorten_pretraining_warmup() {
    const auto chosen = user_.find("pretrain_steps");
    if (chosen == user_.end() || user_.contains("pretrain_warmup")) return;
    const auto steps =
        parse_number<std::int64_t>(*find_key("pretrain_steps"), chosen->second.value);
    Setting& warmup = recipe_.at("pretrain_warmup");
    const std::int64_t tenth = std::max<std::int64_t>(2, steps / 10);
    const auto before = parse_number<std::int64_t>(*find_key("pretrain_warmup"), warmup.value);
    if (steps == 0 || before <= tenth) return;
    warmup.origin = fmt::format("{} steps, scaled to a tenth of {}", before, steps);
    warmup.value = std::to_string(tenth);
  }

  const data::TaskInfo& task_;
  const attention::Spec& method_;
  std::map<std::string, Setting> recipe_, user_;
};

/// Reads values out of a settings list.
class Values {
 public:
  explicit Values(const std::vector<Setting>& settings) : settings_(settings) {}
  [[nodiscard]] const Setting* find(std::string_view key) const {
    for (const Setting& s : settings_) {
      if (s.key == key) return &s;
    }
    return nullptr;
  }
  [[nodiscard]] std::string text(std::string_view key, std::string fallback = {}) const {
    const KeyInfo& info = *find_key(key);
    const Setting* s = find(key);
    if (s == nullptr && fallback.empty()) fallback = info.before;
    if (s == nullptr && !fallback.empty()) return fallback;
    if (s == nullptr) throw DataError(fmt::format("configuration: no value for {}", key));
    check_value(info, s->value);
    return s->value;
  }
  template <class T> [[nodiscard]] T choice(std::string_view key) const {
    return parse_choice<T>(*find_key(key), text(key));
  }
  [[nodiscard]] std::int64_t integer(std::string_view key) const {
    return parse_number<std::int64_t>(*find_key(key), text(key));
  }
  [[nodiscard]] double real(std::string_view key) const {
    return parse_number<double>(*find_key(key), text(key));
  }
  [[nodiscard]] bool flag(std::string_view key) const { return text(key, "0") == "1"; }

 private:
  const std::vector<Setting>& settings_;
};

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

/// UsageError if the user wants the two texts of a pair told apart, and there is nothing to tell.
void check_token_types(const RunConfig& c) {
  const Setting* const said = Values(c.settings).find("token_types");
  if (said == nullptr || said->value != "1" || said->origin != "--set" || separator_id(c) >= 0) {
    return;
  }
  throw UsageError(
      c.pairs ? fmt::format("token_types: nothing stands between two texts of {}; expected 0",
                            c.vocabulary->kind())
              : fmt::format("token_types: the examples of {} are no pairs of texts in one "
                            "sequence; expected 0",
                            c.task->name));
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

/// UsageError for values that are legal one by one and have no meaning together.
void check_together(const RunConfig& c) {
  const data::BatchOptions& b = c.batches;
  const nn::ModelConfig& m = c.model;
  if (m.positions == nn::Positions::rotary && c.method->values_only) {
    throw UsageError(
        fmt::format("positions: rotary turns queries and keys, but {} reads neither; expected "
                    "learned, sinusoidal or none",
                    c.method->name));
  }
  if (m.positions == nn::Positions::rotary && m.head_width % 2 != 0) {
    throw UsageError(fmt::format(
        "heads: rotary positions turn pairs of channels; expected an even width / heads, got {}",
        m.head_width));
  }
  if (m.patch > 0 && m.columns == 0) {
    throw UsageError(fmt::format(
        "patch: the tokens of {} are no pixels, which have greys around them; expected 0",
        c.task->name));
  }
  if (m.pooling == nn::Pooling::pyramid && m.columns == 0) {
    throw UsageError(fmt::format(
        "pooling: pyramid halves pictures, but the tokens of {} are no pixels; expected another",
        c.task->name));
  }
  if (m.patch > 0 && m.patch % 2 == 0) {
    throw UsageError(
        fmt::format("patch: expected an odd number of pixels, or 0 for none, got {}", m.patch));
  }
  if (m.pair_cosine && m.towers != 2) {
    throw UsageError(
        fmt::format("pair_cosine: {} has no pairs of documents; expected 0", c.task->name));
  }
  if (m.ngrams == 1) {
    throw UsageError("ngrams: expected at least 2 tokens, or 0 for none, got 1");
  }
  if (m.conv_width > 0 && m.conv_width % 2 == 0) {
    throw UsageError(fmt::format(
        "conv_width: expected an odd number of taps, or 0 for none, got {}", m.conv_width));
  }
  if ((m.conv_width > 0 || m.patch > 0) && m.columns > 0 && m.pooling == nn::Pooling::cls) {
    const std::string_view key = m.conv_width > 0 ? "conv_width" : "patch";
    throw UsageError(
        fmt::format("{}: pooling=cls moves every pixel of {} by one place, so that it would see "
                    "other lines; expected another pooling or {}=0",
                    key, c.task->name, key));
  }
  if (m.pooling == nn::Pooling::first && b.mask == data::MaskRule::nonzero && is_image(*c.task)) {
    throw UsageError(
        "pooling: first takes the first pixel's encoding, which mask=nonzero hides "
        "where the pixel is black; expected another pooling or mask=length");
  }
  if (m.pooling == nn::Pooling::cls && is_image(*c.task) && b.max_length == b.nominal_length) {
    throw UsageError(fmt::format(
        "pooling: cls puts a token before the sequence, but the pixels of {} fill all {} "
        "positions; expected another pooling, or max_length={}, which leaves out the last pixel",
        c.task->name, b.nominal_length, b.nominal_length - 1));
  }
  if (b.grow_steps > c.schedule.steps) {
    throw UsageError(fmt::format("length_warmup: expected at most steps = {}, got {}",
                                 c.schedule.steps, b.grow_steps));
  }
  if (b.grow_hold > b.grow_steps) {
    throw UsageError(fmt::format("length_hold: expected at most length_warmup = {}, got {}",
                                 b.grow_steps, b.grow_hold));
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
  config.settings = Resolver(choices).settings();
  fill(config);
  for (const Choice& choice : choices.values) {
    if (choice.key == "select_after" && config.select == Select::last) {
      throw UsageError("select_after has no effect on this run: select is last");
    }
    if (choice.key == "rotary_base" && config.model.positions != nn::Positions::rotary) {
      throw UsageError("rotary_base has no effect on this run: positions is not rotary");
    }
    const bool of_ngrams = choice.key != "ngrams" && choice.key.starts_with("ngram_");
    if (of_ngrams && config.model.ngrams == 0) {
      throw UsageError(fmt::format("{} has no effect on this run: ngrams is 0", choice.key));
    }
    const bool of_pretraining = choice.key == "pretrain_lr" || choice.key == "pretrain_warmup" ||
                                choice.key.starts_with("mask_");
    if (of_pretraining && config.pretraining.steps == 0) {
      throw UsageError(
          fmt::format("{} has no effect on this run: pretrain_steps is 0", choice.key));
    }
    const bool of_growth = choice.key != "length_warmup" && choice.key.starts_with("length_");
    if (of_growth && config.batches.grow_steps == 0) {
      throw UsageError(fmt::format("{} has no effect on this run: length_warmup is 0", choice.key));
    }
    if (choice.key == "length_start" && choice.value != std::to_string(config.batches.grow_start)) {
      throw UsageError(fmt::format("length_start: expected at most the {} positions of {}, got {}",
                                   config.batches.nominal_length, choices.task, choice.value));
    }
  }
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
  check_token_types(config);
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

Json to_json(const RunConfig& config) {
  Json settings = Json::object();
  for (const Setting& s : config.settings) {
    settings[s.key] = {{"value", s.value}, {"origin", s.origin}};
  }
  Json saved = {{"task", config.task->name},     {"attention", config.method->name},
                {"recipe", config.recipe},       {"seed", config.seed},
                {"device", name(config.device)}, {"settings", std::move(settings)}};
  if (config.model.objective == nn::Objective::predict_masked) saved["phase"] = "pretraining";
  if (config.mask_token) saved["mask_token"] = true;
  return saved;
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

Json in_todays_spelling(const Json& settings) {
  Json today = Json::object();
  for (const auto& [saved_key, saved_entry] : settings.items()) {
    const bool is_text = saved_entry.is_object() && saved_entry.contains("value") &&
                         saved_entry["value"].is_string();
    const auto [key, value] = in_todays_spelling(
        saved_key, is_text ? saved_entry["value"].get<std::string>() : std::string());
    today[key] = saved_entry;
    if (is_text) today[key]["value"] = value;
  }
  return today;
}

std::string first_difference(const Json& saved, const Json& wanted) {
  const auto differs = [](const std::string& key, const Json& there, const Json& here) {
    return fmt::format("{}: {} there, {} here", key,
                       there.is_null() ? "absent" : data::json_text(there),
                       here.is_null() ? "absent" : data::json_text(here));
  };
  for (const char* key : {"task", "attention", "recipe", "seed", "data", "phase", "init"}) {
    const Json& there = saved[key];
    const Json& here = wanted[key];
    if (there == here) continue;
    if (key != std::string_view("data") || !there.is_object() || !here.is_object()) {
      return differs(key, there, here);
    }
    for (const char* part : {"name", "train", "dev", "test"}) {  // the first, not a page of them
      const Json &one = there[part], &other = here[part];
      const bool split = one.is_object() && other.is_object();
      if (one == other) continue;
      return differs(fmt::format("data, {}", part), split ? one["fingerprint"] : one,
                     split ? other["fingerprint"] : other);
    }
    return differs(key, there, here);
  }
  const Json there = in_todays_spelling(saved["settings"]);
  const Json here = in_todays_spelling(wanted["settings"]);
  const auto value = [](const Json& settings, const std::string& key) {
    const Json* found = settings.find(key);
    if (found != nullptr && found->is_object()) return (*found)["value"];
    const KeyInfo* info = find_key(key);  // saved before the key existed
    return info == nullptr || info->before.empty() ? Json() : Json(std::string(info->before));
  };
  for (const Json& side : {here, there}) {
    for (const auto& [key, entry] : side.items()) {
      if (value(there, key) != value(here, key)) {
        return differs(key, value(there, key), value(here, key));
      }
    }
  }
  return {};
}

std::string to_text(const RunConfig& config) {
  std::string text =
      fmt::format("task {}, attention {}, recipe {}, seed {}, device {}\n", config.task->name,
                  config.method->name, config.recipe, config.seed, name(config.device));
  for (const Setting& s : config.settings) {
    text += fmt::format("  {:<28} {:<16} {}\n", s.key, s.value, s.origin);
  }
  return text;
}

std::string run_name(const RunConfig& config) {
  return fmt::format("{}-{}-{}-s{}", config.task->name, config.method->name, config.recipe,
                     config.seed);
}

}  // namespace skytape::train

template class std::vector<skytape::train::Choice>;
template class std::vector<skytape::train::Setting>;
