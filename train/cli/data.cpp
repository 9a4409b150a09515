#include <fmt/format.h>

#include <memory>

#include "data/custom/format.hpp"
#include "data/files/fetch.hpp"
#include "data/prepare.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/cli/cli.hpp"
#include "train/process/progress.hpp"
#include "train/process/signals.hpp"
#include "train/process/threads.hpp"
#include "train/run/run_summary.hpp"

namespace skytape::train {
namespace {

struct DataFlags {
  data::PrepareOptions options;
  std::string task = "listops", from, url, export_to, root = "datasets";
  std::int64_t length = 0;
  bool fetch = false;
  Command command;
};

/// Downloads the task's archive and returns its path; nothing if its data are prepared already.
std::string fetched(const data::TaskInfo& task, const DataFlags& flags, Progress& progress) {
  if (!flags.options.force && data::is_prepared(task, flags.root)) {
    progress.line(fmt::format("{} is prepared already in {}: nothing fetched (--force does)",
                              task.name, flags.root));
    return {};
  }
  data::FetchOptions options;
  options.progress = [&](std::string_view what, std::int64_t done, std::int64_t total) {
    progress.at(what, done, total);
    stop_if_signalled();  // what has come is kept
  };
  options.say = [&](std::string_view text) { progress.line(text); };
  return data::fetch_source(task, flags.root, flags.url, options);
}

/// Runs of the usual folder that were trained on the data that are prepared now.
std::vector<std::string> users_of(const data::TaskInfo& task, const std::string& root) {
  try {
    if (!data::is_prepared(task, root)) return {};
    return runs_on("runs", data::open(task, root, "train").fingerprint());
  } catch (const DataError&) {  // broken data are of no use to a run
    return {};
  }
}

/// Returns the options that the flags give. UsageError for flags that contradict each other.
data::PrepareOptions options_of(const data::TaskInfo& task, const DataFlags& flags) {
  if (flags.fetch && !flags.from.empty()) {
    throw UsageError("data: --fetch and --from exclude each other");
  }
  if (!flags.fetch && !flags.url.empty()) {
    throw UsageError("data: --url has no effect without --fetch");
  }
  data::PrepareOptions options = flags.options;
  if (flags.length > 0) {
    if (task.name != "corpus") throw UsageError("data: --length is for --task corpus");
    if (flags.from.empty()) throw UsageError("data: --length has no effect without --from");
    options.length = flags.length;
  }
  if (const std::string own = data::flag_of_custom_data(options);
      flags.from.empty() && !own.empty()) {
    throw UsageError(fmt::format("data: {} has no effect without --from", own));
  }
  if (flags.command.count("--limit") > 0 && !(flags.from.empty() && !flags.fetch)) {
    throw UsageError(
        "data: --limit is for generated data, and has no effect with --from or --fetch");
  }
  for (const char* of_generator : {"--limit", "--data-seed"}) {
    if (flags.command.count(of_generator) > 0 && flags.from.empty() && !flags.fetch &&
        !options.force && data::is_prepared(task, flags.root)) {
      throw UsageError(
          fmt::format("data: {} has no effect: {} is prepared in {}; --force does it again",
                      of_generator, task.name, flags.root));
    }
  }
  return options;
}

void prepare(const data::TaskInfo& task, const DataFlags& flags, data::PrepareOptions options) {
  Progress progress;
  options.exported = !flags.export_to.empty();
  options.from = flags.fetch ? fetched(task, flags, progress) : flags.from;
  options.progress = [&](std::string_view what, std::int64_t done, std::int64_t total) {
    progress.at(what, done, total);
    stop_if_signalled();  // throws; half-written files are removed
  };
  options.warn = [&](std::string_view text) { progress.line(fmt::format("warning: {}", text)); };
  if (!options.from.empty() || flags.options.force) options.used_by = users_of(task, flags.root);
  try {
    data::prepare(task, flags.root, options);
  } catch (const DataError&) {
    stop_if_signalled();  // which ended the waiting for a pipe
    throw;
  }
  stop_if_signalled();
  if (flags.options.force && !options.used_by.empty()) {
    progress.line(
        fmt::format("warning: the data of {} were prepared again", listed(options.used_by)));
  }
}

int run(const DataFlags& flags) {
  const data::TaskInfo& task = data::find_task(flags.task);
  const data::PrepareOptions options = options_of(task, flags);
  set_threads(options.threads);
  watch_signals();
  if (!flags.export_to.empty()) data::refuse_export(task, flags.export_to);
  prepare(task, flags, options);
  if (!flags.export_to.empty()) {
    data::export_official(task, flags.root, flags.export_to);
    fmt::print(stderr, "wrote the {} of {} to {}\n",
               data::is_custom_data(task) ? "splits" : "official files", task.name,
               flags.export_to);
  }
  fmt::print("{}", data::to_text(data::describe(task, flags.root)));
  return 0;
}

}  // namespace

void add_data(const Command& program) {
  const Command command = program.add_command("data", "prepare, describe or export a task's data");
  const auto flags = std::make_shared<DataFlags>();
  flags->command = command;
  data::PrepareOptions& options = flags->options;
  command.add_option("--task", flags->task, "`skytape info tasks` lists them");
  command.add_option("--from", flags->from, "folder, file or archive to read; else generate");
  command.add_flag("--fetch", flags->fetch,
                   "download the official archive first, into <data>/downloads; an interrupted "
                   "download is resumed");
  command.add_option("--url", flags->url, "address of a mirror of the archive");
  command.add_flag(
      "--header", options.header,
      "custom data: the first row names the columns (usual names are known without it)");
  command.add_option("--format", options.format, data::kFormatHelp);
  declare_columns(command, options.columns, options.delimiter);
  command.add_flag("--skip-bad-rows", options.skip_bad_rows,
                   "custom data: leave broken rows out, and list the first ten");
  command.add_flag("--stratify", options.stratify,
                   "custom data: split one file class by class, so that each split has its share");
  command.add_option(
      "--tokens", options.tokens,
      "custom data: kind of tokens: bytes (default), words, integers, "
      "sentencepiece:FILE, wordpiece:FILE (vocab.txt or tokenizer.json), bpe:FOLDER "
      "(vocab.json and merges.txt, or tokenizer.json) or unigram:FILE (tokenizer.json)");
  command.add_option("--learn-tokens", options.learn_tokens,
                     "custom data: first make the FILE of sentencepiece from the training split: "
                     "unigram:NUMBER or bpe:NUMBER of pieces");
  command
      .add_option("--length", flags->length,
                  "corpus: tokens of a sequence, which holds consecutive documents; 0: 512")
      .between(0, std::int64_t{1} << 20);
  command.add_option("--export", flags->export_to,
                     "write the official files, or the splits of custom data, into this folder");
  command.add_option("--data", flags->root, "folder of prepared data sets");
  command.add_option("--data-seed", options.data_seed, "seed of generators and of splits");
  command.add_option("--limit", options.limit, "generate only so many examples; 0: all")
      .between(0, std::int64_t{1} << 40);
  command.add_option("--threads", options.threads, "CPU threads; 0: all cores");
  command.add_flag("--force", options.force, "prepare again although the data are there");
  command.runs([flags] { return run(*flags); });
}

}  // namespace skytape::train
