#include "train/config/recipes.hpp"

#include <algorithm>

#include "attention/registry.hpp"
#include "tensor/core/error.hpp"
#include "train/config/task_family.hpp"

namespace skytape::train {
namespace {

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
  batch=64 lr=2e-3 warmup=500 steps=6000 eval_every=1000 eval_examples=2000 dropout=0 layers=1
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

/// What differs from the rows above where a GPU has some minutes.
constexpr std::string_view kLarge = R"(
[listops]
  steps=45000 length_warmup=40500 dropout=0.1 eval_every=3000
[text]
  warmup=100 steps=1600 dropout=0.3 ngrams=8 ngram_rows=131072
[pathfinder]
  steps=20000 width=64 ff_width=128 positions=none
[pathx]  # from what Pathfinder learned: --init
  batch=16 lr=1e-3 warmup=200 steps=8000 eval_every=500 eval_examples=1000
[image]
  batch=64 lr=1e-3 warmup=500 steps=10000 dropout=0.1 layers=4 width=128 ff_width=256 heads=4
)";

constexpr std::string_view kSkyformer = R"(
# eval_examples: dev batches x batch of the paper's configurations
mask=nonzero drop_close=1 text.dev=test select_after=0.2
[listops]
  batch=32 lr=1e-4 warmup=1000 steps=50000 eval_every=500 eval_examples=1984
[text]
  batch=16  # as the paper prints it; its code has 32
  lr=1e-4 warmup=80 steps=50000 eval_every=500 eval_examples=6400
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
# features: as the paper prints them; its code has 128 for methods of others. select: its code tests
# the last weights.
clip_value=0 features=256 mask=nonzero drop_close=1 text.dev=test patience=10 select=best_loss
[listops]
  batch=256 lr=1e-4 warmup=1000 steps=20000 eval_every=500
[text]
  batch=128 lr=1e-4 warmup=80 steps=50000 eval_every=500
[retrieval]
  batch=64 lr=1e-4 warmup=800 steps=60000 eval_every=300
[pathfinder]
  lr=2e-4  # as the code has it; the paper prints 1e-4
  batch=512 warmup=312 steps=31200 eval_every=312
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

/// Methods that read values alone have nothing for rotary positions to turn: not by a row, so that
/// a new one needs none.
bool turns_nothing(std::string_view method) {
  const auto all = attention::registry();
  return std::any_of(all.begin(), all.end(), [&](const attention::Spec& spec) {
    return spec.name == method && spec.values_only;
  });
}

Recipe own(const char* name, const char* idea, std::string_view text,
           std::string_view options = {}) {
  Recipe recipe = parse_recipe(name, join(text.substr(1), options), name);
  recipe.idea = idea;
  return recipe;
}

/// The rows as a file has them.
std::string text_of(const std::vector<RecipeRow>& rows) {
  constexpr std::size_t kWidest = 100;  // columns of a line
  std::string text, line;
  const RecipeRow* before = nullptr;
  const auto end_line = [&] { text += line.empty() ? "" : line + "\n"; };
  for (const RecipeRow& row : rows) {
    const bool same = before != nullptr && before->task == row.task && before->method == row.method;
    if (!same && (!row.task.empty() || !row.method.empty())) {
      end_line();
      line =
          "[" + row.task + (row.task.empty() || row.method.empty() ? "" : " ") + row.method + "]";
    }
    const std::string word = row.setting.key + "=" + row.setting.value;
    if (line.size() + 1 + word.size() > kWidest) {
      end_line();
      line = " ";
    }
    line += (line.empty() ? "" : " ") + word;
    before = &row;
  }
  end_line();
  return text;
}

/// `base` with the rows of `changes` in the place of its own; a new key goes behind those of its row.
Recipe changed(const char* name, const char* idea, std::string_view base,
               std::string_view changes) {
  Recipe recipe = own(name, idea, base);
  for (const RecipeRow& change : own(name, idea, changes).rows) {
    auto place = recipe.rows.end();
    for (auto row = recipe.rows.begin(); row != recipe.rows.end(); ++row) {
      if (row->task != change.task || row->method != change.method) continue;
      place = row + 1;
      if (row->setting.key == change.setting.key) {
        place = recipe.rows.erase(row);
        break;
      }
    }
    recipe.rows.insert(place, change);
  }
  recipe.text = text_of(recipe.rows);
  return recipe;
}

}  // namespace

std::span<const Recipe> recipes() {
  static const Recipe kRecipes[] = {
      own("skytape", "where we train better; elsewhere the Skyformer paper's, known bugs fixed",
          kSkytape),
      changed(
          "large",
          "skytape's, wider or longer where that helps: minutes of a GPU, with --attention softmax",
          kSkytape, kLarge),
      own("skyformer", "the Skyformer paper's table with its official code's behaviour", kSkyformer,
          kOptionsOfPapers),
      own("skeinformer", "the Skeinformer paper's: 256 features, large batches, early stopping",
          kSkeinformer, kOptionsOfPapers),
      own("lra", "the Long Range Arena's models and schedules, as its released configurations",
          kArena),
  };
  return kRecipes;
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
    if (row.task == task_family(task)) return row.baseline;
  }
  return {};
}

}  // namespace skytape::train
