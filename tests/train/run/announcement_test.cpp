#include "train/run/announcement.hpp"

#include <cstdlib>
#include <optional>

#include "tests/support/doctest.hpp"
#include "train/run/open_run.hpp"

using namespace skytape::train;

namespace {

/// The environment as the test wants it, until its end.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace

TEST_CASE("a run on a busy machine says how its threads may wait, unless that is chosen") {
  const Variable policy("OMP_WAIT_POLICY", nullptr), spins("GOMP_SPINCOUNT", nullptr);
  const std::string text = other_load_text(2, 2, 3.25);
  CAPTURE(text);
  CHECK(text.find("load 3.2, 2 cores") != text.npos);
  CHECK(text.find("OMP_WAIT_POLICY=passive") != text.npos);
  CHECK_FALSE(other_load_text(2, 2, 1).empty());
  CHECK(other_load_text(2, 2, 0.9).empty());  // room for all
  CHECK(other_load_text(2, 16, 8).empty());
  CHECK(other_load_text(1, 2, 30).empty());  // waits for nobody
  const Variable chosen("OMP_WAIT_POLICY", "active");
  CHECK(other_load_text(2, 2, 30).empty());
}
