#include "train/config/recipes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "attention/registry.hpp"
#include "tensor/core/error.hpp"
#include "train/config/task_family.hpp"

namespace skytape::train {
namespace {

/// The files of train/config/recipes, whose first lines say in a comment what each is for.
struct RecipeFile {
  const char *name, *text;
};
constexpr RecipeFile kFiles[] = {
#include "build/recipes.inc"
};

constexpr Instead kInstead[] = {
    {"linformer", "positions", "rotary", "learned", "it combines keys of all positions"},
    {"linear_attention", "positions", "rotary", "learned", "its weights are no function of q.k"},
    {"cosformer", "positions", "rotary", "learned", "its weights are no function of q.k"},
    {"luna", "positions", "rotary", "learned", "its memory has no positions to compare with"},
    {"local", "pooling", "first", "attention", "its first token sees the first block alone"},
    {"local", "positions", "rotary", "learned", "a pooling of blocks must know their positions"},
    {"longformer", "positions", "rotary", "learned",
     "its global tokens have queries and keys of their own, which are not turned"},
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

Recipe embedded(const RecipeFile& file) {
  const std::string text = file.text;
  Recipe recipe = parse_recipe(file.name, text, fmt::format("{}.recipe", file.name));
  recipe.idea = text.substr(2, text.find('\n') - 2);  // behind "# "
  return recipe;
}

/// The default first, then by name.
std::vector<Recipe> all_embedded() {
  std::vector<Recipe> all;
  for (const RecipeFile& file : kFiles) all.push_back(embedded(file));
  std::stable_partition(all.begin(), all.end(),
                        [](const Recipe& r) { return r.name == "skytape"; });
  return all;
}

}  // namespace

std::span<const Recipe> recipes() {
  static const std::vector<Recipe> kRecipes = all_embedded();
  return kRecipes;
}

std::span<const Instead> instead_rows() { return kInstead; }

Setting for_method(const Setting& setting, std::string_view method) {
  if (setting.key == "positions" && setting.value == "rotary" && turns_nothing(method)) {
    return {setting.key, "learned",
            fmt::format("{}, for {}: it reads no queries and keys", setting.origin, method)};
  }
  for (const Instead& row : kInstead) {
    if (row.method != method || row.key != setting.key || row.value != setting.value) continue;
    return {setting.key, std::string(row.instead),
            fmt::format("{}, for {}: {}", setting.origin, method, row.because)};
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
