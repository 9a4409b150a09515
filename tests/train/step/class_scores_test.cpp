// Precision, recall and F1 of classes, and what an evaluation counts for them.
#include "train/step/class_scores.hpp"

#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "data/files/json.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/unicode.hpp"

using namespace skytape;
using namespace skytape::train;
using test::contains;

namespace {

// Rows: labels; of the first class 6 of 8 are right, the second is never answered, of the third
// there is no example.
const std::vector<std::int64_t> kConfusion = {6, 0, 2,  //
                                              2, 0, 0,  //
                                              0, 0, 0};

}  // namespace

TEST_CASE("precision, recall and F1 of a class, and their mean over the classes with examples") {
  const std::vector<ClassScore> scores = class_scores(kConfusion);
  REQUIRE(scores.size() == 3);
  CHECK(scores[0].examples == 8);
  CHECK(scores[0].precision == doctest::Approx(0.75));
  CHECK(scores[0].recall == doctest::Approx(0.75));
  CHECK(scores[0].f1 == doctest::Approx(0.75));
  CHECK(scores[1].precision == 0);
  CHECK(scores[1].recall == 0);
  CHECK(scores[1].f1 == 0);
  CHECK(scores[2].examples == 0);
  CHECK(class_scores(std::vector<std::int64_t>{3, 1, 2, 4})[0].precision == doctest::Approx(0.6));
  CHECK(class_scores(std::vector<std::int64_t>{3, 1, 2, 4})[0].f1 == doctest::Approx(2.0 / 3));
  const ClassScore macro = macro_average(scores);
  CHECK(macro.examples == 10);
  CHECK(macro.recall == doctest::Approx(0.375));
  CHECK(macro.f1 == doctest::Approx(0.375));
  CHECK(majority_share(kConfusion) == doctest::Approx(0.8));
}

TEST_CASE("scores as JSON and as a table have the names of the classes") {
  const data::Json json = scores_json(kConfusion, {"neg", "pos", "odd"});
  CHECK(json["classes"][1]["name"] == data::Json("pos"));
  CHECK(json["confusion"] == data::parse_json("[[6, 0, 2], [2, 0, 0], [0, 0, 0]]"));
  CHECK(json["majority_share"].get<double>() == doctest::Approx(0.8));
  const std::string table = scores_table(kConfusion, {"neg", "pos", "odd"}, true);
  CHECK(contains(table, "neg                    8    0.7500    0.7500    0.7500\n"));
  CHECK(contains(table, "macro average         10"));
  CHECK(contains(table, "rows: the label, columns: the answer"));
  std::istringstream matrix(table.substr(table.find("the answer") + 10));
  const std::vector<std::string> words(std::istream_iterator<std::string>(matrix), {});
  CHECK(words == std::vector<std::string>{"neg", "pos", "odd",   //
                                          "neg", "6", "0", "2",  //
                                          "pos", "2", "0", "0",  //
                                          "odd", "0", "0", "0"});
  CHECK_FALSE(contains(scores_table(kConfusion, {"neg", "pos", "odd"}, false), "rows:"));
}

TEST_CASE("the tables tell classes apart whose names are long or not ASCII") {
  const std::vector<std::int64_t> confusion = {7, 1, 0, 2,  //
                                               0, 5, 3, 0,  //
                                               4, 0, 6, 0,  //
                                               0, 0, 1, 9};
  const std::string table = scores_table(
      confusion, {"\u00FCbel", "talk.politics.guns", "talk.politics.misc", "gut"}, true);
  CHECK(contains(table, "\u00FCbel                      10    0.6364    0.7000    0.6667\n"));
  CHECK(contains(table, "talk.politics.guns         8    0.8333    0.6250    0.7143\n"));
  CHECK(contains(table, "macro average             38"));
  CHECK(contains(table,
                 "                             \u00FCbel talk.po\u2026s.guns "
                 "talk.po\u2026s.misc            gut\n"));
  CHECK(contains(table, "talk.politics.misc              4              0              6"));
}

TEST_CASE("a column's name is cut no further than the names differ") {
  // The difference is in the middle, where the cut would be.
  const std::vector<std::string> names = {"comp.os.ms-windows.misc", "comp.os.ms-minuets.misc"};
  const std::string table = scores_table(std::vector<std::int64_t>{8, 1, 2, 3}, names, true);
  CAPTURE(table);
  const std::size_t matrix = table.find("rows:");
  const std::string titles = table.substr(table.find('\n', matrix) + 1);
  CHECK(contains(titles, "comp.os\u2026ws.misc comp.os\u2026ts.misc\n"));
}

TEST_CASE("a name in Chinese takes two terminal columns a character") {
  if (!test::unicode_or_skip()) return;
  const std::string table =
      scores_table(std::vector<std::int64_t>{2, 1, 0, 3}, {"\u597D", "\u574F\u4E8B"}, true);
  CHECK(contains(table, "\u597D                     3    1.0000    0.6667    0.8000\n"));
  CHECK(contains(table, "\u574F\u4E8B                   3    0.7500    1.0000    0.8571\n"));
  CHECK(contains(table, "                           \u597D           \u574F\u4E8B\n"));
}
