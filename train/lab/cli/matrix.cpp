#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>

#include "attention/registry.hpp"
#include "data/files/printable.hpp"
#include "data/tokenise.hpp"
#include "data/tokenisers/vocabulary.hpp"
#include "tensor/core/error.hpp"
#include "train/cli/cli.hpp"
#include "train/encoders/texts.hpp"
#include "train/lab/cli/lab_cli.hpp"
#include "train/lab/studies/attention_inputs.hpp"
#include "train/lab/studies/experiment.hpp"
#include "train/lab/studies/matrix.hpp"
#include "train/process/progress.hpp"
#include "train/process/threads.hpp"
#include "train/run/saved_model.hpp"
#include "train/step/trainer.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;

struct MatrixFlags {
  std::string run, model, sentence, checkpoint = "best", attention = "all", out = "runs/matrix";
  std::vector<std::string> set;
  std::int64_t n = 32, layer = -1;
  MatrixOptions options = {};
  int threads = 0;
  Command command;
};

/// The chosen one of the layers that were seen.
void choose_layer(const MatrixFlags& flags, const std::vector<LayerInputs>& seen,
                  MatrixText& text) {
  text.layer = check_layer(flags.layer, std::ssize(seen), text.model);
  text.in = seen[static_cast<std::size_t>(text.layer)].in;
}

/// Says that the sentence goes on where the model reads no more.
void say_cut(std::size_t tokens, std::size_t most, Progress& progress) {
  if (tokens > most) {
    progress.line(fmt::format("the first {} of {} tokens are read; --n reads more", most, tokens));
  }
}

MatrixText text_of_encoder(const MatrixFlags& flags, Progress& progress) {
  const Encoder encoder = load_encoder(flags.model, {DType::f64});
  const std::int64_t longest = std::min(flags.n, encoder.facts.longest());
  EncoderText text = read_text(encoder, flags.sentence, "--sentence", encoder.facts.longest());
  say_cut(text.ids.size(), static_cast<std::size_t>(longest), progress);
  if (static_cast<std::int64_t>(text.ids.size()) > longest) {
    text = read_text(encoder, flags.sentence, "--sentence", longest);
  }
  MatrixText result;
  result.model = fs::absolute(flags.model).lexically_normal().filename().string();
  for (const std::int32_t id : text.ids) result.tokens.push_back(encoder.vocabulary->entry(id));
  std::vector<LayerInputs> seen;
  nn::StepContext step;
  keep_in(seen, step);
  Tape tape(Tape::Mode::eval);
  const auto width = static_cast<std::int64_t>(text.ids.size());
  (void)encoder.model->encode(tape, pad_texts(encoder, {text}, 0, 1, width), step);
  choose_layer(flags, seen, result);
  return result;
}

/// Tokens as they are drawn: entries of a vocabulary, words of an expression, letters of a text.
std::vector<std::string> names_of(const RunConfig& config, const std::string& sentence,
                                  const std::vector<std::int32_t>& ids) {
  std::vector<std::string> names, words;
  std::istringstream in(sentence);
  for (std::string word; in >> word;) words.push_back(word);
  const bool symbols = config.task->tokens == data::TokenKind::symbols;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int32_t token = ids[i] - config.task->token_offset;
    if (config.vocabulary != nullptr) {
      names.push_back(config.vocabulary->entry(token));
    } else if (symbols) {
      names.push_back(i < words.size() ? words[i] : std::to_string(ids[i]));
    } else if (config.task->tokens == data::TokenKind::bytes) {
      names.push_back(data::printable(std::string(1, static_cast<char>(token))));
    } else {
      names.push_back(std::to_string(token));
    }
  }
  return names;
}

