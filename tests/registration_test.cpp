// Nothing that must be added in two places is missing in one: methods, tasks, options of a model,
// and the header that tests use.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>

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
const std::set<std::string> kModelOptions = {
#define OPTION(type, key, ...) #key,
#include "nn/config/model_options.def"
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
    for (const auto& [field, text] :
         {std::pair("paper", &spec.paper), std::pair("idea", &spec.idea),
          std::pair("cost", &spec.cost), std::pair("memory", &spec.memory)}) {
      CHECK_MESSAGE(!text->empty(), spec.name, ": Spec::", field, " is missing");
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

TEST_CASE("every option of a model is read where models are made") {
  std::string sources;
  for (const auto& entry : fs::recursive_directory_iterator("nn")) {
    if (entry.path().extension() == ".cpp" || entry.path().extension() == ".hpp") {
      sources += text_of(entry.path());
    }
  }
  for (const std::string& key : kModelOptions) {
    CHECK_MESSAGE(std::regex_search(sources, std::regex("(\\.|->)" + key + "\\b")), key,
                  " of nn/config/model_options.def is read nowhere in nn/");
  }
}

TEST_CASE("tests compare in the open: no condition hides its values behind parentheses") {
  const std::regex hidden(R"(\b(CHECK|REQUIRE)(_FALSE)?\(\([^;]*\)\);)");
  // "(a == b) == c" begins with a parenthesis, too, and shows both sides: what counts is whether
  // the first one closes at the very end.
  const auto wraps_all = [](const std::string& text) {
    int depth = 0;
    for (std::size_t i = text.find("((") + 1; i < text.size(); ++i) {
      depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
      if (depth == 0) return text.compare(i, std::string::npos, "));") == 0;
    }
    return false;
  };
  for (const auto& entry : fs::recursive_directory_iterator("tests")) {
    if (entry.path().extension() != ".cpp") continue;
    const std::string text = text_of(entry.path());
    for (std::sregex_iterator at(text.begin(), text.end(), hidden), end; at != end; ++at) {
      CHECK_MESSAGE(!wraps_all(at->str()), entry.path().string(), ": ", at->str(),
                    " shows no values when it fails");
    }
  }
}

TEST_CASE("nothing counts the methods") {
  // Whoever adds a method edits no number: neither in a test nor on a page.
  const std::regex counted(
      R"(registry\(\)\.size\(\) *[=<>!]|\b(1[0-9]|2[0-9]|eighteen|nineteen|twenty) (attention )?methods\b)");
  std::set<fs::path> files;
  for (const char* folder : {"attention", "nn", "data", "train", "tests"}) {
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const std::string extension = entry.path().extension().string();
      const bool page = entry.path().filename() == "README.md";
      if (extension == ".cpp" || extension == ".hpp" || page) files.insert(entry.path());
    }
  }
  files.erase("train/python/README.md");       // beside README.md, which says it and is compared
  files.erase("tests/registration_test.cpp");  // which names what it looks for
  for (const fs::path& file : files) {
    const std::string text = text_of(file);
    std::smatch found;
    const bool counts = std::regex_search(text, found, counted);
    CHECK_MESSAGE(!counts, file.string(), ": '", counts ? found.str() : "",
                  "' counts the methods: the registry knows how many there are");
  }
}

TEST_CASE("README.md says how many methods there are") {
  const std::string count = std::to_string(skytape::attention::registry().size());
  for (const auto& [page, words] :
       {std::pair("README.md", "implements " + count + " attention methods"),
        std::pair("train/python/README.md", "any of " + count + " methods")}) {
    CHECK_MESSAGE(text_of(page).find(words) != std::string::npos, page, ": expected '", words,
                  "'; make readme writes it");
  }
}

TEST_CASE("tests use the doctest that shows what it compares") {
  for (const auto& entry : fs::recursive_directory_iterator("tests")) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".cpp" && extension != ".hpp") continue;
    if (entry.path() == "tests/support/doctest.hpp") continue;
    if (entry.path() == "tests/tour/00_whole.cpp") continue;  // has no header of ours
    CHECK_MESSAGE(text_of(entry.path())
                          .find("#include <doctest"
                                "/doctest.h>") == std::string::npos,
                  entry.path().string(), ": include tests/support/doctest.hpp instead");
  }
}
