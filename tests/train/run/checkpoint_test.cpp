// Checkpoints: a run's state among their metadata, and weights that must not be kept.
#include "train/run/checkpoint.hpp"

#include <cmath>

#include "data/files/json.hpp"
#include "nn/model.hpp"
#include "tensor/core/error.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/step/small_step.hpp"
#include "train/run/run_state.hpp"
#include "train/step/trainer.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::error_of;
using data::synthetic::Folder;
using data::synthetic::read_file;

TEST_CASE("weights that are not finite are never written as a checkpoint") {
  const Folder folder;
  const auto file = folder.path() / "last.safetensors";
  nn::Model model(test::small_model("softmax"), DType::f32, Device::cpu, 1);
  Trainer trainer(model, {}, {1e-3, 50, 5}, 1, {});
  save_checkpoint(file, model, trainer, {}, data::Json::object());
  const std::string good = read_file(file);
  model.parameters().parameters().front().value.fill(std::nan(""));
  const std::string text = error_of<NonFiniteError>(
      [&] { save_checkpoint(file, model, trainer, {}, data::Json::object()); });
  CHECK(text.find("last.safetensors keeps the last good state") != std::string::npos);
  CHECK(read_file(file) == good);
}

TEST_CASE("a run's state comes back from its text, number by number") {
  nn::Model model(test::small_model("softmax"), DType::f32, Device::cpu, 1);
  Trainer trainer(model, {}, {1e-3, 50, 5}, 1, {});
  RunState state;
  state.step = 11;
  state.cursor = {2, 3};
  state.evaluated = 10;
  state.best_metric = 0.625;
  state.best_step = 8;
  state.stale = 4;
  state.selecting = true;
  state.tokens = 12345;
  state.train_seconds = 1.5;
  state.waited_seconds = 0.25;
  state.peak_bytes = 1 << 20;
  state.reached.paper = Moment{7, 1.25, 999, 0.5};
  const RunState again = resume_state(state_text(state, trainer), trainer);
  CHECK(again.step == 11);
  CHECK(again.cursor.epoch == 2);
  CHECK(again.cursor.position == 3);
  CHECK(again.evaluated == 10);
  CHECK(again.best_metric == 0.625);
  CHECK(again.best_step == 8);
  CHECK(again.stale == 4);
  CHECK(again.selecting);
  CHECK(again.tokens == 12345);
  CHECK(again.train_seconds == 1.5);
  CHECK(again.waited_seconds == 0.25);
  CHECK(again.peak_bytes == 1 << 20);
  CHECK_FALSE(again.reached.trivial.has_value());
  CHECK_FALSE(again.reached.best.has_value());
  REQUIRE(again.reached.paper.has_value());
  CHECK(again.reached.paper->step == 7);
  CHECK(again.reached.paper->seconds == 1.25);
  CHECK(again.reached.paper->tokens == 999);
  CHECK(again.reached.paper->accuracy == 0.5);
}
