#include "train/config/recipes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "attention/registry.hpp"
#include "data/task.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/config/keys.hpp"
#include "train/config/settings.hpp"

namespace skytape::train {
namespace {

// ---- the program's recipes: what differs from the defaults of the keys --------------------------

constexpr std::string_view kSkytape = R"(
group_by_length=1 precision=auto
[listops]
  batch=32 lr=1e-3 warmup=200 steps=15000 features=32 dropout=0 attention_dropout=0 pooling=first
  positions=rotary rotary_base=1000 both_ends=1 conv_width=15 length_warmup=13500 length_hold=5000
  length_whole=16 length_growth=geometric length_keep=ends eval_every=1000
[text]
  batch=32 lr=1e-3 warmup=25 steps=800 features=32 dropout=0.2 pooling=mean positions=rotary
  ngrams=5 ngram_rows=16384 eval_every=100
[retrieval]
  batch=16 lr=1e-3 warmup=25 steps=900 eval_every=100 features=32 pooling=mean positions=none
  ngrams=5 ngram_rows=16384 ngram_deviation=1 pair_cosine=1 residual_scale=0.3 layers=1 width=128
[pathfinder]
  batch=64 lr=2e-3 warmup=100 steps=6000 eval_every=1000 eval_examples=2000 dropout=0 layers=1
  width=48 ff_width=96 pooling=mean pyramid=1 features=32 patch=1
[image]
  batch=16 lr=2e-3 warmup=400 steps=12000 eval_every=1000 dropout=0 pooling=mean features=32
  patch=5 mirror=1 conv_width=3 eval_examples=1000
# What a corpus is pre-trained by is RoBERTa's (Liu et al. 2019, table 9): the rate, its shape
# and its warm-up's share, Adam, decay, what is hidden and how. Size, batch and length are not.
[corpus]
  batch=32 lr=6e-4 warmup=480 steps=10000 schedule=linear beta2=0.98 weight_decay=0.01 clip_value=0
  layers=4 width=256 ff_width=1024 heads=4 pooling=mean pretrain_lr=6e-4 pretrain_warmup=480
  mask_keep=0.1 mask_random=0.1 eval_every=500
)";

constexpr std::string_view kSkyformer = R"(
# eval_examples: dev batches x batch of the paper's configurations
mask=nonzero drop_close=1 text.dev=test select_after=0.2
[listops]
  batch=32 lr=1e-4 warmup=1000 steps=50000 eval_every=500 eval_examples=1984
[text]
  batch=16 lr=1e-4 warmup=80 steps=50000 eval_every=500 eval_examples=6400
[retrieval]
  batch=16 lr=2e-4 warmup=800 steps=50000 eval_every=1000 eval_examples=4800
[pathfinder]
  batch=128 lr=2e-4 warmup=312 steps=50000 eval_every=500 eval_examples=19968
[image]
  batch=256 lr=1e-4 warmup=175 steps=50000 eval_every=50
[corpus]
  batch=16 lr=1e-4 warmup=80 steps=50000 eval_every=500
[text kernelized] accumulate=2
[retrieval kernelized] accumulate=2
[pathfinder informer] accumulate=2
[pathfinder informer_mask] accumulate=2
[image informer] accumulate=2
[image informer_mask] accumulate=2
)";

constexpr std::string_view kSkeinformer = R"(
clip_value=0 features=256 mask=nonzero drop_close=1 text.dev=test patience=10 select=best_loss
[listops]
  batch=256 lr=1e-4 warmup=1000 steps=20000 eval_every=500
[text]
  batch=128 lr=1e-4 warmup=80 steps=50000 eval_every=500
[retrieval]
  batch=64 lr=1e-4 warmup=800 steps=60000 eval_every=300
[pathfinder]
  batch=512 lr=2e-4 warmup=312 steps=31200 eval_every=312
[image]
  batch=256 lr=1e-4 warmup=175 steps=50000 eval_every=50
[corpus]
  batch=128 lr=1e-4 warmup=80 steps=50000 eval_every=500
