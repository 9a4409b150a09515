#include "data/tasks/own.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "data/cache/cache.hpp"
#include "data/files/json.hpp"
#include "data/files/output.hpp"
#include "data/own/format.hpp"
#include "data/own/glue.hpp"
#include "data/own/imdb.hpp"
#include "data/own/records.hpp"
#include "data/random.hpp"
#include "data/tasks/build.hpp"
#include "data/tasks/tokens.hpp"
#include "data/tokenisers/unicode.hpp"
#include "data/tokenisers/units.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 3> kSplits = {"train", "dev", "test"};
constexpr std::size_t kFewest = 10;    // examples of one file: each split gets one
constexpr std::size_t kDevShare = 20;  // of so many examples of a benchmark's train one is held out
constexpr std::size_t kMaxClasses = 1000;  // more is a file whose columns are swapped

struct Example {
  std::string label, text, place;
  std::string second = {};  // of a pair
};

/// All examples, of each split in the order of kSplits.
struct Own {
  std::array<std::vector<Example>, 3> splits;
  Json sources = Json::array();
  std::string first_label;  // of the first row read, which may be a header's
  std::string splits_are;   // what dev and test of a benchmark are; empty: the user's own
};

/// A whole non-negative decimal number, or -1.
std::int64_t parse_number(std::string_view text) {
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 ? value : -1;
}

std::vector<Example> read_file(const fs::path& path, const TokenChoice& choice,
                               const PrepareOptions& options, Own& own) {
  const auto unit = find_token_unit(choice.kind);
  std::vector<Example> examples;
  const auto stream = open_file(path);
  HashedStream hashed(*stream);
  Preview preview(hashed);
  const std::optional<RecordFormat> ending = format_of(path);
  const RecordFormat format = !options.format.empty() ? parse_format(options.format)
                              : ending                ? *ending
                                       : format_in(preview.first_line(), {path.string()});
  read_records(preview, path.string(), {format, options.header}, [&](Record& record) {
    if (unit && units_of(*unit, record.text, record.place).empty()) {
      throw DataError(
          fmt::format("{}: no {} in '{}'", record.place, choice.kind, printable(record.text)));
    }
    if (own.first_label.empty()) own.first_label = record.label;
    examples.push_back({std::move(record.label), std::move(record.text), std::move(record.place)});
  });
  Json source = hashed.finish(path.filename().string());
  if (ending != format) source["format"] = to_string(format);
  own.sources.push_back(std::move(source));
  return examples;
}

/// The file of a split in a folder of them. DataError if there is none, or more than one.
fs::path file_of_split(const fs::path& folder, const std::string& split) {
  std::optional<fs::path> found;
  for (const char* ending : {".tsv", ".csv", ".jsonl", ".ndjson"}) {
    for (const char* packed : {"", ".gz"}) {
      const fs::path path = folder / (split + ending + packed);
      if (!fs::is_regular_file(path)) continue;
      if (found) {
        throw DataError(fmt::format("{}: {} and {}: expected one file for {}", folder.string(),
                                    found->filename().string(), path.filename().string(), split));
      }
      found = path;
    }
  }
  if (found) return *found;
  throw DataError(
      fmt::format("{}: no {}.tsv (or .csv, .jsonl); expected a file, or a folder with "
                  "train.tsv, dev.tsv and test.tsv, or IMDb's with {{train,test}}/{{neg,pos}}",
                  folder.string(), split));
}

/// The layout of the folder's train split; null: it is none of GLUE's.
const GlueLayout* glue_layout_in(const fs::path& folder) {
  const fs::path file =
      fs::exists(folder / "train.tsv") ? folder / "train.tsv" : folder / "train.tsv.gz";
  if (!fs::is_regular_file(file)) return nullptr;
  const auto stream = open_file(file);
  return glue_layout_of(*stream, file.string());
}

std::vector<Example> read_glue_file(const fs::path& path, const GlueLayout& layout,
                                    const PrepareOptions& options, Own& own) {
  std::vector<Example> examples;
  const auto stream = open_file(path);
  HashedStream hashed(*stream);
  const std::int64_t left_out = read_glue(hashed, path.string(), layout, [&](Record& record) {
    examples.push_back({std::move(record.label), std::move(record.text), std::move(record.place),
                        std::move(record.second)});
  });
  if (left_out > 0) {
    warn(options,
         fmt::format("{}: {} rows without all columns are left out", path.string(), left_out));
  }
  own.sources.push_back(hashed.finish(path.filename().string()));
  return examples;
}

