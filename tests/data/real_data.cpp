#include "tests/data/real_data.hpp"

#include <cstdlib>

#include "tests/support/doctest.hpp"

namespace skytape::data::synthetic {

std::optional<std::filesystem::path> real_data_or_skip(const std::string& part) {
  const char* const root = std::getenv("SKYTAPE_DATA");
  if (root != nullptr && std::filesystem::exists(std::filesystem::path(root) / part)) {
    return std::filesystem::path(root) / part;
  }
  MESSAGE("skipped: no real data: SKYTAPE_DATA does not name a folder that holds " << part);
  return {};
}

}  // namespace skytape::data::synthetic
