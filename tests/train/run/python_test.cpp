// A checkpoint taken elsewhere: train/scripts/logits.py computes the same class scores in NumPy.
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "autograd/tape.hpp"
#include "data/files/json.hpp"
#include "data/tokenise.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/close.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/program.hpp"
#include "train/config/keys.hpp"
#include "train/formats/safetensors.hpp"
#include "train/run/saved_model.hpp"
#include "train/step/step_inputs.hpp"

using namespace skytape;
using namespace skytape::test;
using data::synthetic::Folder;
using data::synthetic::read_file;

namespace {

/// Output of a command of the shell, and whether it ended well.
std::pair<std::string, bool> output_of(const std::string& command) {
  std::string text;
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  char part[256];
  for (std::size_t got; (got = std::fread(part, 1, sizeof part, pipe)) > 0;) text.append(part, got);
  return {text, ::pclose(pipe) == 0};
}

/// A Python that has NumPy; empty: there is none.
std::string python_with_numpy() {
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    if (output_of(std::string(python) + " -c 'import numpy'").second) return python;
  }
  return "";
}

}  // namespace

TEST_CASE("a script of NumPy alone reproduces the logits of a checkpoint") {
  if (!program_or_skip()) return;
  const std::string python = python_with_numpy();
  if (python.empty()) {
    MESSAGE("skipped: no python3 with numpy (python3-numpy)");
    return;
  }
  const Folder folder;
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += i % 2 ? "ham\tgreen apples\n" : "spam\tnasty, nasty\n";
  const std::string data = (folder.path() / "data").string();
  const std::string run = (folder.path() / "run").string();
  std::vector<std::string> shape = {"pooling=nominal", "positions=learned"};
  std::string kind = "bytes";
  SUBCASE("the papers' pooling and positions") {}
  SUBCASE("the mean of real tokens, rotary positions") {
    shape = {"pooling=mean", "positions=rotary"};
  }
  SUBCASE("words, by their numbers") { kind = "words"; }
  SUBCASE("a convolution, which it does not know") { shape.emplace_back("conv_width=3"); }
  const bool refuses = shape.size() > 2;
  REQUIRE(run_program(folder.path(),
                      {"data", "--task", "tsv", "--from", folder.write("own.tsv", rows).string(),
                       "--tokens", kind, "--data", data})
              .code == 0);
  // Steps long enough to leave the middle of GELU, where its two forms agree.
  std::vector<std::string> arguments = {"train", "--task",      "tsv",     "--data",   data,
                                        "--out", run,           "--steps", "300",      "--batch",
                                        "4",     "--attention", "softmax", "--device", "cpu"};
  for (const std::string set :
       {"max_length=24", "width=8", "ff_width=12", "lr=0.01", "dropout=0"}) {
    shape.push_back(set);
  }
  for (const std::string& set : shape) {
    arguments.insert(arguments.end(), {"--set", set});
  }
  const Finished trained = run_program(folder.path(), arguments);
  CAPTURE(trained.err);
  REQUIRE(trained.code == 0);

  const std::vector<std::string> texts = {"green", "nasty apples of some length", "\xC3\x84pfel"};
  const train::SavedModel saved = train::load_run(run, "best", Device::cpu);
  const std::string script = python + " train/scripts/logits.py " + run + "/best.safetensors";
  std::string command = script;
  std::vector<data::Tokens> examples;
  for (const std::string& text : texts) {
    examples.push_back(
        data::tokenise(*saved.config.task, saved.config.vocabulary.get(), text, "test"));
    std::string numbers;  // tokens without the offset of their ids
    for (const std::int32_t id : examples.back()[0]) numbers += std::to_string(id - 1) + " ";
    command += " '" + (kind == "bytes" ? text : numbers) + "'";
  }
  const auto [printed, ended_well] = output_of(command);
  CAPTURE(printed);
  CHECK(contains(printed, "logits.py: the model has model.transformer_0.conv.weight, ") == refuses);
  REQUIRE(ended_well != refuses);
  if (refuses) return;
  if (kind == "words") {
    const auto [refused, well] = output_of(script + " green");
    CHECK_FALSE(well);
    CHECK(contains(refused,
                   "logits.py: 'green': the run's tokens are words: expected their numbers"));
    CHECK(contains(output_of(script + " 99").first, "each of 0 to "));
  }
  // An option of a later version may change the arithmetic without a separate tensor, unless it is
  // off.
  const auto with_option = [&](const std::string& of_now, const std::string& newer) {
    std::string file = read_file(run + "/best.safetensors");
    const std::size_t at = file.find(of_now);
    REQUIRE(at != std::string::npos);
    const std::string path = folder.write("newer", file.replace(at, of_now.size(), newer)).string();
    return output_of(python + " train/scripts/logits.py " + path + command.substr(script.size()));
  };
  const auto [unknown, scored] = with_option("residual_scale", "residual_power");
  CHECK_FALSE(scored);
  CHECK(contains(unknown, "the model has residual_power 1.0, an option unknown here"));
  for (const char* off : {"label_smoothing", "token_types"}) {  // 0 and false
    const std::string newer(std::string_view(off).size(), 'x');
    CHECK(with_option(off, newer) == std::pair(printed, true));
  }
  for (const char* file : {"/nowhere", "/config.json"}) {
    const std::string text =
        output_of(python + " train/scripts/logits.py " + run + file + " x").first;
    CAPTURE(text);
    CHECK(contains(text, "logits.py: "));
    CHECK_FALSE(contains(text, "Traceback"));
  }
  const data::Batch batch = data::pad(examples, saved.config.batches);
  const train::DeviceBatch on_device = train::upload(batch, Device::cpu);
  nn::StepContext context;
  context.random = {saved.config.seed, Tensor::zeros({1}, DType::i32, Device::cpu)};
  context.fewest_tokens = on_device.fewest_tokens;
  Tape tape(Tape::Mode::eval);
  const std::vector<double> expected =
      saved.model->logits(tape, on_device.input, context).value().to_vector();  // [3, 2]

  CHECK(std::abs(expected[0] - expected[2]) > 0.1);  // the texts make a difference

  std::istringstream lines(printed);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::string label;
    double scores[2] = {};
    lines >> label >> scores[0] >> scores[1];
    CAPTURE(texts[i]);
    CHECK(label == (expected[2 * i] > expected[2 * i + 1] ? "ham" : "spam"));
    for (std::size_t c = 0; c < 2; ++c) {
      const double error = std::abs(scores[c] - expected[2 * i + c]);
      CHECK(error <= 1e-6 * (1 + std::abs(expected[2 * i + c])));  // rounding in f32
    }
  }
}