/// Deals the train split of a benchmark, which has no dev split for us, to train and dev.
void hold_out_dev(std::vector<Example> train, const PrepareOptions& options, Own& own) {
  if (train.size() < kDevShare) {
    throw DataError(fmt::format("{}: {} examples in train, expected at least {}: one in {} is dev",
                                options.from.string(), train.size(), kDevShare, kDevShare));
  }
  const Permutation order(train.size(), options.data_seed, 2);
  const std::size_t held_out = train.size() / kDevShare;
  for (std::size_t i = 0; i < train.size(); ++i) {
    own.splits[i < held_out ? 1 : 0].push_back(std::move(train[order(i)]));
  }
}

/// GLUE keeps the labels of its test split.
Own read_glue_folder(const GlueLayout& layout, const PrepareOptions& options) {
  Own own;
  own.splits_are =
      fmt::format("{}: test is its dev.tsv, dev a twentieth of train.tsv", layout.name);
  std::vector<Example> train =
      read_glue_file(file_of_split(options.from, "train"), layout, options, own);
  own.splits[2] = read_glue_file(file_of_split(options.from, "dev"), layout, options, own);
  hold_out_dev(std::move(train), options, own);
  return own;
}

/// The examples of a split, in the order of the reviews; adds its digest to the sources.
std::vector<Example> read_imdb_split(std::vector<Review> reviews, bool train,
                                     const PrepareOptions& options, Own& own) {
  const Json facts = review_facts(reviews, train, options);
  own.sources.push_back({{"file", train ? "train, sorted reviews" : "test, sorted reviews"},
                         {"bytes", facts["bytes"]},
                         {"sha256", facts["sha256_sorted_contents"]}});
  std::vector<Example> examples;
  for (Review& review : reviews) {
    examples.push_back(
        {review.name.label == 0 ? "neg" : "pos", std::move(review.text), std::move(review.place)});
  }
  return examples;
}

/// IMDb has no dev split.
Own read_imdb(const PrepareOptions& options) {
  if (options.header) throw UsageError("--header: IMDb's reviews have no columns to be named");
  if (!options.format.empty()) throw UsageError("--format: IMDb's reviews are plain text");
  Own own;
  own.splits_are = "IMDb: test is its test split, dev a twentieth of its train split";
  Reviews reviews = read_reviews(options);
  if (reviews.unlabelled > 0) {
    warn(options,
         fmt::format("{} reviews without a label (train/unsup) are left out", reviews.unlabelled));
  }
  hold_out_dev(read_imdb_split(std::move(reviews.train), true, options, own), options, own);
  std::vector<Example> test = read_imdb_split(std::move(reviews.test), false, options, own);
  // They come sorted by label, and whoever looks at the first ones should see both.
  const Permutation order(test.size(), options.data_seed, 1);
  for (std::size_t i = 0; i < test.size(); ++i) {
    own.splits[2].push_back(std::move(test[order(i)]));
  }
  return own;
}

Own read_own(const TaskInfo& task, const TokenChoice& choice, const PrepareOptions& options) {
  Own own;
  if (may_hold_reviews(options.from)) return read_imdb(options);
  if (fs::is_directory(options.from)) {
    if (const GlueLayout* layout = glue_layout_in(options.from)) {
      return read_glue_folder(*layout, options);
    }
    std::array<fs::path, 3> files;
    for (std::size_t i = 0; i < 3; ++i) files[i] = file_of_split(options.from, kSplits[i]);
    for (std::size_t i = 0; i < 3; ++i) own.splits[i] = read_file(files[i], choice, options, own);
    return own;
  }
  std::vector<Example> all = read_file(options.from, choice, options, own);
  if (all.size() < kFewest) {
    std::set<std::string> labels;
    for (const Example& example : all) labels.insert(example.label);
    throw DataError(fmt::format(
        "{}: {}: {} lines with {} different labels, expected at least {} "
        "lines with 2..{} labels",
        task.name, options.from.string(), all.size(), labels.size(), kFewest, kMaxClasses));
  }
  const std::size_t tenth = all.size() / 10;
  const Permutation order(all.size(), options.data_seed, 2);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t rest = all.size() - i;
    own.splits[rest > 2 * tenth ? 0 : rest > tenth ? 1 : 2].push_back(std::move(all[order(i)]));
  }
  return own;
}

