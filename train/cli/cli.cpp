#include "train/cli/cli.hpp"

#include <fmt/format.h>

#include "attention/registry.hpp"
#include "data/task.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/process/threads.hpp"
#include "train/process/version.hpp"

namespace skytape::train {

void add_commands(const Command& program) {
  add_train(program);
  add_pretrain(program);
  add_eval(program);
  add_predict(program);
  add_encode(program);
  add_import(program);
  add_data(program);
  add_gradcheck(program);
  add_info(program);
  add_tape(program);
}

std::string recipe_help() {
  std::string names;
  for (const Recipe& recipe : recipes()) names += recipe.name + ", ";
  return names + "a file as `skytape info recipe skytape` prints, or the config.json of a run";
}

void RunFlags::declare(const Command& command) {
  command.add_option("--task", task, "task: `skytape info tasks` lists them");
  command.add_option("--attention", attention, "method: `skytape info attention` lists them");
  command.add_option("--recipe", recipe, recipe_help());
  command.add_option("--seed", seed, "of initial values, order and draws");
  command.add_option("--device", device, "auto, cpu or cuda");
  command.add_option("--threads", threads, "CPU threads; 0: all cores");
  command.add_option("--data", data, "folder of prepared data sets");
  command.add_option("--steps", steps, "length of the run and of its schedule");
  command.add_option("--batch", batch, "examples per step");
  command.add_option("--lr", lr, "highest learning rate");
  command.add_option("--features", features, "landmarks, projected length or random features");
  command.add_option("--precision", precision, kRunPrecisionHelp);
  command
      .add_option("--set", set,
                  "key=value: a key that `skytape info recipe` lists, or <method>.<option>")
      .no_default();
}

void RunFlags::note_given(const Command& command) {
  for (const char* flag :
       {"--task", "--attention", "--recipe", "--seed", "--device", "--threads", "--data"}) {
    if (command.count(flag) > 0) given.insert(flag);
  }
  const Recipe of_run = find_recipe(recipe);
  if (!of_run.task.empty() && !given.contains("--task")) task = of_run.task;
  if (!of_run.attention.empty() && !given.contains("--attention")) attention = of_run.attention;
}

Choices RunFlags::choices() const {
  set_threads(threads);
  Choices c;
  c.task = task;
  c.attention = attention;
  c.recipe = recipe;
  c.seed = seed;
  c.device = parse_device(device);
  c.data_root = data;
  c.given = given;
  for (const std::string& entry : set) {
    const std::size_t equals = entry.find('=');
    if (equals == entry.npos || equals == 0) {
      throw UsageError(fmt::format("--set: expected key=value, got '{}'", entry));
    }
    c.settings.push_back({entry.substr(0, equals), entry.substr(equals + 1), "--set"});
  }
  const auto flag = [&](const char* key, const std::string& value) {
    if (!value.empty()) c.settings.push_back({key, value, fmt::format("--{}", key)});
  };
  flag("steps", steps);
  flag("batch", batch);
  flag("lr", lr);
  flag("features", features);
  flag("precision", precision);
  return c;
}

void declare_columns(const Command& command, data::ColumnNames& columns, std::string& delimiter) {
  command.add_option("--label-column", columns.label,
                     "custom data: name of the column with the label, or its number from 1");
  command.add_option("--text-column", columns.text, "the same of the column with the text");
  command.add_option("--text2-column", columns.second, "the same of the other text of a pair");
  command.add_option("--delimiter", delimiter,
                     "custom data: delimiter of CSV's fields: a character, or tab");
}

std::vector<std::string> split_list(const std::string& flag, const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end == begin) {
      throw UsageError(fmt::format("{}: expected a list a,b,c, got '{}'", flag, text));
    }
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<std::int64_t> number_list(const std::string& flag, const std::string& text,
                                      std::int64_t low, std::int64_t high) {
  std::vector<std::int64_t> numbers;
  for (const std::string& part : split_list(flag, text)) {
    const auto number = number_in<std::int64_t>(part);
    if (!number || *number < low || *number > high) {
      throw UsageError(
          fmt::format("{}: expected numbers in {}..{}, got '{}'", flag, low, high, part));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

std::vector<std::string> task_list(const std::string& text) {
  std::vector<std::string> names;
  if (text == "all") {
    for (const data::TaskInfo& task : data::tasks()) {
      if (task.benchmark) names.emplace_back(task.name);
    }
    return names;
  }
  for (const std::string& name : split_list("--tasks", text)) {
    names.emplace_back(data::find_task(name).name);
  }
  return names;
}

std::vector<std::string> method_list(const std::string& text) {
  std::vector<std::string> names;
  if (text == "all") {
    for (const attention::Spec& spec : attention::registry()) names.push_back(spec.name);
    return names;
  }
  for (const std::string& name : split_list("--attention", text)) {
    names.push_back(attention::find(name).name);
  }
  return names;
}

std::map<std::string, attention::OptionValues> method_options(const std::vector<std::string>& set) {
  std::map<std::string, attention::OptionValues> options;
  for (const std::string& entry : set) {
    const std::size_t equals = entry.find('='), dot = entry.find('.');
    if (equals == entry.npos || dot == entry.npos || dot > equals) {
      throw UsageError(fmt::format("--set: expected <method>.<option>=value, got '{}'", entry));
    }
    const std::string key = entry.substr(dot + 1, equals - dot - 1);
    if (!options[entry.substr(0, dot)].try_emplace(key, entry.substr(equals + 1)).second) {
      throw UsageError(fmt::format("{} is set twice", entry.substr(0, equals)));
    }
  }
  for (const auto& [name, values] : options) {
    attention::refuse_idle(attention::find(name), values);
  }
  return options;
}

}  // namespace skytape::train