TEST_CASE("a checkpoint says what its tensors do not show") {
  if (!program_or_skip()) return;
  const Folder folder;
  data::synthetic::small_listops(folder.path() / "data", 60);
  const std::string run = (folder.path() / "run").string();
  const Finished trained = run_program(folder.path(), {"train",
                                                       "--task",
                                                       "listops",
                                                       "--data",
                                                       (folder.path() / "data").string(),
                                                       "--out",
                                                       run,
                                                       "--steps",
                                                       "4",
                                                       "--batch",
                                                       "2",
                                                       "--attention",
                                                       "linformer",
                                                       "--features",
                                                       "8",
                                                       "--set",
                                                       "max_length=32",
                                                       "--set",
                                                       "width=8",
                                                       "--set",
                                                       "ff_width=8",
                                                       "--set",
                                                       "pooling=max",
                                                       "--device",
                                                       "cpu"});
  CAPTURE(trained.err);
  REQUIRE(trained.code == 0);
  const auto file = train::read_safetensors(run + "/last.safetensors");
  const auto model = data::parse_json(file.metadata.at("skytape.config")).at("model");
  CHECK(model.at("tokens") == "symbols");
  CHECK(model.at("token_offset") == 0);
  CHECK(model.at("pooling") == "max");
  CHECK(model.at("heads") == 2);
  CHECK(model.at("head_width") == 4);
  CHECK(model.at("both_ends") == true);
  CHECK(model.at("nominal_length") == 32);
  CHECK(model.at("attention") == "linformer");
  CHECK(model.at("gelu") == "exact: x * (1 + erf(x / sqrt(2))) / 2");
  CHECK(model.at("layer_norm_epsilon") == 1e-5);
  // The page lists what is no setting; those `skytape info recipe` explains.
  const std::string page = read_file("train/run/checkpoint.md");
  for (const auto& [key, value] : model.items()) {
    if (train::find_key(key) != nullptr) continue;
    CHECK_MESSAGE(page.find("`" + key + "`") != std::string::npos, key,
                  " is not in train/run/checkpoint.md");
  }
}