/// Labels in the order of their classes.
std::vector<std::string> sorted_labels(const std::map<std::string, std::int64_t>& counts) {
  std::vector<std::string> labels;
  labels.reserve(counts.size());
  for (const auto& [label, count] : counts) labels.push_back(label);
  const bool numbers = std::all_of(labels.begin(), labels.end(), [](const std::string& label) {
    return parse_number(label) >= 0;
  });
  if (numbers) {
    std::stable_sort(labels.begin(), labels.end(), [](const std::string& a, const std::string& b) {
      return parse_number(a) < parse_number(b);
    });
  }
  return labels;
}

/// "'a', 'b', 'c' and 4 more".
std::string listed(const std::vector<std::string>& labels) {
  constexpr std::size_t kShown = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(labels.size(), kShown); ++i) {
    text += fmt::format("{}'{}'", i == 0 ? "" : ", ", printable(labels[i]));
  }
  if (labels.size() > kShown) text += fmt::format(" and {} more", labels.size() - kShown);
  return text;
}

void warn_about_labels(const Own& own, const std::map<std::string, std::int64_t>& counts,
                       const PrepareOptions& options) {
  std::vector<std::string> single, untrained;
  std::map<std::string, std::int64_t> trained;
  for (const Example& example : own.splits[0]) ++trained[example.label];
  for (const auto& [label, count] : counts) {
    if (count == 1)
      single.push_back(label);
    else if (!trained.contains(label))
      untrained.push_back(label);
  }
  if (!single.empty()) {
    const auto first = counts.find(own.first_label);
    const bool header = !options.header && first->second == 1;
    warn(options,
         fmt::format("{} with a single example: {}{}", single.size() == 1 ? "a class" : "classes",
                     listed(single),
                     header ? fmt::format(" ('{}' is in the first row: if that names the columns, "
                                          "say --header)",
                                          printable(own.first_label))
                            : ""));
  }
  if (!untrained.empty()) {
    warn(options, fmt::format("train has no example of {}", listed(untrained)));
  }
}

/// Says how many texts lose their end.
void warn_about_length(const TaskInfo& task, std::int64_t longer, std::int64_t all,
                       const PrepareOptions& options) {
  if (longer == 0) return;
  warn(options, fmt::format("{} of {} texts have more than {} tokens: a run reads the first {} "
                            "(train --set max_length=… reads more)",
                            longer, all, task.max_length, task.max_length));
}

/// The vocabulary that the training split makes; null: tokens are bytes.
std::shared_ptr<const Vocabulary> vocabulary_of_training(const TokenChoice& choice, const Own& own,
                                                         const PrepareOptions& options) {
  const auto unit = find_token_unit(choice.kind);
  if (!unit && options.learn_tokens.empty()) return nullptr;
  std::vector<std::string> texts;
  for (const Example& example : own.splits[0]) {
    // Here the place of what is no UTF-8 is known.
    if (!unit) (void)decode_utf8(example.text, example.place);
    texts.push_back(example.text);
    if (!example.second.empty()) texts.push_back(example.second);
  }
  return unit ? vocabulary_of(*unit, texts) : learn_vocabulary(choice, options, texts);
}

}  // namespace

