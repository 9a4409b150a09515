// Every key is one row; whoever reads the rows reads all of them.
#include "train/config/keys.hpp"
#include "train/config/identity.hpp"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/workshop.hpp"
#include "train/config/run_config.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::error_of;

namespace {

/// Configurations of runs in which, taken together, every key has an effect.
std::vector<data::Json> saved_runs() {
  std::vector<data::Json> runs;
  for (const char* task : {"listops", "text", "image"}) {
    for (const char* attention : {"skyformer", "softmax"}) {
      Choices choices;
      choices.task = task;
      choices.attention = attention;
      runs.push_back(to_json(resolve(choices)));
    }
  }
  return runs;
}

/// A legal value that is not `value`.
std::string other_value(const KeyInfo& key, const std::string& value) {
  if (key.range.kind == KeyKind::flag) return value == "1" ? "0" : "1";
  if (key.range.kind == KeyKind::choice) {
    const std::string first(key.range.choices.substr(0, key.range.choices.find('|')));
    const std::string last(key.range.choices.substr(key.range.choices.rfind('|') + 1));
    return value == first ? last : first;
  }
  if (key.range.kind == KeyKind::weights) return value == "none" ? "balanced" : "none";
  const std::string low = fmt::format("{}", key.range.low);
  return value == low ? fmt::format("{}", key.range.high) : low;
}

}  // namespace

TEST_CASE("a key has one row, with a legal default, a meaning and a member") {
  std::set<std::string_view> names, without_member;
  for (const KeyInfo& key : recipe_keys()) {
    CAPTURE(key.key);
    CHECK(names.insert(key.key).second);
    CHECK_FALSE(key.meaning.empty());
    if (!key.standard.empty()) CHECK_NOTHROW(check_value(key, std::string(key.standard)));
    if (key.fill == nullptr) without_member.insert(key.key);
    if (key.idle.key.empty()) continue;
    const KeyInfo* const other = find_key(key.idle.key);
    REQUIRE(other != nullptr);
    for (std::string_view values = key.idle.values; !values.empty();) {
      const std::string value(values.substr(0, values.find('|')));
      CHECK_NOTHROW(check_value(*other, value));
      values.remove_prefix(std::min(value.size() + 1, values.size()));
    }
  }
  // The method reads the first two, the device decides about the last.
  CHECK(without_member == std::set<std::string_view>{"features", "attention_dropout", "precision"});
}

TEST_CASE("every key stands in a run's config.json, and --resume refuses another value of it") {
  const std::vector<data::Json> runs = saved_runs();
  for (const KeyInfo& key : recipe_keys()) {
    const std::string name(key.key);
    CAPTURE(name);
    int found = 0;
    for (const data::Json& saved : runs) {
      if (!saved.at("settings").contains(name)) continue;
      ++found;
      data::Json wanted = saved;
      data::Json& value = wanted["settings"][name]["value"];
      value = other_value(key, value.get<std::string>());
      // The interval of checkpoints decides no number.
      const std::string said = differences(saved, wanted);
      CHECK(said.starts_with(name == "checkpoint_every" ? "" : name + ": "));
      CHECK(said.empty() == (name == "checkpoint_every"));
      CHECK(differences(saved, saved).empty());
    }
    CHECK(found > 0);
  }
}

TEST_CASE("info recipe explains every key, and prints a recipe that reads back as itself") {
  if (!test::program_or_skip()) return;
  const test::Workshop w;
  const test::Finished keys = w.finish({"info", "recipe"});
  REQUIRE(keys.code == 0);
  for (const KeyInfo& key : recipe_keys()) {
    const std::string begin = "\n" + std::string(key.key) + " ";
    const std::size_t line = keys.out.find(begin);
    CHECK_MESSAGE(line != std::string::npos, key.key);
    const std::string text = keys.out.substr(line + 1, keys.out.find('\n', line + 1) - line - 1);
    for (const std::string& part :
         {range_of(key), std::string(key.standard), std::string(key.meaning)}) {
      CHECK_MESSAGE(test::contains(text, part), text);
    }
  }
  const test::Finished printed = w.finish({"info", "recipe", "skyformer"});
  REQUIRE(printed.code == 0);
  Choices choices;
  const Recipe again = parse_recipe("skyformer", printed.out, "printed");
  choices.recipe = "skyformer";
  CHECK(to_json(resolve(choices, again)) == to_json(resolve(choices)));
}
