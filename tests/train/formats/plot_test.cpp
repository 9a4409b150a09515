#include "train/formats/plot.hpp"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

#include "attention/registry.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/no_programs.hpp"
#include "train/formats/looks.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::error_of;
using data::synthetic::Folder;
using data::synthetic::read_file;
using test::contains;

template <> struct doctest::StringMaker<Look> {
  static String convert(const Look& look) {
    return String(look.colour.c_str()) + " marker " + toString(look.marker) + " dash " +
           toString(look.dash) + " extra " + toString(look.extra);
  }
};

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Figure sample_figure() {
  LinePanel lines;
  lines.title = "n = 64, the user's";
  lines.x = {"features d (count)", Scale::log2, {}, {}};
  lines.y = {"error (spectral norm)", Scale::log10, 0.05, {}};
  lines.series.push_back({"skyformer", {8, 16, 32, 64}, {1, kNan, 0.1, 0}, {0.5, 0.1, 0.2, 0.1}});
  lines.series.push_back({"best rank d", {8, 16, 32}, {0.5, 0.25, 0.125}, {}});
  HeatMap map;
  map.title = "heat";
  map.x_label = "head";
  map.y_label = "layer";
  map.value_label = "share (1)";
  map.columns = {"0", "1"};
  map.rows = {"0", "1", "2"};
  map.values = {{0.1, 0.2}, {0.3, kNan}, {0.5, 0.6}};
  Figure figure;
  figure.name = "sample";
  figure.title = "A sample";
  figure.panels = {lines, map};
  return figure;
}

}  // namespace

TEST_CASE("without gnuplot a figure leaves data and script, missing values as gaps") {
  const Folder folder;
  const test::NoPrograms guard;
  const std::vector<Figure> figures = {sample_figure()};
  CHECK_FALSE(draw(folder.path() / "deep" / "er", figures));
  const auto at = folder.path() / "deep" / "er";
  const std::string numbers = read_file(at / "sample.dat");
  CHECK(contains(numbers, "8 1 0.5 1.5\n"));
  CHECK(
      contains(numbers, "1.5\nNaN NaN NaN NaN\n32 0.1 0.09 0.3\n"));  // the bar would reach below 0
  CHECK(contains(numbers, "0.3\nNaN NaN NaN NaN\n"));                 // zero has no logarithm
  CHECK(contains(numbers, "0 1 0.3\n1 1 NaN\n"));
  const std::string script = read_file(at / "sample.gp");
  CHECK(contains(script, "set xlabel 'features d (count)'"));
  CHECK(contains(script, "'n = 64, the user''s'"));
  CHECK(contains(script, "set logscale x 2"));
  CHECK(contains(script, "set xrange [*:*]"));
  CHECK(contains(script, "set yrange [0.05:*]"));
  CHECK(contains(script, "title 'best rank d'"));
  CHECK_FALSE(std::filesystem::exists(at / "sample.png"));
}

TEST_CASE("a series without points keeps its place among the data's blocks") {
  const Folder folder;
  const test::NoPrograms guard;
  LinePanel panel;
  panel.series = {{"empty", {}, {}, {}}, {"full", {1}, {2}, {}}};
  const std::vector<Figure> figures = {{"gap", "Gap", {panel}, 1}};
  CHECK_FALSE(draw(folder.path(), figures));
  CHECK(contains(read_file(folder.path() / "gap.dat"), "high\nNaN NaN NaN NaN\n\n\n# : full"));
  CHECK(contains(read_file(folder.path() / "gap.gp"), "'gap.dat' index 1 using"));
}

TEST_CASE("gnuplot draws lines, error bars, gaps, panels without data and heat maps") {
  if (std::system("command -v gnuplot > /dev/null") != 0) {
    MESSAGE("skipped: no gnuplot here");
    return;
  }
  const Folder folder;
  Figure figure = sample_figure();
  LinePanel empty = std::get<LinePanel>(figure.panels[0]);
  for (Series& s : empty.series) s.y.assign(s.y.size(), kNan);
  figure.panels.insert(figure.panels.begin(), empty);
  const std::vector<Figure> figures = {figure};
  CHECK(draw(folder.path(), figures));
  CHECK(read_file(folder.path() / "sample.png").starts_with("\x89PNG"));
  CHECK(contains(read_file(folder.path() / "sample.svg"), "best rank d"));
  // The script alone makes them again.
  std::filesystem::remove(folder.path() / "sample.png");
  REQUIRE(std::system(("cd " + folder.path().string() + " && gnuplot sample.gp").c_str()) == 0);
  CHECK(std::filesystem::exists(folder.path() / "sample.png"));
}

TEST_CASE("no two methods look alike, however many there are, and each always looks the same") {
  int position = 0;
  for (const attention::Spec& spec : attention::registry()) {
    CHECK(look_of(spec.name) == method_look(position++));
    CHECK(look_of(spec.name) == look_of(spec.name, 3));
  }
  constexpr int kMany = 400;
  std::vector<Look> looks;
  for (int i = 0; i < kMany; ++i) looks.push_back(method_look(i));
  for (int i = 0; i < kMany; ++i) looks.push_back(look_of("no method", i));
  for (const Look& look : looks) {
    CAPTURE(look);
    CHECK(std::count(looks.begin(), looks.end(), look) == 1);
  }
}

TEST_CASE("in a figure no two lines have one colour, methods and others") {
  const Folder folder;
  const test::NoPrograms guard;
  LinePanel panel;
  for (const char* name : {"trivial baseline", "papers' best", "a", "b", "c"}) {
    panel.series.push_back({name, {1}, {2}, {}});
  }
  for (const attention::Spec& spec : attention::registry()) {
    panel.series.push_back({spec.name, {1}, {2}, {}});
  }
  const std::vector<Figure> figures = {{"many", "Many", {panel}, 1}};
  (void)draw(folder.path(), figures);
  const std::string script = read_file(folder.path() / "many.gp");
  std::map<std::string, int> lines;  // of the legend, by colour
  for (std::size_t at = 0;
       (at = script.find("NaN with linespoints lc rgb '", at)) != script.npos;) {
    at = script.find('#', at);
    ++lines[script.substr(at, 7)];
  }
  CHECK(lines.size() == panel.series.size());
  for (const auto& [colour, count] : lines) CHECK_MESSAGE(count == 1, colour);
}

TEST_CASE("a series whose lists differ in length is refused by name") {
  const Folder folder;
  Figure figure = sample_figure();
  std::get<LinePanel>(figure.panels[0]).series[1].y.pop_back();
  const std::vector<Figure> figures = {figure};
  const std::string text = error_of([&] { (void)draw(folder.path(), figures); });
  CHECK(contains(text, "best rank d"));
  CHECK_FALSE(std::filesystem::exists(folder.path() / "sample.dat"));
}