[listops skeinformer] accumulate=2
[listops skein_nonorm] accumulate=4
[text skeinformer] accumulate=2
[text skein_nonorm] accumulate=8
[retrieval skein_nonorm] accumulate=16
[pathfinder skeinformer] accumulate=2
[pathfinder skein_nonorm] accumulate=2
[pathfinder informer] accumulate=2
[pathfinder informer_mask] accumulate=2
[image skein_nonorm] accumulate=2
[image informer] accumulate=2
[image informer_mask] accumulate=2
)";

/// With these the methods do what the code of both papers does.
constexpr std::string_view kOptionsOfPapers = R"(
[linformer] frozen=1 init_std=0.02 sharing=official
[performer] form=official
[skein*] pilot_gradient=official weighted=0 keep_pilot=0
[skyformer] scale=0.42044820762685725  # 32^-1/4
  landmarks=official inverse_start=official detach_start=0 inverse_steps=6
[nystrom] inverse_start=official detach_start=0 inverse_steps=6
[bigbird] random_range=official
[informer] measure=sampled
[informer_mask] measure=sampled
)";

// Options are there where the arena's code has another value than our default.
constexpr std::string_view kArena = R"(
schedule=inverse_sqrt beta2=0.98 adam_epsilon=1e-9 weight_decay=0.1 clip_value=0 pooling=cls
positions=sinusoidal mask=nonzero drop_close=1 text.dev=test select=last
[listops]
  batch=32 lr=1.58113883e-3 warmup=1000 steps=5000 eval_every=20 eval_examples=640 layers=6
  width=512 ff_width=2048 heads=8
[text]
  batch=32 lr=5.59016994e-4 warmup=8000 steps=20000 eval_every=100 layers=4 width=256 ff_width=1024
  heads=4
[retrieval]
  batch=32 lr=5.59016994e-4 warmup=8000 steps=5000 eval_every=100 layers=4 width=128 ff_width=512
  heads=4
[pathfinder]
  batch=512 lr=1e-3 warmup=312 steps=62400 eval_every=312 eval_examples=19968 schedule=cosine
  weight_decay=0 dropout=0.2 layers=1 width=128 heads=4 head_width=16 pooling=mean
[image]
  batch=256 lr=5e-4 warmup=175 steps=35000 eval_every=175 schedule=cosine weight_decay=0
  dropout=0.3 attention_dropout=0.2 layers=1 width=32 ff_width=64 heads=1 pooling=mean
  positions=learned
[corpus]
  batch=32 lr=6e-4 warmup=480 steps=10000 schedule=linear weight_decay=0.01 layers=4 width=256
  ff_width=1024 heads=4 pooling=mean pretrain_lr=6e-4 pretrain_warmup=480 mask_keep=0.1
  mask_random=0.1 eval_every=500
[local] form=official block=20
[longformer] window=512
[sparse_transformer] stride=50 summary=10
[sinkhorn] block=50 sinkhorn.steps=1 temperature=1 gumbel=0
[synthesizer] shared=1
[bigbird] random_range=official
[linformer] features=16
[performer] features=256
)";

// clang-format off: a table that is read by column
constexpr Instead kInstead[] = {
    {"linformer", "positions", "rotary", "learned", "it combines keys of all positions"},
    {"linear_attention", "positions", "rotary", "learned", "its weights are no function of q.k"},
    {"cosformer", "positions", "rotary", "learned", "its weights are no function of q.k"},
    {"luna", "positions", "rotary", "learned", "its memory has no positions to compare with"},
    {"local", "pooling", "first", "attention", "its first token sees the first block alone"},
    {"local", "positions", "rotary", "learned", "what pools blocks must know where they stand"},
    {"routing", "pooling", "first", "mean", "its first token may be in no cluster"},
    {"routing", "positions", "rotary", "learned", "its centroids stand for what, not where"},
};
// clang-format on

/// Measured once, with models that see no order.
struct BaselineRow {
  std::string_view task;
  TrivialBaseline baseline;
};
constexpr BaselineRow kBaselines[] = {
    {"listops", {0.362, "the best label given the root operator alone"}},
    {"text", {0.662, "logistic regression on byte frequencies"}},
    {"image", {0.287, "softmax regression on the raw pixels"}},
    {"pathfinder", {0.5, "always the same answer"}},
    {"retrieval", {0.5, "always the same answer"}},
};

// ---- reading them -------------------------------------------------------------------------------

