// The summary of several seeds: of the finished ones, whatever was asked for.
#include "train/run/seeds.hpp"

#include "tests/support/contains.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/table_rows.hpp"

using namespace skytape;
using namespace skytape::train;
using test::contains;
using test::in_bars;

TEST_CASE("means, lowest and highest over seeds are those of the finished ones") {
  const auto result = [](double dev, double test, double seconds, double bytes) {
    return data::Json{{"dev_accuracy", dev},
                      {"test_accuracy", test},
                      {"train_seconds", seconds},
                      {"peak_bytes", bytes}};
  };
  const std::string table = in_bars(seed_table({{5, result(0.5, 0.25, 10, 300)},
                                                {6, {}},
                                                {7, result(0.75, 0.375, 30, 100)},
                                                {8, {}},
                                                {9, result(0.25, 0.5, 26, 200)}}));
  CAPTURE(table);
  CHECK(contains(table, "\n| 6 | - | - | - | - |\n"));
  CHECK(contains(table, "\n| 7 | 75.00 | 37.50 | 30.0 | 100 |\n"));
  CHECK(contains(table, "\n| mean | 50.00 | 37.50 | 22.0 | 200 |\n"));
  CHECK(contains(table, "\n| lowest | 25.00 | 25.00 | 10.0 | 100 |\n"));
  CHECK(table.ends_with("\n| highest | 75.00 | 50.00 | 30.0 | 300 |\n"));
  CHECK(contains(in_bars(seed_table({{3, {}}})), "\n| mean | - | - | - | - |\n"));
}
