// Files that appear whole, behind links too, and pipes that are written to.
#include "data/files/output.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <thread>

#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape::data;
using namespace skytape::data::synthetic;

namespace fs = std::filesystem;

TEST_CASE("an output behind links is the links' target, and the links stay") {
  const Folder folder;
  const fs::path target = folder.write("real/out.json", "old");
  fs::create_symlink("real/out.json", folder.path() / "one");
  fs::create_symlink(folder.path() / "one", folder.path() / "two");
  fs::create_symlink("real/new.json", folder.path() / "to nothing");
  write_file(folder.path() / "two", "new");
  write_file(folder.path() / "to nothing", "made");
  CHECK(read_file(target) == "new");
  CHECK(read_file(folder.path() / "real/new.json") == "made");
  for (const char* link : {"one", "two", "to nothing"}) {
    CHECK(fs::is_symlink(folder.path() / link));
  }
  { OutputFile(folder.path() / "two").write("never"); }  // not committed
  CHECK(read_file(target) == "new");
  const auto files = fs::directory_iterator(folder.path() / "real");
  CHECK(std::distance(begin(files), end(files)) == 2);  // out.json, new.json
}

TEST_CASE("a folder that is not committed leaves nothing") {
  const Folder folder;
  { OutputFolder(folder.path() / "out").write("in/file", "never"); }
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("a full disk is an error, also where it is full at the last byte") {
  CHECK(error_of([] {
          write_file("/dev/full", "x");
        }).starts_with("/dev/full: cannot write to it: "));
}

TEST_CASE("a pipe is written to, and no file takes its place") {
  const Folder folder;
  const fs::path pipe = folder.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::string got;
  std::thread reader([&] { got = read_file(pipe); });
  write_file(pipe, "through it");
  reader.join();
  CHECK(got == "through it");
  CHECK(fs::is_fifo(pipe));
}