/// Variations of a benchmark's task (easier pictures, substitute data) belong to it.
std::string_view family(std::string_view task) {
  if (task.starts_with("pathx") || task.starts_with("pathfinder")) return "pathfinder";
  return task.starts_with("retrieval") ? "retrieval" : task;
}

/// Methods that read values alone have nothing for rotary positions to turn: not by a row, so that
/// a new one needs none.
bool turns_nothing(std::string_view method) {
  const auto all = attention::registry();
  return std::any_of(all.begin(), all.end(), [&](const attention::Spec& spec) {
    return spec.name == method && spec.values_only;
  });
}

bool matches(const std::string& methods, std::string_view method) {
  if (!methods.ends_with('*')) return methods.empty() || methods == method;
  return method.starts_with(methods.substr(0, methods.size() - 1));
}

/// The text of a recipe, line by line.
class RecipeReader {
 public:
  RecipeReader(std::string name, const std::string& text, const std::string& where)
      : where_(where) {
    recipe_.name = std::move(name);
    recipe_.text = text;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      ++line_;
      read(line.substr(0, line.find('#')));
    }
  }
  [[nodiscard]] Recipe take() { return std::move(recipe_); }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError(fmt::format("{}:{}: {}", where_, line_, what));
  }

  void read(std::string line) {
    if (const std::size_t open = line.find_first_not_of(" \t"); open != line.npos) {
      if (line[open] == '[') {
        const std::size_t close = line.find(']');
        if (close == line.npos) fail("expected ] behind a task or a method");
        begin_section(line.substr(open + 1, close - open - 1));
        line.erase(0, close + 1);
      }
    }
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      const std::size_t equals = word.find('=');
      if (equals == word.npos || equals == 0) {
        fail(fmt::format("expected key=value, got '{}'", word));
      }
      add(word.substr(0, equals), word.substr(equals + 1));
    }
  }

  /// A task, a method, or both.
  void begin_section(const std::string& head) {
    task_.clear();
    method_.clear();
    section_ = head;
    std::istringstream words(head);
    for (std::string word; words >> word;) {
      const auto tasks = data::tasks();
      const auto methods = attention::registry();
      if (std::any_of(tasks.begin(), tasks.end(), [&](const data::TaskInfo& task) {
            return task.name == word || family(task.name) == word;
          })) {
        task_ = word;
      } else if (std::any_of(methods.begin(), methods.end(), [&](const attention::Spec& spec) {
                   return matches(word, spec.name);
                 })) {
        method_ = word;
      } else {
        fail(fmt::format("[{}]: '{}' is neither a task nor a method", head, word));
      }
    }
  }

  void add(const std::string& key, const std::string& value) {
    if (const KeyInfo* info = find_key(key)) {
      try {
        check_value(*info, value);
      } catch (const UsageError& error) {
        fail(error.what());
      }
    } else if (!is_option(key)) {
      std::vector<std::string> known;
      for (const KeyInfo& each : recipe_keys()) known.emplace_back(each.key);
      fail(unknown_name("key", key, known));
    }
    const std::string row = section_.empty() ? "" : ", row " + section_;
    recipe_.rows.push_back({task_, method_, {key, value, "recipe " + recipe_.name + row}});
  }

  /// Whether a method of this section has such an option, or the one that it names: where a key has
  /// the name of an option, `sinkhorn.steps` is the option.
  [[nodiscard]] bool is_option(const std::string& key) const {
    const auto methods = attention::registry();
    return std::any_of(methods.begin(), methods.end(), [&](const attention::Spec& spec) {
      if (key.starts_with(spec.name + "."))
        return spec.has_option(key.substr(spec.name.size() + 1));
      return !method_.empty() && matches(method_, spec.name) && spec.has_option(key);
    });
  }

  const std::string& where_;
  int line_ = 0;
  std::string section_, task_, method_;
  Recipe recipe_;
};

Recipe own(const char* name, const char* idea, std::string_view text,
           std::string_view options = {}) {
  Recipe recipe = parse_recipe(name, join(text.substr(1), options), name);
  recipe.idea = idea;
  return recipe;
}

