#include <fmt/format.h>

#include <memory>

#include "attention/registry.hpp"
#include "data/task.hpp"
#include "tensor/error.hpp"
#include "tensor/suggest.hpp"
#include "train/cli.hpp"
#include "train/version.hpp"

namespace skytape::train {
namespace {

void print_build() {
  const nlohmann::json machine = machine_facts();
  fmt::print("{}machine   {}, {} cores, {:.1f} GB\n", build_facts(),
             machine["cpu"].get<std::string>(), machine["cores"].get<int>(),
             1e-9 * static_cast<double>(machine["memory_bytes"].get<std::int64_t>()));
  fmt::print("devices   cpu{}\n", cuda_available() ? ", cuda" : "");
}

void print_methods() {
  for (const attention::Spec& spec : attention::registry()) {
    fmt::print("{:<16} {} [{}]\n", spec.name, spec.idea, spec.paper);
    fmt::print("{:<16} cost {}; memory {}{}{}{}\n", "", spec.cost, spec.memory,
               spec.random ? "; random" : "", spec.reads_padding ? "; reads padding" : "",
               spec.per_example ? "" : "; couples the batch");
    for (const attention::OptionInfo& option : spec.options) {
      fmt::print("    {:<28} {:<12} {:<24} {}\n", spec.name + "." + option.key, option.default_text,
                 option.range, option.meaning);
    }
  }
}

void print_recipes() {
  for (const RecipeInfo& recipe : recipes()) fmt::print("{:<12} {}\n", recipe.name, recipe.idea);
  fmt::print("\n{:<18} {:<34} {}\n", "key", "range", "meaning");
  for (const KeyInfo& key : recipe_keys()) {
    fmt::print("{:<18} {:<34} {}\n", key.key, range_of(key), key.meaning);
  }
}

void print_tasks() {
  fmt::print("{:<12} {:>7} {:>10} {:>6} {:>6}  {}\n", "task", "classes", "vocabulary", "length",
             "towers", "what");
  for (const data::TaskInfo& task : data::tasks()) {
    fmt::print("{:<12} {:>7} {:>10} {:>6} {:>6}  {}{}\n", task.name, task.classes, task.vocabulary,
               task.nominal_length, task.towers, task.description,
               task.generable ? " (generated)" : "");
  }
}

int run(const std::string& what) {
  if (what.empty() || what == "build") {
    print_build();
  } else if (what == "attention") {
    print_methods();
  } else if (what == "recipes") {
    print_recipes();
  } else if (what == "tasks") {
    print_tasks();
  } else {
    throw UsageError(unknown_name("topic", what, {"build", "attention", "recipes", "tasks"}));
  }
  return 0;
}

}  // namespace

void add_info(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("info", "facts: build, attention, recipes or tasks");
  const auto what = std::make_shared<std::string>();
  command->add_option("topic", *what, "build (default), attention, recipes or tasks");
  command->callback([what, &exit_code] { exit_code = run(*what); });
}

}  // namespace skytape::train
