// The objective of a phase: its batches, and the words of its scores.
#include "train/run/objective.hpp"

#include <algorithm>

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::Folder;

namespace {

RunConfig pretraining(const char* task, std::vector<Setting> values = {}) {
  Choices choices;
  choices.task = task;
  choices.settings = std::move(values);
  choices.settings.push_back({"pretrain_steps", "100", "--set"});
  return pretraining_of(resolve(choices));
}

}  // namespace

TEST_CASE("scores are told in the words of what is learned") {
  const RunConfig task = resolve({});
  CHECK(scores_text(task, 2.12345, 0.175) == "loss 2.1235  accuracy 17.50 %");
  CHECK(objective_text(task).empty());
  const RunConfig symbols = pretraining("listops", {{"mask_span", "4", "--set"}});
  CHECK(scores_text(symbols, 0, 1) ==
        "masked loss 0.0000  perplexity 1.000  masked accuracy 100.00 %");
  CHECK(objective_text(symbols) ==
        "pre-training: 15 % of the tokens of train are hidden in runs of 4, and predicted");
  const RunConfig pixels = pretraining("image", {{"mask_rate", "0.5", "--set"}});
  CHECK(scores_text(pixels, 0.1, 0.25) ==
        "masked error 25.50 of 255 intensities  masked accuracy 25.00 %");
  CHECK(objective_text(pixels) ==
        "pre-training: 50 % of the pixels of train are hidden, and predicted");

  data::Json metric = {{"loss", 0.0}};
  add_objective(metric, task, 0);
  CHECK_FALSE(metric.contains("phase"));
  add_objective(metric, symbols, 0);
  CHECK(metric.at("phase") == "pretraining");
  CHECK(metric.at("perplexity") == 1.0);
  data::Json of_pixels = data::Json::object();
  add_objective(of_pixels, pixels, 0);
  CHECK_FALSE(of_pixels.contains("perplexity"));  // a number is predicted, no distribution
}

TEST_CASE("batches of pre-training hide other tokens in each epoch, and the same after a stop") {
  const Folder folder;
  const data::Dataset train =
      data::synthetic::split_of(folder, data::synthetic::sequences_of({40, 40, 40}));
  const RunConfig config = pretraining("listops", {{"batch", "3", "--set"}});
  const auto batches = [&](const RunConfig& run, data::Cursor start, int count) {
    const data::Loader::Fill fill = training_batches(run, train, start);
    std::vector<data::Batch> all(static_cast<std::size_t>(count));
    for (data::Batch& batch : all) CHECK(fill(batch));
    return all;
  };
  const std::vector<data::Batch> whole = batches(config, {}, 3);
  CHECK(std::count(whole[0].ids[0].begin(), whole[0].ids[0].end(), 31) == 18);  // of 3 x 40
  CHECK(whole[0].visits != whole[1].visits);
  CHECK(whole[0].target_at != whole[1].target_at);
  const std::vector<data::Batch> rest = batches(config, whole[0].after, 2);
  CHECK(rest[0].ids == whole[1].ids);
  CHECK(rest[1].ids == whole[2].ids);

  const data::Batch plain = batches(resolve({}), {}, 1)[0];
  CHECK(plain.targets == 0);
  CHECK(std::count(plain.ids[0].begin(), plain.ids[0].end(), 31) == 0);
}