Recipe recipe_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (file.extension() != ".json") return parse_recipe(file.stem().string(), text, file.string());
  Recipe recipe = recipe_of_run(data::try_parse_json(text), file.string());
  for (RecipeRow& row : recipe.rows) unsettle_precision(row.setting);
  return recipe;
}

}  // namespace

std::span<const Recipe> recipes() {
  static const Recipe kRecipes[] = {
      own("skytape", "where we train better; elsewhere the Skyformer paper's, known bugs fixed",
          kSkytape),
      own("skyformer", "the Skyformer paper's table with its official code's behaviour", kSkyformer,
          kOptionsOfPapers),
      own("skeinformer", "the Skeinformer paper's: 256 features, large batches, early stopping",
          kSkeinformer, kOptionsOfPapers),
      own("lra", "the Long Range Arena's models and schedules, as its released configurations",
          kArena),
  };
  return kRecipes;
}

Recipe parse_recipe(std::string name, const std::string& text, const std::string& where) {
  return RecipeReader(std::move(name), text, where).take();
}

Recipe recipe_of_run(const data::Json& config, const std::string& file) {
  Recipe recipe;
  try {
    recipe.name = config.at("recipe").get<std::string>();
    recipe.task = config.at("task").get<std::string>();
    recipe.attention = config.at("attention").get<std::string>();
    for (const Setting& setting : saved_settings(config)) recipe.rows.push_back({"", "", setting});
  } catch (const data::JsonError& error) {
    throw DataError(
        fmt::format("{}: not a configuration of skytape: {}", file, data::problem_of(error)));
  }
  return recipe;
}

Recipe find_recipe(const std::string& name_or_file) {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) {
    if (recipe.name == name_or_file) return recipe;
    names.push_back(recipe.name);
  }
  if (std::filesystem::is_regular_file(name_or_file)) return recipe_in(name_or_file);
  throw UsageError(unknown_name("recipe, and no file,", name_or_file, names));
}

std::vector<Setting> recipe_settings(const Recipe& recipe, std::string_view task,
                                     std::string_view method) {
  std::vector<Setting> settings;
  for (const KeyInfo& key : recipe_keys()) {
    if (key.standard.empty()) continue;
    settings.push_back({std::string(key.key), std::string(key.standard), "default"});
  }
  // Without rows of its own (own data, a new task) a task trains as Text does.
  const bool known = std::any_of(recipe.rows.begin(), recipe.rows.end(), [&](const RecipeRow& row) {
    return row.task == task || row.task == family(task);
  });
  for (const RecipeRow& row : recipe.rows) {
    const bool for_task = row.task.empty() || row.task == task ||
                          row.task == (known ? family(task) : std::string_view("text"));
    if (!for_task || !matches(row.method, method)) continue;
    Setting setting = row.setting;
    if (find_key(setting.key) == nullptr && setting.key.find('.') == setting.key.npos) {
      setting.key = join(method, ".", setting.key);
    }
    const auto before = std::find_if(settings.begin(), settings.end(),
                                     [&](const Setting& s) { return s.key == setting.key; });
    if (before == settings.end()) {
      settings.push_back(setting);
    } else {
      *before = setting;
    }
  }
  if (recipe.attention == method) return settings;  // its run has what it was given, or asked for
  for (Setting& setting : settings) setting = for_method(setting, method);
  return settings;
}

std::vector<Setting> recipe_settings(const std::string& recipe, std::string_view task,
                                     std::string_view method) {
  return recipe_settings(find_recipe(recipe), task, method);
}

std::span<const Instead> instead_rows() { return kInstead; }

Setting for_method(const Setting& setting, std::string_view method) {
  if (setting.key == "positions" && setting.value == "rotary" && turns_nothing(method)) {
    return {setting.key, "learned",
            join(setting.origin, ", row ", method, ": it reads no queries and keys")};
  }
  for (const Instead& row : kInstead) {
    if (row.method != method || row.key != setting.key || row.value != setting.value) continue;
    return {setting.key, std::string(row.instead),
            join(setting.origin, ", row ", method, ": ", row.because)};
  }
  return setting;
}

TrivialBaseline trivial_baseline(std::string_view task) {
  for (const BaselineRow& row : kBaselines) {
    if (row.task == family(task)) return row.baseline;
  }
  return {};
}

}  // namespace skytape::train
