// Pages of results, held against the files that they come from.
#include <filesystem>
#include <regex>
#include <string>

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using data::synthetic::read_file;

TEST_CASE("a page says which of its runs come from a program with uncommitted changes") {
  std::size_t seen = 0;
  for (const auto& page : std::filesystem::directory_iterator("train/results")) {
    if (page.path().extension() != ".md") continue;
    const std::string text = read_file(page.path());
    const std::regex link(R"(\((runs/[^/)]+)/[^)]*\))");
    for (std::sregex_iterator i(text.begin(), text.end(), link), end; i != end; ++i) {
      const auto folder = page.path().parent_path() / (*i)[1].str();
      if (!std::filesystem::exists(folder / "config.json")) continue;
      for (const char* file : {"config.json", "result.json"}) {
        if (!std::filesystem::exists(folder / file)) continue;
        const std::string revision =
            data::parse_json(read_file(folder / file)).value("revision", "");
        if (!revision.ends_with("-dirty")) continue;
        ++seen;
        CAPTURE(page.path().string());
        CAPTURE(folder.string());
        CHECK(test::contains(text, revision));
      }
    }
  }
  CHECK(seen > 0);
}
