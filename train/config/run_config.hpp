// The effective configuration of one run: every value with its origin, and the same values typed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "data/batch_options.hpp"
#include "data/files/json_fwd.hpp"
#include "data/masking.hpp"
#include "data/task.hpp"
#include "nn/config/model_config.hpp"
#include "nn/config/schedule.hpp"
#include "tensor/core/device.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/gemm/precision.hpp"
#include "train/config/recipes.hpp"
#include "train/step/microbatches.hpp"

namespace skytape::attention {
struct Spec;
}
namespace skytape::data {
class Vocabulary;
}

namespace skytape::train {

/// The choices of a user.
struct Choices {
  std::string task = "listops";
  std::string attention = "skyformer";
  std::string recipe = "skytape";  // name or file
  std::uint64_t seed = 42;
  Device device = Device::cpu;
  std::filesystem::path data_root = "datasets";
  std::vector<Setting> settings;  // those of --set and of flags, which are their origins
  /// The flags of the command line that say the members above, and --threads: the others have their
  /// defaults, which a saved configuration takes the place of.
  std::set<std::string> given = {};
};

enum class Select { best_accuracy, best_loss, last };

/// Masked-token prediction before the task is learned.
struct Pretraining {
  std::int64_t steps = 0;  // 0: none
  double lr = 1e-3;
  std::int64_t warmup = 100;  // steps
  data::MaskingOptions masking;
};

struct RunConfig {
  std::string recipe;  // its name, a label: identity.hpp says what a run is
  const data::TaskInfo* task = nullptr;
  const attention::Spec* method = nullptr;
  std::shared_ptr<const data::Vocabulary> vocabulary;  // of custom data; null: the task's own ids
  bool pairs = false;  // each example of custom data is two texts in one sequence
  std::uint64_t seed = 42;
  Device device = Device::cpu;
  std::filesystem::path data_root;
  std::vector<Setting> settings;  // every effective value, recipe keys first, then the method's

  // The same values, typed: filled by the rows of keys.cpp.
  std::int64_t accumulate = 1;  // microbatches a batch is computed in
  nn::AdamWConfig adamw;
  nn::Schedule schedule;
  Pretraining pretraining;
  bool mask_token = false;  // the embedding has a row for hidden tokens: pre-trained here or before
  std::int64_t eval_every = 500;        // steps
  std::int64_t eval_examples = 0;       // of dev, on the way; 0: all
  std::int64_t final_examples = 0;      // of dev and test, at the end; 0: all
  std::int64_t patience = 0;            // evaluations; 0: off
  std::int64_t checkpoint_every = 500;  // steps
  Select select = Select::best_accuracy;
  double select_after = 0;  // share of the steps
  Precision precision = Precision::fp32;
  data::DevRule dev_rule = data::DevRule::held_out;
  bool drop_close = false;  // tokens that close are left out, where the task has some
  data::BatchOptions batches;
  nn::ModelConfig model;               // classes as the task says; the data may tell otherwise
  std::string class_weights = "none";  // as the setting says it; the data decide the numbers
  bool needs_whole_batch = false;      // by the method with these options: see attention::Method

  [[nodiscard]] std::int64_t steps() const { return schedule.steps; }
  /// Examples that a step of accumulation computes: the batch over the accumulation, rounded up.
  [[nodiscard]] std::int64_t microbatch() const { return ceil_div(batches.batch, accumulate); }
  /// Returns how training splits a batch. It stays whole on a GPU, and where the method needs whole
  /// batches; elsewhere the parts suit the caches.
  [[nodiscard]] MicrobatchLimits microbatch_limits() const;
};

/// The values that --precision accepts where no recipe says it, and where one does, for help texts.
inline constexpr const char* kPrecisionHelp =
    "of matrix products: fp32, tf32 (cuda) or bf16; the iterative inverse (on cuda at "
    "bf16 to 1e-4), and on cuda tiled attention with heads wider than 64, stay fp32";
inline constexpr const char* kRunPrecisionHelp =
    "of matrix products: auto (bf16 on GPUs that have it, else fp32), fp32, tf32 (cuda) or bf16; "
    "on cuda tiled and block attention with heads wider than 64, or blocks of fewer than 16 rows, "
    "stay fp32";
/// fp32, tf32 or bf16; UsageError for another name.
[[nodiscard]] Precision parse_precision(const std::string& name);

/// Recipe, then task row, then method row, then what the user chose. UsageError for unknown names
/// and keys (nearest suggested), values out of range, a key that is set twice, and a key of the
/// user's that changes nothing in this run. `--steps` rescales the warm-up unless that is set too.
/// A precision of `auto` becomes what it stands for on the device.
[[nodiscard]] RunConfig resolve(const Choices& choices);
/// The same by this recipe, whatever `choices` name.
[[nodiscard]] RunConfig resolve(const Choices& choices, const Recipe& recipe);

/// Makes a precision that was settled from `auto` that again.
void unsettle_precision(Setting& setting);
/// The same run on another device, for which a precision that was `auto` is decided anew.
[[nodiscard]] RunConfig moved_to(Device device, RunConfig config);

/// Returns everything that decides the run's numbers, as config.json and checkpoints store it.
[[nodiscard]] data::Json to_json(const RunConfig& config);
/// Refuses a config.json whose parts are of another kind than a program of ours writes, or whose
/// labels disagree: DataError naming `file`, the part, what was expected and what came. What is
/// missing is the reader's to judge.
void check_parts(const data::Json& config, const std::string& file);
/// The inverse. DataError naming `file` when something is missing, UsageError for unknown names.
[[nodiscard]] RunConfig config_from_json(const data::Json& json, const std::string& file);

/// The first phase of a run with pretrain_steps: the same encoder, data and batches, trained to
/// predict hidden tokens by a separate schedule. Where lengths grow, they do over the same share
/// of its steps. Of such a phase, the phase itself.
[[nodiscard]] RunConfig pretraining_of(const RunConfig& config);

/// Returns the choices of a user of `pretrain`, as resolve() takes them: steps, lr and warmup are
/// those of predicting hidden tokens. UsageError for a key that only training on the task reads.
[[nodiscard]] Choices for_pretraining(Choices choices);

/// Returns whether a config.json is that of a pre-training, which has no classes.
[[nodiscard]] bool is_pretraining(const data::Json& config);

/// The same run with a row for hidden tokens: it starts from weights that were pre-trained.
[[nodiscard]] RunConfig with_mask_token(RunConfig config);

/// The same run on data that bring a vocabulary or are pairs, as the provenance of a prepared set
/// says; the vocabulary decides how many ids the model has.
[[nodiscard]] RunConfig with_vocabulary(RunConfig config, const data::Json& provenance);

/// A table of key, value, origin: what --print-config shows.
[[nodiscard]] std::string to_text(const RunConfig& config);

/// "<task>-<attention>-<recipe>-s<seed>": the folder's name below runs/. See in_folder_names().
[[nodiscard]] std::string run_name(const RunConfig& config);

}  // namespace skytape::train
