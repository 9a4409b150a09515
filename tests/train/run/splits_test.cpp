// The data of a run: made again as they were, and the length of what the model reads of them.
#include "train/run/splits.hpp"

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::Folder;

TEST_CASE("a run's data are generated again from what their provenance says, images too") {
  const Folder folder;
  const auto of = [](const data::TaskInfo& task, const std::filesystem::path& root) {
    return data::open(task, root, "train");
  };
  for (const char* name : {"listops", "pathfinder"}) {
    CAPTURE(name);
    const data::TaskInfo& task = data::find_task(name);
    data::PrepareOptions options;
    options.limit = 30;
    options.data_seed = 9;
    options.threads = 1;
    data::prepare(task, folder.path() / "first", options);
    const data::Dataset first = of(task, folder.path() / "first");
    Progress progress(false, false);
    progress.silence();
    ensure_prepared(task, folder.path() / "again", data::parse_json(first.provenance()), progress);
    const data::Dataset again = of(task, folder.path() / "again");
    CHECK(again.size() == first.size());
    CHECK(again.fingerprint() == first.fingerprint());
  }
}

TEST_CASE("the longest sequence of a split may be the second text of an example") {
  const Folder folder;
  data::CacheSet set("synthetic", folder.path() / "synthetic", 2, 0);
  set.classes = 2;
  data::CacheWriter& writer = set.split("train");
  const auto add = [&](int label, std::size_t first, std::size_t second) {
    const std::vector<std::uint8_t> one(first, 1), other(second, 2);
    const std::uint32_t both[] = {writer.add_document(one), writer.add_document(other)};
    writer.add_example(label, both);
  };
  add(0, 3, 5);
  add(1, 4, 7);
  add(0, 6, 2);
  set.commit();
  const data::Dataset split(
      data::CacheFile::open(data::cache_path(folder.path() / "synthetic", "train")));
  CHECK(split.longest() == 7);
  CHECK(split.slice(0, 1).longest() == 5);
}