void build_own(const TaskInfo& task, const PrepareOptions& options, CacheSet& set) {
  const TokenChoice choice = chosen_tokens(options);
  // Before the texts, which may take long. Null: bytes, or the training split makes it.
  std::shared_ptr<const Vocabulary> vocabulary = given_vocabulary(choice, options);
  const Own own = read_own(task, choice, options);
  std::map<std::string, std::int64_t> counts;
  for (const auto& split : own.splits) {
    for (const Example& example : split) ++counts[example.label];
  }
  if (counts.size() < 2 || counts.size() > kMaxClasses) {
    throw DataError(fmt::format("{}: {}: {} different labels, expected 2..{}", task.name,
                                options.from.string(), counts.size(), kMaxClasses));
  }
  warn_about_labels(own, counts, options);
  const std::vector<std::string> labels = sorted_labels(counts);
  std::map<std::string, std::int32_t> classes;
  for (const std::string& label : labels) {
    classes.emplace(label, static_cast<std::int32_t>(classes.size()));
  }

  if (!vocabulary) vocabulary = vocabulary_of_training(choice, own, options);
  if (vocabulary) set.token_bytes = 2;
  set.classes = static_cast<std::int64_t>(labels.size());
  std::int64_t longer = 0, all = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    CacheWriter& out = set.split(kSplits[i]);
    for (const Example& example : own.splits[i]) {
      const std::int32_t label = classes.at(example.label);
      const std::string text =
          example.second.empty() ? example.text : example.text + "\t" + example.second;
      std::size_t length = text.size();
      if (vocabulary) {
        const std::vector<std::int32_t> tokens =
            encode_pair(*vocabulary, example.text, example.second, example.place);
        if (tokens.empty()) {
          throw DataError(fmt::format("{}: no token of {} in '{}'", example.place, choice.kind,
                                      printable(example.text)));
        }
        length = tokens.size();
        out.add(label, std::vector<std::uint16_t>(tokens.begin(), tokens.end()));
      } else {
        out.add(label, as_bytes(text));
      }
      longer += static_cast<std::int64_t>(length) > task.max_length;
      ++all;
    }
  }
  warn_about_length(task, longer, all, options);

  Json provenance = {{"how", "read"}, {"sources", own.sources}, {"labels", labels}};
  if (!own.splits_are.empty()) {
    provenance["splits"] = own.splits_are;
    provenance["data_seed"] = options.data_seed;
    if (!own.splits[0].front().second.empty()) provenance["pairs"] = true;
  } else if (fs::is_directory(options.from)) {
    provenance["splits"] = "the user's";
  } else {
    provenance["data_seed"] = options.data_seed;
  }
  if (vocabulary) put_vocabulary(*vocabulary, provenance);
  // Texts may be in any encoding; JSON is in UTF-8.
  set.provenance = json_text(provenance, {.ascii = true, .mend = true});
}

void export_own(const TaskInfo& task, const fs::path& root, const fs::path& dir) {
  fs::create_directories(dir);
  for (const char* split : kSplits) {
    const Dataset data = open(task, root, split);
    const auto provenance = try_parse_json(data.provenance());
    const std::vector<std::string> labels = provenance.value("labels", std::vector<std::string>());
    const auto vocabulary = has_vocabulary(provenance) ? vocabulary_in(provenance) : nullptr;
    const auto text_of = [&](std::int64_t i) {
      if (!vocabulary) {
        const auto bytes = data.tokens(i);
        return std::string(bytes.begin(), bytes.end());
      }
      const auto tokens = data.wide_tokens(i);
      return vocabulary->text_of(std::vector<std::int32_t>(tokens.begin(), tokens.end()));
    };
    bool lines = true;  // no text has a line end
    for (std::int64_t i = 0; i < data.size() && lines; ++i) {
      lines = text_of(i).find_first_of("\r\n") == std::string::npos;
    }
    OutputFile file(dir / (std::string(split) + (lines ? ".tsv" : ".jsonl")));
    for (std::int64_t i = 0; i < data.size(); ++i) {
      const std::string& label = labels.at(static_cast<std::size_t>(data.label(i)));
      if (lines) {
        file.write(fmt::format("{}\t{}\n", label, text_of(i)));
      } else {
        const Json record = {{"label", label}, {"text", text_of(i)}};
        file.write(json_text(record, {.mend = true}) + "\n");
      }
    }
    file.commit();
  }
}

TaskInfo tsv_task() {
  return {.name = "tsv",
          .description = "your own labelled texts: TSV, CSV or JSON Lines",
          .tokens = TokenKind::bytes,
          .classes = 0,
          .max_length = 2048,
          .nominal_length = 2048,
          .token_offset = 1,
          .build = build_own,
          .export_files = export_own};
}

}  // namespace skytape::data
