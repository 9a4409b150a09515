// The output of long work for a person, and the words of numbers.
#include "train/process/progress.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::Folder;
using data::synthetic::read_file;

namespace {

/// Returns the text that `work` writes to standard error.
template <class F> std::string said_by(const F& work) {
  const Folder folder;
  const std::string file = (folder.path() / "stderr.txt").string();
  const int before = ::dup(STDERR_FILENO), to = ::open(file.c_str(), O_WRONLY | O_CREAT, 0644);
  REQUIRE(before >= 0);
  REQUIRE(to >= 0);
  ::dup2(to, STDERR_FILENO);
  work();
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  ::close(to);
  return read_file(file);
}

}  // namespace

TEST_CASE("long work says in a pipe how far it is, when nothing else was said for a while") {
  using std::chrono::milliseconds;
  CHECK(said_by([] {
          Progress progress(false, false, milliseconds(0));
          progress.at("test", 1000, 2000);
          progress.at("reading", 3, 0);
        }) == "test 1,000/2,000\nreading 3\n");
  CHECK(said_by([] {
          Progress progress(false, false);
          progress.line("a line");
          progress.at("test", 1000, 2000);
        }) == "a line\n");
}

TEST_CASE("one thing is counted without an s") {
  CHECK(counted(1, "thread") == "1 thread");
  CHECK(counted(0, "thread") == "0 threads");
  CHECK(counted(1024, "core") == "1,024 cores");
}
