#include "train/lab/lra/finished_runs.hpp"

#include "tests/support/doctest.hpp"

using namespace skytape::train;

TEST_CASE(
    "the table of times has a row per run that noted them, and a dash for what was not passed") {
  FinishedRun noted;
  noted.task = "listops";
  noted.config = {{"settings", {{"conv_width", {{"value", "15"}}}}}};
  noted.attention = "skyformer";
  noted.settings = "skytape";
  noted.seed = 3;
  noted.test = 0.36;
  noted.test_examples = 2304;  // a standard error of exactly one per cent
  (void)noted.times.add("listops", trivial_baseline("listops"), {250, 90.0, 60'000, 0.38});
  FinishedRun pretrained = noted;
  pretrained.config["pretraining"] = {{"train_seconds", 720.0}};
  const Table table = time_table({FinishedRun(), noted, pretrained});
  REQUIRE(table.rows.size() == 2);
  const std::string text = to_text(table);
  CHECK(text.find("90 s, step 250, 0.1 M tokens") != std::string::npos);
  CHECK(table.rows[0][3].words == "a convolution of 15");
  CHECK(table.rows[1][3].words == "a convolution of 15, pre-training");
  CHECK(table.rows[0][6].words == "–");
  CHECK(table.rows[0][8].number == doctest::Approx(38));
  CHECK(table.rows[0][9].words == "36.0 ± 2.0");
  CHECK(table.rows[0][10].words == "–");
  CHECK(table.rows[1][10].words == "12 min");
}
