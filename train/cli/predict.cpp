#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>

#include "data/tokenise.hpp"
#include "tensor/core/error.hpp"
#include "train/cli/cli.hpp"
#include "train/process/version.hpp"
#include "train/runs/saved_model.hpp"
#include "train/step/step_inputs.hpp"

namespace skytape::train {
namespace {

struct PredictFlags {
  std::string folder, checkpoint = "best", from, device = "auto";
  int threads = 0;
};

/// The class with the highest score for each example, printed one a line.
void print_labels(const SavedModel& saved, const std::vector<data::Tokens>& examples,
                  std::int64_t first_example) {
  const data::Batch batch = data::pad(examples, saved.config.batches);
  const Feed feed = upload(batch, whole(batch), saved.config.device);
  nn::StepContext context;
  // As Evaluator draws.
  context.random = {saved.config.seed, Tensor::full({1}, static_cast<double>(first_example),
                                                    DType::i32, saved.config.device)};
  context.fewest_tokens = feed.fewest_tokens;
  Tape tape(Tape::Mode::eval);
  const Tensor logits = saved.model->logits(tape, feed.input, context).value();  // [B, C]
  const std::vector<double> scores = logits.to_vector();
  const std::int64_t classes = logits.size(1);
  for (std::int64_t b = 0; b < batch.size; ++b) {
    const auto row = scores.begin() + b * classes;
    fmt::print("{}\n", std::max_element(row, row + classes) - row);
  }
}

int run(const PredictFlags& flags) {
  set_threads(flags.threads);
  const SavedModel saved = load_run(flags.folder, flags.checkpoint, parse_device(flags.device));
  const bool piped = flags.from == "-";
  std::ifstream file;
  if (!piped) file.open(flags.from);
  std::istream& in = piped ? std::cin : file;
  if (!in) throw DataError(fmt::format("{}: cannot open it", flags.from));

  const std::string shown = piped ? "standard input" : flags.from;
  std::vector<data::Tokens> examples;
  std::int64_t line_number = 0;
  std::int64_t done = 0;
  const auto flush = [&] {
    if (examples.empty()) return;
    print_labels(saved, examples, done);
    done += static_cast<std::int64_t>(examples.size());
    examples.clear();
  };
  for (std::string line; std::getline(in, line);) {
    ++line_number;
    if (line.ends_with('\r')) line.pop_back();
    if (line_number == 1 && line == "Source\tTarget") continue;  // header of the official files
    examples.push_back(
        data::tokenise(*saved.config.task, line, fmt::format("{}:{}", shown, line_number)));
    if (static_cast<std::int64_t>(examples.size()) == saved.config.microbatch()) flush();
  }
  flush();
  return 0;
}

}  // namespace

void add_predict(CommandLine& program) {
  Command command = program.command("predict", "print a label for each line of a file");
  const auto flags = std::make_shared<PredictFlags>();
  command.option("--run", flags->folder, "run folder").required();
  command.option("--from", flags->from, "file of examples, or - for standard input").required();
  command.option("--checkpoint", flags->checkpoint, "best or last").show_default();
  command.option("--device", flags->device, "auto, cpu or cuda").show_default();
  command.option("--threads", flags->threads, "CPU threads; 0: all cores").show_default();
  command.runs([flags] { return run(*flags); });
}

}  // namespace skytape::train
