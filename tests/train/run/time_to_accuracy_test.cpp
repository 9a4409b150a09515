#include "train/run/time_to_accuracy.hpp"

#include <algorithm>

#include "data/files/json.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape::train;
using skytape::data::Json;

TEST_CASE("the first evaluation above each bar counts, and of equal ones the earlier is the best") {
  TimeToAccuracy times;
  CHECK(times.add("listops", trivial_baseline("listops"), {100, 10.0, 1000, 0.362})
            .empty());  // at the bar, not above it
  CHECK_FALSE(times.trivial.has_value());
  const std::string lines =
      times.add("listops", trivial_baseline("listops"), {200, 20.0, 2000, 0.38});
  CHECK(lines.find("above 36.20 %, which the best label given the root operator alone reaches") !=
        std::string::npos);
  CHECK(lines.find("200 steps, 2,000 tokens") != std::string::npos);
  CHECK(times.add("listops", trivial_baseline("listops"), {300, 30.0, 3000, 0.37}).empty());
  CHECK(times.add("listops", trivial_baseline("listops"), {400, 40.0, 4000, 0.40})
            .find("39.25 %, the papers' best result") != std::string::npos);
  CHECK(times.add("listops", trivial_baseline("listops"), {500, 50.0, 5000, 0.40}).empty());
  CHECK(times.trivial->step == 200);
  CHECK(times.paper->step == 400);
  CHECK(times.best->step == 400);
}

TEST_CASE("both bars may fall in one evaluation, and a task without bars has a best alone") {
  TimeToAccuracy times;
  const std::string lines = times.add("text", trivial_baseline("text"), {1, 1.0, 1, 0.9});
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 1);
  TimeToAccuracy own;
  CHECK(own.add("tsv", {}, {5, 2.0, 7, 0.9}).empty());
  const Json j = to_json(own);
  CHECK(j["trivial"].is_null());
  CHECK(j["paper"].is_null());
  CHECK(j["best"]["step"] == 5);
}

TEST_CASE("of custom data the bar is that of the evaluation's own examples") {
  TimeToAccuracy times;
  CHECK(times.add("tsv", {0.6, "the largest class alone"}, {5, 2.0, 7, 0.6}).empty());
  CHECK(times.add("tsv", {0.6, "the largest class alone"}, {6, 3.0, 8, 0.7}).find("60.00 %") !=
        std::string::npos);
  CHECK(to_json(times)["trivial"]["above"] == 0.6);
}

TEST_CASE("times to accuracy survive JSON and name their bars in a result") {
  TimeToAccuracy times;
  (void)times.add("listops", trivial_baseline("listops"), {200, 20.5, 2000, 0.38});
  const Json j = to_json(time_to_accuracy_from(to_json(times)));
  CHECK(j["trivial"] == Json{{"above", 0.362},
                             {"step", 200},
                             {"seconds", 20.5},
                             {"tokens", 2000},
                             {"accuracy", 0.38}});
  CHECK(j["paper"].is_null());
  CHECK(j["best"]["seconds"] == 20.5);
  CHECK_FALSE(j["best"].contains("above"));
  CHECK(to_json(time_to_accuracy_from(Json::object())) == to_json(TimeToAccuracy{}));
}
