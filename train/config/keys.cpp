#include "train/config/keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "data/files/source.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/config/run_config.hpp"

namespace skytape::train {
namespace {

// ---- what a row is made of ----------------------------------------------------------------------

constexpr Range whole(double low, double high) { return {KeyKind::integer, low, high}; }
constexpr Range odd(double high) { return {.kind = KeyKind::integer, .high = high, .odd = true}; }
constexpr Range real(double low, double high) { return {KeyKind::real, low, high}; }
constexpr Range flag = {KeyKind::flag};
constexpr Range per_class = {KeyKind::weights};
constexpr double kMostWeight = 1e6;  // of a class
constexpr Range choice(std::string_view choices) { return {KeyKind::choice, 0, 0, choices}; }
constexpr Range pixels(Range range) { return range.of = Of::pixels, range; }
constexpr Range pairs(Range range) { return range.of = Of::pairs, range; }

[[noreturn]] void refuse(const KeyInfo& key, const std::string& text) {
  throw UsageError(
      fmt::format("{}: expected {}, got '{}' ({})", key.key, range_of(key), text, key.meaning));
}

template <class T> T parse_number(const KeyInfo& key, const std::string& text) {
  const std::optional<T> value = number_in<T>(text);
  const auto number = static_cast<double>(value.value_or(T{}));
  if (!value || !(number >= key.range.low && number <= key.range.high)) refuse(key, text);
  if (key.range.odd && number != 0 && std::fmod(number, 2) == 0) refuse(key, text);
  return *value;
}

/// The place of `text` among the key's choices: enumerations have their order.
int place_of(const KeyInfo& key, const std::string& text) {
  const std::vector<std::string_view> names = data::split(key.range.choices, '|');
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) refuse(key, text);
  return static_cast<int>(found - names.begin());
}

/// Fills the member at the end of a path of members: into<&RunConfig::adamw,
/// &nn::AdamWConfig::beta2>.
template <auto... Path> void into(RunConfig& config, const KeyInfo& key, const std::string& text) {
  auto& member = (config.*....*Path);
  using T = std::remove_reference_t<decltype(member)>;
  if constexpr (std::is_same_v<T, std::string>) {
    member = text;
  } else if constexpr (std::is_same_v<T, bool>) {
    member = text == "1";
  } else if constexpr (std::is_enum_v<T>) {
    member = static_cast<T>(place_of(key, text));
  } else {
    member = parse_number<T>(key, text);
  }
}
template <auto Member> constexpr auto run = into<Member>;
template <auto Member> constexpr auto adamw = into<&RunConfig::adamw, Member>;
template <auto Member> constexpr auto schedule_of = into<&RunConfig::schedule, Member>;
template <auto Member> constexpr auto batches = into<&RunConfig::batches, Member>;
template <auto Member> constexpr auto pictures =
    into<&RunConfig::batches, &data::BatchOptions::variations, Member>;
template <auto Member> constexpr auto pretraining_of = into<&RunConfig::pretraining, Member>;
template <auto Member> constexpr auto masking =
    into<&RunConfig::pretraining, &Pretraining::masking, Member>;
/// The default of a model's option as users write it: "pre" of Norm::pre.
constexpr std::string_view spelt(std::string_view standard) {
  const std::size_t colon = standard.rfind(':');
  return colon == standard.npos ? standard : standard.substr(colon + 1);
}

// ---- the rows -----------------------------------------------------------------------------------

constexpr double kMost = 1e9;  // upper end of counts that only memory or patience limits

using data::BatchOptions;
using data::MaskingOptions;
using data::Variations;
using nn::AdamWConfig;
using nn::Schedule;
using enum Category;

// clang-format off
constexpr KeyInfo kKeys[] = {
    // key, default, legal values, its category, its member, its meaning; and if need be where it
    // has no effect, and what tables of results call it
    {"batch", "", whole(1, 65536), schedule, batches<&BatchOptions::batch>,
     "examples per optimiser step"},
    {"accumulate", "1", whole(1, 65536), schedule, run<&RunConfig::accumulate>,
     "microbatches a batch is computed in"},
    {"lr", "", real(0, 10), schedule, schedule_of<&Schedule::max_lr>, "highest learning rate"},
    {"warmup", "", whole(2, kMost), schedule, schedule_of<&Schedule::warmup>,
     "steps until the highest rate"},
    {"steps", "", whole(3, kMost), schedule, schedule_of<&Schedule::steps>,
     "optimiser steps, and length of the schedule"},
    {"schedule", "one_cycle", choice("one_cycle|inverse_sqrt|cosine|linear"), schedule,
     schedule_of<&Schedule::curve>, "curve of the rate after the warm-up, and of beta1"},
    {"beta2", "0.999", real(0, 0.999999), schedule, adamw<&AdamWConfig::beta2>,
     "decay of squared gradients"},
    {"adam_epsilon", "1e-6", real(1e-20, 1), schedule, adamw<&AdamWConfig::epsilon>,
     "term added to the root of the averaged squared gradients"},
    {"weight_decay", "0", real(0, 10), schedule, adamw<&AdamWConfig::weight_decay>,
     "decoupled decay per unit of learning rate"},
    {"clip_value", "1", real(0, 1e30), schedule, adamw<&AdamWConfig::clip_value>,
     "bound of every gradient entry; 0: off"},

    {"attention_dropout", "0.1", real(0, 0.99), model, nullptr,
     "share of attention weights dropped"},
    {"features", "128", whole(1, 1 << 20), model, nullptr,
     "landmarks, projected length or random features"},
#define OPTION(type, key, standard, range, category, meaning, ...) \
  {#key,                                                         \
   spelt(#standard),                                             \
   range,                                                        \
   category,                                                     \
   into<&RunConfig::model, &nn::ModelConfig::key>,               \
   meaning __VA_OPT__(, ) __VA_ARGS__},
#include "nn/config/model_options.def"

    {"mirror", "0", pixels(flag), data, pictures<&Variations::mirror>,
     "half of the training pictures are mirrored", {}, "mirrored pictures"},
    {"shift", "0", pixels(whole(0, 65535)), data, pictures<&Variations::shift>,
     "pixels that training pictures are moved by", {}, "pictures moved by up to {}"},
    {"length_warmup", "0", whole(0, kMost), data, batches<&BatchOptions::grow_steps>,
     "steps of growing lengths; 0: off"},
    {"length_hold", "0", whole(0, kMost), data, batches<&BatchOptions::grow_hold>,
     "first steps of length_warmup, in which lengths stay", {"length_warmup", "0"}},
    {"length_whole", "0", whole(0, kMost), data, batches<&BatchOptions::grow_whole>,
     "every n-th step of length_warmup uses the full length; 0: none", {"length_warmup", "0"}},
    {"length_start", "64", whole(2, 1 << 24), data, batches<&BatchOptions::grow_start>,
     "tokens kept at the start of length_warmup", {"length_warmup", "0"}},
    {"length_growth", "linear", choice("linear|geometric"), data, batches<&BatchOptions::growth>,
     "growth per step of length_warmup: by a number or by a factor of tokens",
     {"length_warmup", "0"}},
    {"length_keep", "front", choice("front|ends"), data, batches<&BatchOptions::keep>,
     "part of a cut sequence that is kept", {"length_warmup", "0"}},
    {"mask", "length", choice("length|nonzero"), data, batches<&BatchOptions::mask>,
     "positions that attention may read"},
    {"drop_close", "0", flag, data, run<&RunConfig::drop_close>,
     "ListOps without `]`, as the papers' pipeline reads it"},
    {"text.dev", "heldout", choice("heldout|test"), data, run<&RunConfig::dev_rule>,
     "examples of Text's dev split"},
    {"max_length", "", whole(1, 1 << 24), encoder, batches<&BatchOptions::max_length>,
     "tokens kept from the front"},
    {"group_by_length", "0", flag, data, batches<&BatchOptions::group_by_length>,
     "batches of similar lengths in a shuffle window"},

    {"pretrain_steps", "0", whole(0, kMost), schedule, pretraining_of<&Pretraining::steps>,
     "steps of predicting hidden tokens", {}, "pre-training of {} steps"},
    {"pretrain_lr", "1e-3", real(0, 10), schedule, pretraining_of<&Pretraining::lr>,
     "highest learning rate of pre-training", {"pretrain_steps", "0"}},
    {"pretrain_warmup", "100", whole(2, kMost), schedule, pretraining_of<&Pretraining::warmup>,
     "warm-up steps of pre-training", {"pretrain_steps", "0"}},
    {"mask_rate", "0.15", real(0.001, 0.999), data, masking<&MaskingOptions::rate>,
     "share of tokens that are hidden", {"pretrain_steps", "0"}},
    {"mask_span", "1", whole(1, 65536), data, masking<&MaskingOptions::span>,
     "neighbours that are hidden together", {"pretrain_steps", "0"}},
    {"mask_keep", "0", real(0, 1), data, masking<&MaskingOptions::keep>,
     "share of the hidden tokens that are shown as they are", {"pretrain_steps", "0"}},
    {"mask_random", "0", real(0, 1), data, masking<&MaskingOptions::random>,
     "share of the hidden tokens that another token replaces", {"pretrain_steps", "0"}},

    {"eval_every", "", whole(1, kMost), schedule, run<&RunConfig::eval_every>,
     "steps between dev evaluations"},
    {"eval_examples", "0", whole(0, kMost), schedule, run<&RunConfig::eval_examples>,
     "dev examples per evaluation; 0: all"},
    {"final_examples", "0", whole(0, kMost), schedule, run<&RunConfig::final_examples>,
     "examples of dev and test in the last evaluations; 0: all; eval_examples if that is set"},
    {"class_weights", "none", per_class, schedule, run<&RunConfig::class_weights>,
     "weight of an example's loss, by its class"},
    {"patience", "0", whole(0, kMost), schedule, run<&RunConfig::patience>,
     "evaluations without progress to stop at, from select_after on; 0: off"},
    {"select", "best_accuracy", choice("best_accuracy|best_loss|last"), schedule,
     run<&RunConfig::select>, "weights that are tested"},
    {"select_after", "0", real(0, 1), schedule, run<&RunConfig::select_after>,
     "share of the steps before selection starts", {"select", "last"}},
    {"checkpoint_every", "500", whole(1, kMost), schedule, run<&RunConfig::checkpoint_every>,
     "steps between checkpoints"},
    {"precision", "fp32", choice("auto|fp32|tf32|bf16"), schedule, nullptr,
     "of matrix products; auto: bf16 on GPUs that have it, else fp32"},
};
// clang-format on

/// Other programs' names of keys that are spelt too differently for a guess, without `_`.
struct OtherName {
  std::string_view name, key;
};
constexpr OtherName kOtherNames[] = {
    {"learningrate", "lr"},
    {"batchsize", "batch"},
    {"maxsteps", "steps"},
    {"warmupsteps", "warmup"},
    {"gradientaccumulationsteps", "accumulate"},
    {"adambeta2", "beta2"},
    {"hiddensize", "width"},
    {"intermediatesize", "ff_width"},
    {"numhiddenlayers", "layers"},
    {"numattentionheads", "heads"},
    {"layernormeps", "norm_epsilon"},
    {"mlmprobability", "mask_rate"},
    {"maxseqlength", "max_length"},
    {"savesteps", "checkpoint_every"},
    {"evalsteps", "eval_every"},
    {"lrschedulertype", "schedule"},
};

}  // namespace

std::span<const KeyInfo> recipe_keys() { return kKeys; }

const KeyInfo* find_key(std::string_view key) {
  for (const KeyInfo& info : kKeys) {
    if (info.key == key) return &info;
  }
  return nullptr;
}

std::string_view key_called(std::string_view name) {
  std::string letters;
  for (const char letter : name) {
    if (letter != '_' && letter != '-') letters += letter;
  }
  for (const OtherName& other : kOtherNames) {
    if (other.name == letters) return other.key;
  }
  return {};
}

std::string unknown_key(std::string_view key, const std::vector<std::string>& known) {
  const std::string_view same = key_called(key);
  std::string near = same.empty() ? nearest(key, known) : std::string(same);
  if (!near.empty()) near = fmt::format("'{}'", near);
  if (near.empty()) {  // what a run has beside its recipe
    near =
        nearest(key, {"attention", "data", "device", "out", "recipe", "seed", "task", "threads"});
    if (!near.empty()) near = "the flag --" + near;
  }
  return fmt::format(
      "unknown key '{}'{}; `skytape info recipe` lists the keys, `skytape info "
      "attention` the options of methods",
      key, near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
}

std::string range_of(const KeyInfo& key) {
  constexpr const char* kOf[] = {"", "; pixels", "; pairs"};
  const std::string of = kOf[static_cast<int>(key.range.of)];
  if (key.range.kind == KeyKind::flag) return "0|1" + of;
  if (key.range.kind == KeyKind::choice) return std::string(key.range.choices);
  if (key.range.kind == KeyKind::weights) {
    return fmt::format(
        "none, balanced, or a number for each class, up to {:.0f} and one above 0: 1,2.5",
        kMostWeight);
  }
  return fmt::format("{:.10g}..{:.10g}{}{}", key.range.low, key.range.high,
                     key.range.odd ? ", odd" : "", of);
}

void check_value(const KeyInfo& key, const std::string& text) {
  if (key.range.kind == KeyKind::integer) {
    (void)parse_number<std::int64_t>(key, text);
  } else if (key.range.kind == KeyKind::real) {
    (void)parse_number<double>(key, text);
  } else if (key.range.kind == KeyKind::weights) {
    (void)parse_class_weights(text);
  } else if (!is_among(key.range.kind == KeyKind::flag ? "0|1" : key.range.choices, text)) {
    refuse(key, text);
  }
}

std::vector<double> parse_class_weights(const std::string& text) {
  if (text == "none" || text == "balanced") return {};
  std::vector<double> weights;
  double sum = 0;
  for (const std::string_view part : data::split(text, ',')) {
    const double weight = number_in<double>(part).value_or(-1);
    if (!(weight >= 0 && weight <= kMostWeight)) {
      weights.clear();
      break;
    }
    weights.push_back(weight);
    sum += weight;
  }
  if (weights.empty() || !(sum > 0)) refuse(*find_key("class_weights"), text);
  return weights;
}

std::int64_t whole_number(const KeyInfo& key, const std::string& text) {
  return parse_number<std::int64_t>(key, text);
}

bool is_among(std::string_view choices, std::string_view word) {
  const std::vector<std::string_view> words = data::split(choices, '|');
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace skytape::train
