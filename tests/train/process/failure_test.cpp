#include "train/process/failure.hpp"

#include <system_error>

#include "tests/support/doctest.hpp"

using namespace skytape;

TEST_CASE("a thread that a limit of the system forbids is named") {
  const auto limit = std::make_error_code(std::errc::resource_unavailable_try_again);
  CHECK(train::describe(std::system_error(limit)) ==
        "cannot start a thread: Resource temporarily unavailable");
}
