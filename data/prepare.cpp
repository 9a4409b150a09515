#include "data/prepare.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "data/cache/cache.hpp"
#include "data/files/json.hpp"
#include "data/files/printable.hpp"
#include "data/files/source.hpp"
#include "data/tokenisers/vocabulary.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"

namespace skytape::data {
namespace {

namespace fs = std::filesystem;

/// Cache files of a task; dev may be a part of train.
std::vector<std::string> stored_splits(const TaskInfo& task) {
  if (task.held_out > 0) return {"train", "test"};
  return {kSplits.begin(), kSplits.end()};
}

fs::path folder_of(const TaskInfo& task, const fs::path& root) { return root / task.name; }

std::string how_to_prepare(const TaskInfo& task, const fs::path& root) {
  const std::string there =
      root == "datasets" ? "" : fmt::format(" ARGS=\"--data {}\"", root.string());
  const std::string make = fmt::format("make data TASK={}", task.name);
  if (!task.generator.empty()) return fmt::format("type: {}{}", make, there);
  const std::string own = fmt::format("{} FROM=<file, folder or archive>{}", make, there);
  if (task.source.empty()) return "type: " + own;
  return fmt::format("type: {} FETCH=1{}, or get it from {} and type: {}", make, there, task.source,
                     own);
}

/// DataError if `set` was generated, but by another version of the generator.
void ensure_current(const TaskInfo& task, const fs::path& path, const Dataset& set) {
  const auto facts = try_parse_json(set.provenance());
  if (!facts.is_object() || facts.value("how", "") != "generated") return;
  const std::string made_by = facts.value("generator", "an unnamed generator");
  if (made_by == task.generator) return;
  throw DataError(
      fmt::format("{}: made by '{}', expected '{}'; type: make data TASK={} ARGS=--force",
                  path.string(), made_by, task.generator, task.name));
}

/// A stored split, checked for belonging to this task and to one preparation with its siblings.
Dataset open_stored(const TaskInfo& task, const fs::path& root, const std::string& split) {
  const fs::path path = cache_path(folder_of(task, root), split);
  if (!fs::exists(path)) {
    throw DataError(fmt::format("{}: not prepared ({} is missing); {}", task.name, path.string(),
                                how_to_prepare(task, root)));
  }
  auto file = CacheFile::open(path);
  const CacheHeader& header = file->header();
  if (task.name != header.task || split != header.split) {
    throw DataError(fmt::format("{}: holds split {} of task {}, expected {} of {}", path.string(),
                                header.split, header.task, split, task.name));
  }
  if (!is_prepared(task, root)) {
    throw DataError(fmt::format("{}: the splits there are not of one preparation; {}",
                                folder_of(task, root).string(), how_to_prepare(task, root)));
  }
  Dataset set(std::move(file));
  ensure_current(task, path, set);
  return set;
}

SplitFacts facts_of(std::string split, const Dataset& data) {
  SplitFacts facts;
  facts.split = std::move(split);
  facts.examples = data.size();
  facts.label_counts.resize(data.classes());
  facts.fingerprint = data.fingerprint();
  for (int64_t i = 0; i < data.size(); ++i) {
    ++facts.label_counts[data.label(i)];
    for (int sequence = 0; sequence < data.sequences(); ++sequence) {
      const int64_t length = data.length(i, sequence);
      facts.tokens += length;
      facts.max_length = std::max(facts.max_length, length);
      facts.min_length = i + sequence == 0 ? length : std::min(facts.min_length, length);
    }
  }
  const int64_t sequences = std::max<int64_t>(1, data.size() * data.sequences());
  facts.mean_length = static_cast<double>(facts.tokens) / static_cast<double>(sequences);
  return facts;
}

/// Adds to the provenance of a generated set what made it.
void name_generator(const TaskInfo& task, const PrepareOptions& options, CacheSet& set) {
  Json provenance = set.provenance.empty() ? Json::object() : parse_json(set.provenance);
  provenance["how"] = "generated";
  provenance["generator"] = task.generator;
  provenance["data_seed"] = options.data_seed;
  set.provenance = json_text(provenance);
}

/// UsageError unless the set may take the place of what is there: nothing, or the same contents.
void refuse_other_data(const TaskInfo& task, const fs::path& root, const PrepareOptions& options,
                       CacheSet& set) {
  if (options.force || set.agrees_with_stored()) return;
  const std::string users = options.used_by.empty()
                                ? std::string()
                                : fmt::format(", on which {} trained", listed(options.used_by));
  throw UsageError(
      fmt::format("{} holds other data than {}{}; --force replaces them (through make: FORCE=1), "
                  "--data FOLDER keeps both",
                  folder_of(task, root).string(),
                  options.from.empty() ? "are generated" : options.from.string(), users));
}

}  // namespace

std::string flag_of_rows(const PrepareOptions& options) {
  if (options.header) return "--header";
  if (!options.format.empty()) return "--format";
  if (!options.columns.label.empty()) return "--label-column";
  if (!options.columns.text.empty()) return "--text-column";
  if (!options.columns.second.empty()) return "--text2-column";
  if (!options.delimiter.empty()) return "--delimiter";
  if (options.skip_bad_rows) return "--skip-bad-rows";
  return options.stratify ? "--stratify" : "";
}

std::string flag_of_custom_data(const PrepareOptions& options) {
  if (const std::string flag = flag_of_rows(options); !flag.empty()) return flag;
  if (!options.tokens.empty()) return "--tokens";
  return options.learn_tokens.empty() ? "" : "--learn-tokens";
}

void prepare(const TaskInfo& task, const fs::path& root, const PrepareOptions& options) {
  if (const std::string flag = flag_of_custom_data(options);
      !is_custom_data(task) && !flag.empty()) {
    throw UsageError(
        fmt::format("data: {} has no effect on {}, which is no data of your own", flag, task.name));
  }
  const bool keep = options.from.empty() && !options.force;
  if (keep && is_prepared(task, root)) return;
  if (options.from.empty() && task.generator.empty()) {
    if (is_prepared(task, root)) {
      throw UsageError(
          fmt::format("data: --force prepares {} again, which cannot be generated; "
                      "expected {} with it",
                      task.name, task.source.empty() ? "--from" : "--from or --fetch"));
    }
    throw DataError(fmt::format("{}: cannot be generated, and {} holds none; {}", task.name,
                                fs::absolute(folder_of(task, root)).string(),
                                how_to_prepare(task, root)));
  }
  if (!options.from.empty() && !fs::exists(options.from)) {
    throw DataError(fmt::format("{}: {} does not exist", task.name, options.from.string()));
  }
  CacheSet set(task.name, folder_of(task, root), task.sequences, task.token_offset);
  if (keep && is_prepared(task, root)) return;  // another process did it while we waited
  set.classes = task.classes;
  task.build(task, options, set);
  if (options.from.empty()) name_generator(task, options, set);
  for (const std::string& split : stored_splits(task)) {
    if (set.split(split).examples() == 0) {
      throw DataError(fmt::format("{}: no example for split {} in {}", task.name, split,
                                  options.from.string()));
    }
  }
  refuse_other_data(task, root, options, set);
  set.commit();
}

fs::path fetch_source(const TaskInfo& task, const fs::path& root, const std::string& url,
                      const FetchOptions& options) {
  if (task.source.empty()) {
    throw UsageError(fmt::format("{}: no official address, so nothing to fetch", task.name));
  }
  const std::string from = url.empty() ? std::string(task.source) : url;
  if (!from.starts_with("http://") && !from.starts_with("https://")) {
    throw UsageError(fmt::format("--url: expected http://… or https://…, got '{}'", from));
  }
  fs::path to = root / "downloads" / leaf(task.source);
  (void)fetch(from, to, task.source_sha256, options);
  return to;
}

bool is_prepared(const TaskInfo& task, const fs::path& root) {
  uint64_t set = 0;
  bool first = true;
  for (const std::string& split : stored_splits(task)) {
    const fs::path path = cache_path(folder_of(task, root), split);
    if (!fs::exists(path)) return false;
    const uint64_t here = CacheFile::read_header(path).set;
    if (!first && here != set) return false;
    set = here;
    first = false;
  }
  return true;
}

Dataset open(const TaskInfo& task, const fs::path& root, std::string_view split, DevRule dev) {
  const std::vector<std::string> known(kSplits.begin(), kSplits.end());
  if (std::find(known.begin(), known.end(), split) == known.end()) {
    throw UsageError(unknown_name("split", split, known));
  }
  if (task.held_out == 0 || split == "test") return open_stored(task, root, std::string(split));
  if (dev == DevRule::test) return open_stored(task, root, split == "dev" ? "test" : "train");
  const Dataset train = open_stored(task, root, "train");
  const auto held_out =
      static_cast<int64_t>(static_cast<double>(train.size()) * task.held_out + 0.5);
  const int64_t rest = train.size() - held_out;
  return split == "dev" ? train.slice(rest, held_out) : train.slice(0, rest);
}

void refuse_export(const TaskInfo& task, const fs::path& dir) {
  if (!task.export_files) {
    throw UsageError(fmt::format("--export: the files of {} are not ours to write{}{}", task.name,
                                 task.source.empty() ? "" : "; the official ones are at ",
                                 task.source));
  }
  if (fs::exists(dir) && !fs::is_directory(dir)) {
    throw UsageError(fmt::format("--export: {} is a file, expected a folder", dir.string()));
  }
  if (!is_custom_data(task)) return;
  for (const char* split : kSplits) {  // the set may have been made from them
    for (const char* ending : {".tsv", ".csv", ".jsonl", ".ndjson"}) {
      for (const char* packed : {"", ".gz"}) {
        const fs::path file = dir / fmt::format("{}{}{}", split, ending, packed);
        if (!fs::exists(file)) continue;
        throw UsageError(fmt::format("--export: {} is there already, expected a folder without it",
                                     file.string()));
      }
    }
  }
}

void export_official(const TaskInfo& task, const fs::path& root, const fs::path& dir) {
  refuse_export(task, dir);
  task.export_files(task, root, dir);
}

Description describe(const TaskInfo& task, const fs::path& root) {
  Description description;
  description.task = task.name;
  for (const char* const split : kSplits) {
    const Dataset data = open(task, root, split);
    description.splits.push_back(facts_of(split, data));
    description.name = data.name();
    description.provenance = data.provenance();
  }
  return description;
}

/// "neg 16, pos 17", or the counts alone where the classes have no names or too many.
std::string counts_of(const SplitFacts& split, const std::vector<std::string>& names) {
  constexpr std::size_t kMostNamed = 20;
  std::vector<std::string> counts;
  const bool named = names.size() == split.label_counts.size() && names.size() <= kMostNamed;
  for (std::size_t i = 0; i < split.label_counts.size(); ++i) {
    counts.push_back(named ? fmt::format("{} {}", printable_whole(names[i]), split.label_counts[i])
                           : std::to_string(split.label_counts[i]));
  }
  return listed(counts, named ? ", " : " ");
}

std::string to_text(const Description& description) {
  Json provenance = try_parse_json(description.provenance);
  std::vector<std::string> names;
  if (provenance.is_object()) names = provenance.value("labels", names);
  std::string text = fmt::format("{}: results are called {}\n", description.task, description.name);
  text += fmt::format("{:<6} {:>9} {:>8} {:>6} {:>6}  {:<16}  {}\n", "split", "examples", "mean",
                      "min", "max", "fingerprint", "labels");
  for (const SplitFacts& split : description.splits) {
    text += fmt::format("{:<6} {:>9} {:>8.1f} {:>6} {:>6}  {}  {}\n", split.split, split.examples,
                        split.mean_length, split.min_length, split.max_length, split.fingerprint,
                        counts_of(split, names));
  }
  if (provenance.is_object() && provenance.contains("sources")) {
    for (const Json& file : member(provenance, "sources")) {
      const bool known = file.contains("official");
      text += fmt::format("{:<32} {:>10} bytes  sha256 {}{}\n", file.value("file", ""),
                          file.value("bytes", uint64_t{0}), file.value("sha256", ""),
                          !known                          ? ""
                          : file.value("official", false) ? ", as known"
                                                          : ", not the known one");
    }
    provenance.erase("sources");
  }
  text += take_vocabulary(provenance);
  return text + "provenance " + json_text(provenance) + "\n";
}

}  // namespace skytape::data
