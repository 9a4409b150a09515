// Weights of classes: the numbers, and that they change a run's training and no evaluation of it.
#include "train/run/class_weights.hpp"

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/program.hpp"

using namespace skytape;
using namespace skytape::train;
using namespace skytape::test;
using data::synthetic::error_of;
using data::synthetic::Folder;
using data::synthetic::read_file;

TEST_CASE("balanced weights make each class worth as much, given ones are scaled to a mean of 1") {
  const Folder folder;
  const data::Dataset train = data::synthetic::split_of(
      folder, {{1}, {1}, {1}, {1}, {1}, {1}, {1}, {1}, {1}});  // labels 0 1 0 1 0 1 0 1 0
  CHECK(class_weights("none", train).empty());
  const std::vector<double> balanced = class_weights("balanced", train);
  REQUIRE(balanced.size() == 2);
  CHECK(balanced[0] == doctest::Approx(9.0 / (2 * 5)));
  CHECK(balanced[1] == doctest::Approx(9.0 / (2 * 4)));
  const std::vector<double> given = class_weights("1,3", train);
  CHECK(given[1] == doctest::Approx(3 * given[0]));
  CHECK(5 * given[0] + 4 * given[1] == doctest::Approx(9));
  CHECK(class_weights("2,2", train) == std::vector<double>{1, 1});
  const data::Dataset one = train.slice(0, 1);  // no example of class 1
  CHECK(class_weights("balanced", one) == std::vector<double>{1, 0});
  CHECK(error_of<UsageError>([&] { (void)class_weights("0,1", one); }) ==
        "class_weights: 0,1 leaves no training example that counts");
  for (const char* wrong :
       {"1", "1,2,3", "1,-1", "1,,2", "1,2,", "", "even", "0,0", "1,inf", "nan,1"}) {
    CAPTURE(wrong);
    CHECK(error_of<UsageError>([&] {
            (void)class_weights(wrong, train);
          }).find("class_weights: ") == 0);
  }
}

TEST_CASE("class weights let a rare class be found, and are said in result.json") {
  if (!program_or_skip()) return;
  const Folder folder;
  // The text says nothing: only what an example's loss is worth decides.
  std::string rows;
  for (int i = 0; i < 80; ++i) rows += i % 8 == 0 ? "rare\tsame words\n" : "usual\tsame words\n";
  const std::string data = (folder.path() / "data").string();
  REQUIRE(run_program(folder.path(),
                      {"data", "--task", "tsv", "--from", folder.write("own.tsv", rows).string(),
                       "--stratify", "--data", data})
              .code == 0);
  const auto result_with = [&](const std::string& weights) {
    const std::string run = (folder.path() / ("run" + weights)).string();
    std::vector<std::string> arguments = {
        "train", "--task",   "tsv", "--data",    data, "--out",
        run,     "--steps",  "60",  "--batch",   "8",  "--attention",
        "vmean", "--device", "cpu", "--threads", "1"};
    for (const std::string set :
         {"max_length=16", "width=8", "ff_width=8", "lr=0.01", "dropout=0", "eval_every=60"}) {
      arguments.insert(arguments.end(), {"--set", set});
    }
    arguments.insert(arguments.end(), {"--set", "class_weights=" + weights});
    const Finished end = run_program(folder.path(), arguments);
    CAPTURE(end.err);
    REQUIRE(end.code == 0);
    return data::parse_json(read_file(std::filesystem::path(run) / "result.json"));
  };
  const auto recall = [](const data::Json& result) {  // of `rare`
    return result["test_scores"]["classes"][0]["recall"].get<double>();
  };
  const data::Json none = result_with("none"), heavy = result_with("100,1");
  CHECK(none["test_scores"]["classes"][0]["name"] == data::Json("rare"));
  CHECK_FALSE(none.contains("class_weights"));
  CHECK(recall(none) == 0);
  CHECK(recall(heavy) == 1);
  REQUIRE(heavy["class_weights"].size() == 2);
  CHECK(heavy["class_weights"][0].get<double>() ==
        doctest::Approx(100 * heavy["class_weights"][1].get<double>()));
  // An accuracy has no weights: all of the few `rare` ones are right.
  CHECK(heavy["test_accuracy"].get<double>() ==
        doctest::Approx(1 - heavy["test_scores"]["majority_share"].get<double>()));
}
