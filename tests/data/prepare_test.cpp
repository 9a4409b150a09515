#include "data/prepare.hpp"

#include <array>
#include <cstdint>
#include <string>

#include "data/cache/cache.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::data;
using synthetic::error_of;

namespace {

/// A task whose build() says nothing about where its examples come from.
TaskInfo made_up_task(std::string_view generator) {
  TaskInfo task = find_task("text");
  task.name = "made_up";
  task.held_out = 0;
  task.generator = generator;
  task.build = [](const TaskInfo&, const PrepareOptions&, CacheSet& set) {
    for (const char* const split : kSplits) {
      for (const std::uint8_t label : {0, 1}) set.split(split).add(label, std::array{label});
    }
  };
  return task;
}

}  // namespace

TEST_CASE(
    "a task that is generated names its generator once, and another version's set is refused") {
  const synthetic::Folder folder;
  const TaskInfo task = made_up_task("made up, version 3");
  PrepareOptions options;
  options.data_seed = 7;
  REQUIRE(error_of([&] { prepare(task, folder.path(), options); }).empty());
  for (const char* const split : kSplits) {
    CHECK(open(task, folder.path(), split).provenance() ==
          R"({"data_seed":7,"generator":"made up, version 3","how":"generated"})");
  }
  const std::string refused =
      error_of([&] { (void)open(made_up_task("made up, version 4"), folder.path(), "dev"); });
  CHECK_MESSAGE(
      test::contains(refused, "made by 'made up, version 3', expected 'made up, version 4'"),
      refused);
}
