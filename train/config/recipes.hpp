// Recipes: everything that decides a number besides seed and method, as tables of key -> value with
// the origin of each. The papers' columns are their hyper-parameters as the configurations of their
// published code have them, and the options with which our methods do what that code does.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skytape::train {

enum class KeyKind { integer, real, flag, choice };

/// One recipe key: what it is and which values are legal.
struct KeyInfo {
  std::string_view key;
  KeyKind kind;
  double low = 0, high = 0;       // legal range of a number, both ends included
  std::string_view choices = {};  // "a|b|c" of a choice
  std::string_view meaning = {};
  std::string_view before = {};  // value of configurations saved before the key existed
};

/// All recipe keys in the order in which they are printed.
[[nodiscard]] std::span<const KeyInfo> recipe_keys();

/// The key of that name or nullptr.
[[nodiscard]] const KeyInfo* find_key(std::string_view key);

/// The key that other programs call `name`, in any spelling: "lr" of "learning_rate" and
/// "learning-rate". Empty if there is none.
[[nodiscard]] std::string_view key_called(std::string_view name);

/// "1..65536", "0|1", "nonzero|length".
[[nodiscard]] std::string range_of(const KeyInfo& key);

struct RecipeInfo {
  std::string_view name;
  std::string_view idea;
};
[[nodiscard]] std::span<const RecipeInfo> recipes();

/// An effective value and who said so: "recipe", "task row", "method row", "--set", a flag.
struct Setting {
  std::string key, value, origin;
};

/// What a recipe says about a task and a method: recipe keys first, then `<method>.<option>`. The
/// last of equal keys counts. UsageError for an unknown recipe (suggests the nearest).
[[nodiscard]] std::vector<Setting> recipe_settings(std::string_view recipe, std::string_view task,
                                                   std::string_view method);

/// What a recipe gives a method where its value has no meaning for it, or costs it what it is for.
struct Instead {
  std::string_view method, key, value, instead, because;
};
[[nodiscard]] std::span<const Instead> instead_rows();
/// The value for that method of a recipe that says `setting`: the same, or a row's, whose origin
/// says why.
[[nodiscard]] Setting for_method(const Setting& setting, std::string_view method);

/// The value of a method's option that makes it do what the papers' code does.
struct PaperOption {
  std::string_view methods;  // a name, or a family "skein*"
  std::string_view option, value;
};
[[nodiscard]] std::span<const PaperOption> paper_options();
[[nodiscard]] bool matches(const PaperOption& row, std::string_view method);

/// Accuracy of a model that sees no order, hence needs no attention; negative: not known.
struct TrivialBaseline {
  double accuracy = -1;
  std::string_view what = {};
};
[[nodiscard]] TrivialBaseline trivial_baseline(std::string_view task);

}  // namespace skytape::train
