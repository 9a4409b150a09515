// The text of a recipe: reading it, and what it says about a task and a method.
#include "train/config/recipes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <utility>

#include "attention/registry.hpp"
#include "data/files/json.hpp"
#include "data/files/printable.hpp"
#include "data/task.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/config/keys.hpp"
#include "train/config/settings.hpp"
#include "train/config/task_family.hpp"
#include "train/formats/json_file.hpp"

namespace skytape::train {
namespace {

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
        fail(fmt::format("expected key=value, got '{}'", data::printable(word, 100)));
      }
      add(word.substr(0, equals), word.substr(equals + 1));
    }
  }

  /// A task, a method, or both; each such section stands once.
  void begin_section(const std::string& head) {
    task_.clear();
    method_.clear();
    section_ = head;
    keys_.clear();
    std::istringstream words(head);
    for (std::string word; words >> word;) {
      const auto tasks = data::tasks();
      const auto methods = attention::registry();
      if (std::any_of(tasks.begin(), tasks.end(), [&](const data::TaskInfo& task) {
            return task.name == word || task_family(task.name) == word;
          })) {
        if (!task_.empty()) fail(fmt::format("[{}]: expected one task at most", head));
        task_ = word;
      } else if (std::any_of(methods.begin(), methods.end(), [&](const attention::Spec& spec) {
                   return matches(word, spec.name);
                 })) {
        if (!method_.empty()) fail(fmt::format("[{}]: expected one method at most", head));
        method_ = word;
      } else {
        fail(fmt::format("[{}]: '{}' is neither a task nor a method", data::printable(head, 100),
                         data::printable(word, 100)));
      }
    }
    const auto [first, fresh] = sections_.try_emplace({task_, method_}, line_);
    if (!fresh) {
      fail(fmt::format("[{}] appears twice, first in line {}; expected all its keys in one", head,
                       first->second));
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
      fail(unknown_key(key, known));
    }
    RecipeValue found = value_of(key, value);
    const auto [first, fresh] = keys_.try_emplace(found.setting.key, value, line_);
    if (!fresh) {
      fail(fmt::format("{} appears twice: {} in line {}, {} here", found.setting.key,
                       first->second.first, first->second.second, value));
    }
    recipe_.values.push_back(std::move(found));
  }

  /// Under one key, however it is spelt: `skyformer.features` is `features` for skyformer, and
  /// `gamma` in the section of skyformer is `skyformer.gamma`.
  [[nodiscard]] RecipeValue value_of(const std::string& key, const std::string& value) const {
    const std::string of = section_.empty() ? "" : ", [" + section_ + "]";
    RecipeValue found{task_, method_, {key, value, "recipe " + recipe_.name + of}};
    if (find_key(key) != nullptr) return found;
    const std::size_t dot = key.find('.');
    if (dot == key.npos) {
      if (!method_.ends_with('*')) found.setting.key = fmt::format("{}.{}", method_, key);
      return found;
    }
    const std::string method = key.substr(0, dot), option = key.substr(dot + 1);
    if (!matches(method_, method)) {
      fail(fmt::format("{} has no effect under [{}]", key, section_));
    }
    if (is_shared(option)) {
      found.method = method;
      found.setting.key = option;
    }
    return found;
  }

  /// Returns whether a method of this section has such an option, or the one that it names: where a
  /// key has the name of an option, `sinkhorn.steps` is the option.
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
  std::map<std::pair<std::string, std::string>, int> sections_;  // the line of each section's head
  std::map<std::string, std::pair<std::string, int>>
      keys_;  // of this section: value and line of each
  Recipe recipe_;
};

constexpr std::string_view kOfFile = " (file)";  // in a recipe's name

Recipe recipe_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) throw UsageError(fmt::format("{}: cannot open it, expected a recipe", file.string()));
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (file.extension() == ".json") {
    Recipe recipe = recipe_of_run(json_object_in(text, file.string()), file.string());
    for (RecipeValue& value : recipe.values) unsettle_precision(value.setting);
    recipe.text = text;
    recipe.file = "recipe.json";
    return recipe;
  }
  const bool pipe = !std::filesystem::is_regular_file(file);
  const std::string name = pipe ? "pipe" : file.filename().string();
  Recipe recipe = parse_recipe(fmt::format("{}{}", name, kOfFile), text, file.string());
  recipe.file = name;
  return recipe;
}

}  // namespace

Recipe parse_recipe(std::string name, const std::string& text, const std::string& where) {
  return RecipeReader(std::move(name), text, where).take();
}

Recipe recipe_of_run(const data::Json& config, const std::string& file) {
  Recipe recipe;
  try {
    recipe.name = config.at("recipe").get<std::string>();
    recipe.task = config.at("task").get<std::string>();
    recipe.attention = config.at("attention").get<std::string>();
    for (const Setting& setting : saved_settings(config))
      recipe.values.push_back({"", "", setting});
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
  const std::filesystem::path file = name_or_file;
  // A bare name is a slip in the name of a recipe, whatever folders there are.
  const bool folder = std::filesystem::is_directory(file);
  if (folder && file.has_parent_path()) {
    throw UsageError(
        fmt::format("--recipe {}: a folder; expected a recipe's file, or the config.json of a run",
                    name_or_file));
  }
  if (std::filesystem::is_regular_file(file)) return recipe_in(file);
  if (folder || !std::filesystem::exists(file)) {
    throw UsageError(unknown_name("recipe, and no file,", name_or_file, names));
  }
  static std::map<std::string, Recipe> pipes;  // they have no second reading
  const auto known = pipes.find(name_or_file);
  return known != pipes.end() ? known->second
                              : pipes.emplace(name_or_file, recipe_in(file)).first->second;
}

std::string in_folder_names(const std::string& recipe) {
  return recipe.ends_with(kOfFile) ? recipe.substr(0, recipe.size() - kOfFile.size()) : recipe;
}

std::vector<Setting> recipe_settings(const Recipe& recipe, std::string_view task,
                                     std::string_view method) {
  std::vector<Setting> settings;
  for (const KeyInfo& key : recipe_keys()) {
    if (key.standard.empty()) continue;
    settings.push_back({std::string(key.key), std::string(key.standard), "default"});
  }
  // Without a section of its own (custom data, a new task) a task trains as Text does.
  const bool known =
      std::any_of(recipe.values.begin(), recipe.values.end(), [&](const RecipeValue& value) {
        return value.task == task || value.task == task_family(task);
      });
  for (const RecipeValue& value : recipe.values) {
    const bool for_task = value.task.empty() || value.task == task ||
                          value.task == (known ? task_family(task) : std::string_view("text"));
    if (!for_task || !matches(value.method, method)) continue;
    Setting setting = value.setting;
    if (find_key(setting.key) == nullptr && setting.key.find('.') == setting.key.npos) {
      setting.key = fmt::format("{}.{}", method, setting.key);
    }
    put(setting, settings);
  }
  if (recipe.attention == method) return settings;  // its run has what it was given, or asked for
  for (Setting& setting : settings) setting = for_method(setting, method);
  return settings;
}

std::vector<Setting> recipe_settings(const std::string& recipe, std::string_view task,
                                     std::string_view method) {
  return recipe_settings(find_recipe(recipe), task, method);
}

}  // namespace skytape::train
