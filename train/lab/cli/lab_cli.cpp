#include "train/lab/cli/lab_cli.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "tensor/core/error.hpp"
#include "train/lab/studies/attention_inputs.hpp"

namespace skytape::train {

void add_lab_commands(const Command& program) {
  add_bench(program);
  add_lra(program);
  add_report(program);
  add_goldens(program);
  add_approx(program);
  add_spectrum(program);
  add_theory(program);
  add_cost(program);
  add_stability(program);
  add_matrix(program);
  add_mlm_curves(program);
}

void add_size(const Command& command, std::string& size, int& layers) {
  command.add_option("--size", size,
                     "model: papers (2 layers of width 64), minilm (6 of 384, 12 heads) or "
                     "bert-base, also RoBERTa-base's (12 of 768, 12 heads)");
  command.add_option("--layers", layers, "layers in place of the size's; 0: as many as it has")
      .between(0, 1024);
}

void SourceFlags::declare(const Command& of) {
  command = of;
  of.add_option("--from", from, "fresh: an untrained model on random bytes, the default");
  of.add_option("--recipe", recipe,
                "of the fresh model, for task text; skyformer: the model of the papers");
  of.add_option("--run", run, "run folder: its model on the test split of its task");
  of.add_option("--model", model, "folder of a BERT or RoBERTa encoder, on the texts of --text");
  of.add_option("--text", text, "file with one text a line");
  of.add_flag("--untrained", untrained,
              "the encoder with BERT's initial weights from --seed; FOLDER needs none");
  of.add_option("--qkv", qkv, "FILE.safetensors with q, k, v, or Q.npy,K.npy,V.npy");
  of.add_option("--checkpoint", checkpoint, "of the run: best or last");
  of.add_option("--data", data, "folder of prepared data sets; default: the run's");
  of.add_option("--seed", seed, "of initial values and draws");
}

InputSource SourceFlags::open(const std::vector<std::int64_t>& lengths) const {
  if (std::ranges::count(std::array{from.empty(), run.empty(), model.empty(), qkv.empty()}, false) >
      1) {
    throw UsageError("give one of --from fresh, --run DIR, --model FOLDER and --qkv FILE");
  }
  if (model.empty() != text.empty()) {
    throw UsageError("--model FOLDER, an encoder, and --text FILE, its texts, go together");
  }
  if (!from.empty() && from != "fresh") {
    throw UsageError(fmt::format("--from: expected fresh, got '{}' (did you mean --run?)", from));
  }
  for (const char* flag : {"--data", "--checkpoint"}) {
    if (run.empty() && command.count(flag) > 0) {
      throw UsageError(fmt::format("{} has no effect without --run", flag));
    }
  }
  if (untrained && model.empty()) throw UsageError("--untrained has no effect without --model");
  if (command.count("--recipe") > 0 && !(run.empty() && model.empty() && qkv.empty())) {
    throw UsageError(
        "--recipe is the fresh model's: it has no effect with --run, --model or --qkv");
  }
  if (!run.empty()) return run_inputs(run, checkpoint, data);
  if (!model.empty()) {
    return encoder_inputs(model, text, untrained ? std::optional(seed) : std::nullopt);
  }
  if (!qkv.empty()) return file_inputs(qkv);
  constexpr std::int64_t kUsualLongest = 4096;
  return fresh_inputs(
      recipe, seed,
      lengths.empty() ? kUsualLongest : *std::max_element(lengths.begin(), lengths.end()));
}

}  // namespace skytape::train
