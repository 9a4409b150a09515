// An environment in which no other program is found: a machine without gnuplot.
#pragma once

#include <stdlib.h>

#include <string>

namespace skytape::test {

/// PATH without any program, until the end of the test.
class NoPrograms {
 public:
  NoPrograms() : before_(::getenv("PATH")) { ::setenv("PATH", "/nonexistent", 1); }
  ~NoPrograms() { ::setenv("PATH", before_.c_str(), 1); }
  NoPrograms(const NoPrograms&) = delete;
  NoPrograms& operator=(const NoPrograms&) = delete;

 private:
  std::string before_;
};

}  // namespace skytape::test
