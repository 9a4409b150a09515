// What is added in two places is missed in neither: methods, tasks, and the header that tests use.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "attention/registry.hpp"
#include "data/task.hpp"
#include "tests/support/doctest.hpp"

namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// First groups of all matches in the sources below `folder`, with the file of each.
std::map<std::string, std::string> defined_in(const fs::path& folder, const std::string& pattern) {
  const std::regex expression(pattern, std::regex::multiline);
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".cpp") continue;
    const std::string text = text_of(entry.path());
    for (std::sregex_iterator at(text.begin(), text.end(), expression), end; at != end; ++at) {
      found[(*at)[1]] = entry.path().string();
    }
  }
  return found;
}

const std::set<std::string> kMethods = {
#define METHOD(name) #name,
#include "attention/methods.def"
#undef METHOD
};
const std::set<std::string> kTasks = {
#define TASK(name) #name,
#include "data/tasks.def"
#undef TASK
};

}  // namespace

TEST_CASE("every method has its line in attention/methods.def, under its own name") {
  const auto defined = defined_in("attention/methods", R"(^Spec (\w+)_spec\(\) \{)");
  REQUIRE_MESSAGE(!defined.empty(), "run the tests from the repository's root");
  for (const auto& [name, file] : defined) {
    CHECK_MESSAGE(kMethods.contains(name), file, " defines ", name,
                  "_spec(), but attention/methods.def has no line METHOD(", name, ")");
  }
  for (const std::string& name : kMethods) CHECK(skytape::attention::find(name).name == name);
}

TEST_CASE("every method says what the registry's readers need") {
  for (const skytape::attention::Spec& spec : skytape::attention::registry()) {
    CAPTURE(spec.name);
    for (const std::string* text : {&spec.paper, &spec.idea, &spec.cost, &spec.memory}) {
      CHECK_FALSE(text->empty());
    }
    CHECK_FALSE(spec.samples.empty());
    CHECK_MESSAGE(static_cast<bool>(spec.make), spec.name, ": Spec::make is missing");
    CHECK_MESSAGE(static_cast<bool>(spec.cost_at), spec.name, ": Spec::cost_at is missing");
  }
}

TEST_CASE("every task has its line in data/tasks.def") {
  const auto defined = defined_in("data/tasks", R"(^TaskInfo (\w+)_task\(\) \{)");
  REQUIRE_MESSAGE(!defined.empty(), "run the tests from the repository's root");
  for (const auto& [name, file] : defined) {
    CHECK_MESSAGE(kTasks.contains(name), file, " defines ", name,
                  "_task(), but data/tasks.def has no line TASK(", name, ")");
  }
}

TEST_CASE("every task says what its readers need") {
  using skytape::data::TokenKind;
  for (const skytape::data::TaskInfo& task : skytape::data::tasks()) {
    CAPTURE(task.name);
    CHECK_FALSE(task.description.empty());
    CHECK_MESSAGE((task.build != nullptr), task.name, ": TaskInfo::build is missing");
    CHECK(task.max_length > 0);
    CHECK(task.nominal_length >= task.max_length);
    CHECK((task.nominal_length & (task.nominal_length - 1)) == 0);  // a power of two
    const bool symbols = task.tokens == TokenKind::symbols, parser = task.parse != nullptr;
    CHECK_MESSAGE(symbols == parser, task.name, ": TaskInfo::tokens says ",
                  std::string(symbols ? "symbols" : "no symbols"), ", but TaskInfo::parse is ",
                  std::string(parser ? "there" : "missing"));
    // Id 0 is padding, but for pictures, whose pixels may have any value and whose length is one.
    if (task.tokens == TokenKind::bytes) CHECK(task.token_offset == 1);
    if (task.tokens == TokenKind::pixels) CHECK(task.token_offset == 0);
    CHECK(task.vocabulary >= (task.tokens == TokenKind::symbols ? 1 : 256));
  }
}

TEST_CASE("tests use the doctest that shows what it compares") {
  for (const auto& entry : fs::recursive_directory_iterator("tests")) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".cpp" && extension != ".hpp") continue;
    if (entry.path() == "tests/support/doctest.hpp") continue;
    CHECK_MESSAGE(text_of(entry.path())
                          .find("#include <doctest"
                                "/doctest.h>") == std::string::npos,
                  entry.path().string(), ": include tests/support/doctest.hpp instead");
  }
}
