// The least memory of a run is compared with what models and runs take.
#include "train/run/memory_estimate.hpp"

#include "data/files/json.hpp"
#include "nn/model.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/workshop.hpp"
#include "train/run/run_folder.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::error_of;

namespace {

RunConfig config(const std::string& attention, std::vector<Setting> values = {}) {
  Choices choices;
  choices.attention = attention;
  choices.settings = std::move(values);
  return resolve(choices);
}

}  // namespace

TEST_CASE("the estimate counts a model's parameters four times, and activations by length") {
  for (const char* attention : {"vmean", "softmax", "linformer", "skyformer", "bigbird"}) {
    CAPTURE(attention);
    const RunConfig c = config(attention);
    nn::Model model(c.model, DType::f32, Device::cpu, 1);
    const auto exact = static_cast<double>(16 * model.parameters().parameter_count());
    const auto estimate = static_cast<double>(estimate_memory(c, 2000).parameters);
    CHECK(estimate > 0.9 * exact);
    CHECK(estimate < 1.1 * exact);
  }
  const RunConfig text = config("softmax", {{"max_length", "65536", "--set"}});
  const double short_texts = estimate_memory(text, 10000).activations;
  CHECK(estimate_memory(text, 60000).activations == 6 * short_texts);
  // Nothing is longer than max_length.
  CHECK(estimate_memory(text, 1 << 20).activations == estimate_memory(text, 65536).activations);
}

TEST_CASE("a run that cannot fit is refused, with the free memory") {
  const RunConfig large =
      config("softmax", {{"max_length", "16777216", "--set"}, {"width", "4096", "--set"}});
  const std::string text = error_of<UsageError>([&] { refuse_if_too_large(large, 2000); });
  CHECK(text.find("memory: at least ") == 0);
  CHECK(text.find("activations of examples of 2000 tokens ") != std::string::npos);
  CHECK(text.find("MB are free") != std::string::npos);
  CHECK(error_of([&] { refuse_if_too_large(config("softmax"), 2000); }).empty());
}

TEST_CASE("a batch in parts needs one more array of gradients, and every step one of a parameter") {
  const auto of = [](const char* batch, const char* parts) {
    return estimate_memory(config("vmean", {{"max_length", "262144", "--set"},
                                            {"batch", batch, "--set"},
                                            {"accumulate", parts, "--set"}}),
                           2000);
  };
  const MemoryEstimate whole = of("1", "1"), parts = of("3", "3");
  const double positions = 4.0 * 262144 * 64;  // bytes of the largest parameter
  CHECK(whole.sums == positions);
  CHECK(parts.parameters == whole.parameters);
  CHECK(parts.sums == whole.sums + parts.parameters / 4);
}

TEST_CASE("an estimate of more bytes than an integer holds refuses its run") {
  const RunConfig large = config("linformer", {{"max_length", "16777216", "--set"},
                                               {"width", "65536", "--set"},
                                               {"features", "65536", "--set"},
                                               {"heads", "1024", "--set"},
                                               {"layers", "256", "--set"},
                                               {"linformer.sharing", "none", "--set"}});
  CHECK(estimate_memory(large, 2000).bytes() > 9.3e18);
  CHECK(error_of<UsageError>([&] { refuse_if_too_large(large, 2000); }).find("memory: at least") ==
        0);
}

TEST_CASE("a run takes at least what was estimated, and not many times that") {
  if (!test::program_or_skip()) return;
  const test::Workshop w;
  for (const char* attention : {"vmean", "softmax", "skyformer"}) {
    CAPTURE(std::string(attention));
    const std::string run = w.run(attention).string();
    const test::Finished f = w.finish({"train",
                                       "--recipe",
                                       "skyformer",
                                       "--attention",
                                       attention,
                                       "--data",
                                       w.data.string(),
                                       "--out",
                                       run,
                                       "--steps",
                                       "3",
                                       "--set",
                                       "max_length=512",
                                       "--batch",
                                       "8",
                                       "--threads",
                                       "1",
                                       "--device",
                                       "cpu",
                                       "--set",
                                       "eval_examples=1"});
    REQUIRE_MESSAGE(f.code == 0, f.err);
    const RunConfig c = config_from_json(read_json(run + "/config.json"), run);
    const auto peak = read_json(run + "/result.json").at("peak_bytes").get<double>();
    // No expression is shorter than max_length, and one thread computes 8 of them at once.
    const auto estimate = static_cast<double>(estimate_memory(c, 2000).bytes());
    CAPTURE(estimate);
    CAPTURE(peak);
    CHECK(estimate < 1.05 * peak);
    CHECK(estimate > 0.25 * peak);
  }
}