MatrixText text_of_run(const MatrixFlags& flags, const SavedModel& saved, Progress& progress) {
  const RunConfig& config = saved.config;
  if (config.task->sequences != 1) {
    throw UsageError(fmt::format("{}: {} compares two documents; expected a run on single texts",
                                 flags.run, config.task->name));
  }
  data::Tokens tokens = data::tokenise(*config.task, config.vocabulary.get(), flags.sentence,
                                       "--sentence", config.pairs);
  const auto most = static_cast<std::size_t>(std::min(flags.n, config.batches.max_length));
  MatrixText result;
  result.model = fmt::format("{} with {}", config.task->name, config.method->name);
  std::vector<std::string> names = names_of(config, flags.sentence, tokens[0]);
  for (std::size_t i = tokens[0].size(); i-- > 0;) {  // as batches drop them
    if (tokens[0][i] == config.batches.drop_token) {
      tokens[0].erase(tokens[0].begin() + static_cast<std::ptrdiff_t>(i));
      names.erase(names.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  say_cut(tokens[0].size(), most, progress);
  tokens[0].resize(std::min(most, tokens[0].size()));
  names.resize(tokens[0].size());
  data::BatchOptions options = config.batches;
  if (options.first_token >= 0) names.insert(names.begin(), "CLS");
  options.nominal_length = static_cast<std::int64_t>(names.size());
  options.trim = true;
  options.round_to = 1;
  result.tokens = names;
  const data::Batch batch = data::pad({tokens}, options);
  const DeviceBatch on_device = upload(batch, Device::cpu);
  std::vector<LayerInputs> seen;
  nn::StepContext step = nn::answer_context(config.seed);
  keep_in(seen, step);
  Tape tape(Tape::Mode::eval);
  (void)saved.model->encode(tape, on_device.input, 0, step);
  choose_layer(flags, seen, result);
  result.own = &saved.model->layer(static_cast<int>(result.layer)).method();
  result.own_name = config.method->name;
  result.own_call = nn::attention_call(step, 0, static_cast<int>(result.layer));
  return result;
}

int run(MatrixFlags flags) {
  if (flags.run.empty() == flags.model.empty()) {
    throw UsageError("matrix: give one of --run DIR and --model FOLDER");
  }
  if (flags.run.empty() && flags.command.count("--checkpoint") > 0) {
    throw UsageError("--checkpoint has no effect without --run");
  }
  set_threads(flags.threads);
  MatrixOptions& options = flags.options;
  options.methods = method_list(flags.attention);
  options.method_options = method_options(flags.set);
  Progress progress;
  std::optional<SavedModel> saved;  // its method is used as long as there are matrices to make
  if (!flags.run.empty()) saved = load_run(flags.run, flags.checkpoint, Device::cpu);
  const MatrixText text =
      saved ? text_of_run(flags, *saved, progress) : text_of_encoder(flags, progress);
  if (!text.in.k.defined()) {
    throw UsageError(fmt::format("{}: {} uses its queries as keys; expected a run with keys",
                                 flags.run, text.own_name));
  }
  Experiment experiment("matrix", flags.out);
  const MatrixStudy study = run_matrix(text, options);
  experiment.note("model", text.model);
  experiment.note("sentence", flags.sentence);
  experiment.note("tokens", text.tokens);
  experiment.note("layer", text.layer);
  experiment.note("head", options.head);
  experiment.note("seed", options.seed);
  experiment.note("method options", options.method_options);
  experiment.detail("results", to_json(study));
  experiment.detail("exact", exact_matrices(study));
  experiment.add(table(study, text));
  experiment.save();
  return 0;
}

}  // namespace

void add_matrix(const Command& program) {
  const Command command = program.add_command(
      "matrix", "the attention matrix of every method for a sentence, and the exact one");
  const auto flags = std::make_shared<MatrixFlags>();
  flags->command = command;
  command.add_option("--run", flags->run, "run folder");
  command.add_option("--model", flags->model, "folder of a BERT or RoBERTa encoder");
  command.add_option("--sentence", flags->sentence, "input: a text, an expression of ListOps")
      .required();
  command.add_option("--attention", flags->attention, "methods a,b,… or all");
  command.add_option("--n", flags->n, "tokens of the sentence that are read, at most")
      .between(1, 256);
  command.add_option("--layer", flags->layer, "of the model; -1: the last").between(-1, 1000);
  command.add_option("--head", flags->options.head, "of the layer").between(0, 65536);
  command
      .add_option("--features", flags->options.features,
                  "of methods that have some; 0: a quarter of the tokens")
      .between(0, 256);
  command.add_option("--set", flags->set, "<method>.<option>=value").no_default();
  command.add_option("--checkpoint", flags->checkpoint, "of the run: best or last");
  command.add_option("--seed", flags->options.seed, "of untrained weights and of draws with them");
  command.add_option("--threads", flags->threads, "CPU threads; 0: all cores");
  command.add_option("--out", flags->out, kPicturesHelp);
  command.runs([flags] { return run(*flags); });
}

}  // namespace skytape::train
