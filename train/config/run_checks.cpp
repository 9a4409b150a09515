#include "train/config/run_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "attention/registry.hpp"
#include "data/tokenisers/vocabulary.hpp"
#include "tensor/core/error.hpp"
#include "train/config/settings.hpp"

namespace skytape::train {
namespace {

template <class... Args>
void refuse_if(bool wrong, fmt::format_string<const Args&...> text, const Args&... args) {
  if (wrong) throw UsageError(fmt::format(text, args...));
}

/// Returns why a key or an option of the method changes nothing in this run; empty if it does
/// something.
std::string why_idle(const std::string& choice, const RunConfig& c) {
  const std::string key = one_key(choice, *c.method);
  const KeyInfo* const info = find_key(key);
  if (info != nullptr && !is_shared(key)) return idle_because(c.settings, *info);
  const std::string option = is_shared(key) ? key : key.substr(c.method->name.size() + 1);
  return c.method->idle_because(option, c.model.attention_options);
}

/// Keys that neither a model that predicts hidden tokens nor its loop reads. Of pooling, cls alone
/// is read: its token stands in front of all others.
constexpr std::string_view kOfTask[] = {"pooling",         "pyramid",        "pair_cosine",
                                        "label_smoothing", "final_examples", "class_weights",
                                        "patience",        "select",         "select_after"};

/// Whether a setting is taken over from a saved run: nobody asks for it now.
bool of_saved_run(const Setting& s) { return is_among("--init|--resume|--weights", s.origin); }

/// Returns the value that a key has where the user says nothing.
std::string value_in_recipe(const Choices& c, std::string_view key) {
  return value_of(recipe_settings(c.recipe, c.task, c.attention), *find_key(key));
}

bool is_picture(const data::TaskInfo& task) { return task.tokens == data::TokenKind::pixels; }

}  // namespace

void check_together(const RunConfig& c) {
  const data::BatchOptions& b = c.batches;
  const nn::ModelConfig& m = c.model;
  refuse_if(m.positions == nn::Positions::rotary && c.method->values_only,
            "positions: rotary turns queries and keys, but {} reads neither; expected "
            "learned, sinusoidal or none",
            c.method->name);
  refuse_if(
      m.positions == nn::Positions::rotary && m.head_width % 2 != 0,
      "heads: rotary positions turn pairs of channels; expected an even width / heads, got {}",
      m.head_width);
  for (const KeyInfo& key : recipe_keys()) {  // of pixels or pairs
    if (value_of(c.settings, key) == key.standard) continue;
    refuse_if(key.range.of == Of::pixels && m.columns == 0,
              "{}: the tokens of {} are no pixels; expected {}", key.key, c.task->name,
              key.standard);
    refuse_if(key.range.of == Of::pairs && m.sequences != 2,
              "{}: {} has no pairs of documents; expected {}", key.key, c.task->name, key.standard);
  }
  refuse_if(
      m.pooling == nn::Pooling::cls && is_picture(*c.task),
      "pooling: cls puts a token in front, so that the pixels of {} would stand one place too "
      "far; expected another pooling",
      c.task->name);
  refuse_if(b.variations.shift >= m.columns && m.columns > 0,
            "shift: expected less than the {} pixels of a line of {}, got {}", m.columns,
            c.task->name, b.variations.shift);
  refuse_if(m.pyramid && m.pooling != nn::Pooling::mean,
            "pyramid: the mean over its top is taken; expected pooling=mean, or 0");
  refuse_if(m.ngrams == 1, "ngrams: expected at least 2 tokens, or 0 for none, got 1");
  refuse_if(
      m.pooling == nn::Pooling::first && b.mask == data::MaskRule::nonzero && is_picture(*c.task),
      "pooling: first takes the first pixel's encoding, which mask=nonzero hides "
      "where the pixel is black; expected another pooling or mask=length");
  refuse_if(b.grow_steps > c.schedule.steps, "length_warmup: expected at most steps = {}, got {}",
            c.schedule.steps, b.grow_steps);
  refuse_if(b.grow_hold > b.grow_steps, "length_hold: expected at most length_warmup = {}, got {}",
            b.grow_steps, b.grow_hold);
}

void check_effects(const Choices& choices, const RunConfig& config) {
  for (const Setting& choice : choices.settings) {
    if (of_saved_run(choice)) continue;
    const std::string why = why_idle(choice.key, config);
    if (!why.empty()) {
      throw UsageError(fmt::format("{} has no effect on this run: {}", choice.key, why));
    }
    if (choice.key == "length_start" && choice.value != std::to_string(config.batches.grow_start)) {
      throw UsageError(fmt::format("length_start: expected at most the {} positions of {}, got {}",
                                   config.batches.nominal_length, choices.task, choice.value));
    }
  }
  const data::BatchOptions& b = config.batches;
  const Setting* const growth = find_setting(choices.settings, "length_warmup");
  if (growth != nullptr && !of_saved_run(*growth) && b.grow_steps > 0 &&
      b.grow_start == b.nominal_length) {
    throw UsageError(fmt::format(
        "length_warmup has no effect on this run: lengths grow from length_start to {}; "
        "expected a smaller length_start",
        b.nominal_length));
  }
}

void check_pretraining(const Choices& choices) {
  for (const auto& [key, value, origin] : choices.settings) {
    if (std::ranges::find(kOfTask, key) == std::end(kOfTask)) continue;
    const bool pools = key == "pooling";
    if (pools && (value == "cls" || value_in_recipe(choices, key) == "cls")) continue;
    throw UsageError(fmt::format(
        "{} has no effect on this run: {}", key,
        pools ? "pretrain reads only whether it is cls" : "only training on the task reads it"));
  }
}

void check_token_types(const RunConfig& c, bool separated) {
  const Setting* const said = find_setting(c.settings, "token_types");
  if (said == nullptr || said->value != "1" || said->origin != "--set" || separated) {
    return;
  }
  throw UsageError(
      c.pairs ? fmt::format("token_types: there is no token between two texts of {}; expected 0",
                            c.vocabulary->kind())
              : fmt::format("token_types: the examples of {} are no pairs of texts in one "
                            "sequence; expected 0",
                            c.task->name));
}

}  // namespace skytape::train
