// Recipes: everything that decides a number besides seed and method. A recipe lists what differs
// from the defaults of the keys. The papers' have their hyper-parameters as the configurations of
// their published code have them, and the options with which our methods do what that code does.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/json_fwd.hpp"

namespace skytape::train {

/// A value of a key, and where it comes from: "recipe skytape, [text]", "--set", a flag.
struct Setting {
  std::string key, value, origin;
};

/// One value of a recipe, and for which tasks and methods it is.
struct RecipeValue {
  std::string task;    // or a family of tasks, "pathfinder"; empty: every one
  std::string method;  // or a family of methods, "skein*"; empty: every one
  Setting setting;     // of a key, or of an option of these methods
};

/// A recipe's name is a label: what a run computes, say its settings.
struct Recipe {
  std::string name;  // of a file: "my.recipe (file)"
  std::string idea;
  std::string text;                 // as a file of one has it
  std::vector<RecipeValue> values;  // the last of equal keys counts
  std::string task, attention;      // of the run whose config.json it is; else empty
  std::string file;                 // the name of the file that it was read from; else empty
};

/// The program's own.
[[nodiscard]] std::span<const Recipe> recipes();

/// A recipe of the program, a file with one (or a pipe, which is read once), or the config.json of
/// a run. UsageError with file and line for what is none of these.
[[nodiscard]] Recipe find_recipe(const std::string& name_or_file);

/// Returns a recipe's name in names of folders: "skytape"; "my.recipe" of a file of that name.
[[nodiscard]] std::string in_folder_names(const std::string& recipe);

/// The recipe that `text` says. Lines of key=value; `[task]`, `[method]` or `[task method]` in
/// front of those that are for them alone, `#` before a comment. Each of these sections stands
/// once, and each key once in a section. UsageError naming `where` and the line.
[[nodiscard]] Recipe parse_recipe(std::string name, const std::string& text,
                                  const std::string& where);

/// The settings of a config.json, with their origins. DataError naming `file`.
[[nodiscard]] Recipe recipe_of_run(const data::Json& config, const std::string& file);

/// Returns a recipe's settings for a task and a method, defaults included: keys in their order,
/// then `<method>.<option>`. Keys without a default come where the recipe says them.
[[nodiscard]] std::vector<Setting> recipe_settings(const Recipe& recipe, std::string_view task,
                                                   std::string_view method);
[[nodiscard]] std::vector<Setting> recipe_settings(const std::string& recipe, std::string_view task,
                                                   std::string_view method);

/// A recipe's value for a method to which the recipe's usual value has no meaning, or costs its
/// purpose.
struct Instead {
  std::string_view method, key, value, instead, because;
};
[[nodiscard]] std::span<const Instead> instead_rows();
/// The value for that method of a recipe that says `setting`: the same, or a row's, whose origin
/// says why.
[[nodiscard]] Setting for_method(const Setting& setting, std::string_view method);

/// Accuracy of a model that sees no order, hence needs no attention; negative: not known.
struct TrivialBaseline {
  double accuracy = -1;
  std::string_view what = {};
};
[[nodiscard]] TrivialBaseline trivial_baseline(std::string_view task);

}  // namespace skytape::train
