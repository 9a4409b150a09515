#include "data/tasks/custom_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "data/custom/delimiter.hpp"
#include "data/custom/encoding.hpp"
#include "data/custom/format.hpp"
#include "data/custom/glue.hpp"
#include "data/custom/imdb.hpp"
#include "data/files/printable.hpp"
#include "data/random.hpp"
#include "data/tasks/build.hpp"
#include "data/tasks/tokens.hpp"
#include "data/tokenisers/units.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"

namespace skytape::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFewest = 10;    // examples of one file: each split gets one
constexpr std::size_t kDevShare = 20;  // of so many examples of a benchmark's train one is held out
constexpr std::int64_t kShownRows = 10;  // broken rows that are shown

/// The findings about the rows of all files, to be reported at the end.
struct Findings {
  EncodingCheck encoding;  // a vocabulary is of characters
  std::int64_t broken = 0;
  std::vector<std::string> first_broken = {};  // at most kShownRows
  std::string last_broken = {};                // its message may say that the rest is lost

  [[nodiscard]] BrokenRow take_broken() {
    return [this](const std::string& message) {
      if (++broken <= kShownRows) first_broken.push_back(message);
      last_broken = message;
    };
  }
};

/// Returns whether no flag says what a file's columns are.
bool by_content(const PrepareOptions& options) {
  return options.format.empty() && options.columns.empty() && options.delimiter.empty() &&
         !options.header;
}

/// A file of the user's own, or one of GLUE's.
struct CustomFile {
  const PrepareOptions& options;
  const TokenChoice& choice;
  CustomData& custom;
  Findings& findings;

  /// Takes a row of a file into its examples.
  void take(Record& record, std::vector<Record>& examples) const {
    const auto unit = find_token_unit(choice.kind);
    EncodingCheck(true).see(record.label, record.place);  // a name, which JSON holds
    for (const std::string* text : {&record.text, &record.second}) {
      if (!text->empty()) findings.encoding.see(*text, record.place);
    }
    for (const std::string* text : {&record.text, &record.second}) {
      if (!unit || text->empty() || !units_of(*unit, *text, record.place).empty()) continue;
      throw DataError(
          fmt::format("{}: no {} in '{}'", record.place, choice.kind, printable(*text)));
    }
    examples.push_back(std::move(record));
  }

  [[nodiscard]] std::vector<Record> read(const fs::path& path) const {
    const std::optional<RecordFormat> ending = format_of(path);
    if (by_content(options) && ending.value_or(RecordFormat::tsv) == RecordFormat::tsv) {
      if (const GlueLayout* layout = glue_layout_of(path)) return read_as(*layout, path);
    }
    const auto stream = open_file(path);
    HashedStream hashed(*stream);
    Preview preview(hashed);
    RecordOptions rows;
    rows.format = !options.format.empty()      ? parse_format(options.format)
                  : ending                     ? *ending
                  : !options.delimiter.empty() ? RecordFormat::csv
                                               : format_in(preview.first_line(), {path.string()});
    rows.header = options.header;
    rows.columns = options.columns;
    rows.broken = findings.take_broken();
    if (rows.format == RecordFormat::csv) {
      rows.delimiter =
          options.delimiter.empty() ? find_delimiter(path) : parse_delimiter(options.delimiter);
    } else if (!options.delimiter.empty()) {
      throw UsageError(fmt::format("--delimiter: {} is no CSV", path.string()));
    }
    std::vector<Record> examples;
    const FoundColumns found =
        read_records(preview, path.string(), rows, [&](Record& record) { take(record, examples); });
    const bool has_header = options.header || options.columns.need_header() || found.recognised;
    if (!has_header && !examples.empty() && rows.format != RecordFormat::jsonl) {
      custom.first_labels.push_back(examples[0].label);
    }
    if (rows.format == RecordFormat::tsv && found.names.empty() && !examples.empty() &&
        std::ranges::all_of(examples,
                            [](const Record& r) { return r.text.find('\t') != r.text.npos; })) {
      options.warn(fmt::format(
          "{}: every text has a tab, which is part of it; to read columns, add --label-column 1 "
          "--text-column 2 and, for pairs, --text2-column 3",
          path.string()));
    }
    Json source = hashed.finish(path.filename().string());
    if (ending != rows.format) source["format"] = to_string(rows.format);
    if (rows.delimiter != ',') {
      source["delimiter"] = delimiter_name(rows.delimiter);
      if (options.delimiter.empty()) {
        options.warn(fmt::format("{}: its fields are divided by {}", path.string(),
                                 delimiter_name(rows.delimiter)));
      }
    }
    if (!found.names.empty()) put(found, path, source);
    custom.sources.push_back(std::move(source));
    return examples;
  }

  [[nodiscard]] std::vector<Record> read_as(const GlueLayout& layout, const fs::path& path) const {
    std::vector<Record> examples;
    const auto stream = open_file(path);
    HashedStream hashed(*stream);
    const std::int64_t left_out = read_glue(
        hashed, path.string(), layout, [&](Record& record) { take(record, examples); },
        findings.take_broken());
    if (left_out > 0) {
      options.warn(
          fmt::format("{}: {} rows without all columns are left out", path.string(), left_out));
    }
    custom.sources.push_back(hashed.finish(path.filename().string()));
    return examples;
  }

 private:
  /// Keeps which columns were read, and says it where nobody asked for them.
  void put(const FoundColumns& found, const fs::path& path, Json& source) const {
    const ColumnNames& names = found.names;
    source["columns"] = {{"label", names.label}, {"text", names.text}};
    if (!names.second.empty()) source["columns"]["text2"] = names.second;
    if (!found.recognised) return;
    options.warn(
        fmt::format("{}: columns found by name: label '{}', text '{}'{}", path.string(),
                    printable(names.label), printable(names.text),
                    names.second.empty()
                        ? ""
                        : fmt::format(" and '{}': each example is a pair of texts (--text-column "
                                      "'{}' reads single ones)",
                                      printable(names.second), printable(names.text))));
  }
};

/// The broken rows of all files: an error, or a warning where they may be left out.
void report(const Findings& findings, const PrepareOptions& options) {
  if (const std::string text = findings.encoding.warning(); !text.empty()) options.warn(text);
  if (findings.broken == 0) return;
  const auto shown = static_cast<std::int64_t>(findings.first_broken.size());
  std::string text = listed(findings.first_broken, "\n  ");
  if (shown < findings.broken) {
    text +=
        fmt::format("\n  and {} more, at last {}", findings.broken - shown, findings.last_broken);
  }
  if (!options.skip_bad_rows) {
    if (findings.broken > 1) {
      text += fmt::format("\n  {} broken rows; --skip-bad-rows leaves them out", findings.broken);
    }
    throw DataError(text);
  }
  options.warn(fmt::format("{} broken row{} left out: {}", findings.broken,
                           findings.broken == 1 ? " is" : "s are", text));
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

fs::path tsv_of(const fs::path& folder, std::string_view split) {
  const fs::path file = folder / fmt::format("{}.tsv", split);
  return fs::exists(file) ? file : folder / fmt::format("{}.tsv.gz", split);
}

/// The layout of a folder of GLUE's; null: it is none of them, or the user's, with a labelled test.
const GlueLayout* glue_layout_in(const fs::path& folder) {
  const GlueLayout* const layout = glue_layout_of(tsv_of(folder, "train"));
  return layout == glue_layout_of(tsv_of(folder, "test")) ? nullptr : layout;
}

/// Deals the train split of a benchmark, which has no dev split for us, to train and dev.
void hold_out_dev(std::vector<Record> train, const PrepareOptions& options, CustomData& custom) {
  if (train.size() < kDevShare) {
    throw DataError(fmt::format("{}: {} examples in train, expected at least {}: one in {} is dev",
                                options.from.string(), train.size(), kDevShare, kDevShare));
  }
  const Permutation order(train.size(), options.data_seed, 2);
  const std::size_t held_out = train.size() / kDevShare;
  for (std::size_t i = 0; i < train.size(); ++i) {
    custom.splits[i < held_out ? 1 : 0].push_back(std::move(train[order(i)]));
  }
}

/// GLUE keeps the labels of its test split.
void read_glue_folder(const GlueLayout& layout, const CustomFile& files) {
  const fs::path& folder = files.options.from;
  files.custom.splits_are =
      fmt::format("{}: test is its {}.tsv, dev a twentieth of train.tsv", layout.name, layout.dev);
  const fs::path dev = tsv_of(folder, layout.dev);
  if (!fs::is_regular_file(dev)) {
    throw DataError(fmt::format("{}: no {}.tsv, expected the files of {}", folder.string(),
                                layout.dev, layout.name));
  }
  const GlueLayout* const dev_layout = glue_layout_of(dev);
  const bool known = dev_layout != nullptr && dev_layout->name == layout.name;
  std::vector<Record> train = files.read_as(layout, tsv_of(folder, "train"));
  files.custom.splits[2] = files.read_as(known ? *dev_layout : layout, dev);
  hold_out_dev(std::move(train), files.options, files.custom);
}

/// The examples of a split, in the order of the reviews; adds its digest to the sources.
std::vector<Record> read_imdb_split(std::vector<Review> reviews, bool train,
                                    const PrepareOptions& options, CustomData& custom) {
  const Json facts = review_facts(reviews, train, options);
  custom.sources.push_back({{"file", train ? "train, sorted reviews" : "test, sorted reviews"},
                            {"bytes", member(facts, "bytes")},
                            {"sha256", member(facts, "sha256_sorted_contents")}});
  std::vector<Record> examples;
  for (Review& review : reviews) {
    examples.push_back(
        {review.name.label == 0 ? "neg" : "pos", std::move(review.text), std::move(review.place)});
  }
  return examples;
}

/// IMDb has no dev split.
CustomData read_imdb(const PrepareOptions& options) {
  const std::string how =
      "custom data are read from a file, or from a folder with train.tsv, dev.tsv and test.tsv: "
      "unpack "
      "the archive";
  if (const std::string flag = flag_of_rows(options); !flag.empty()) {
    throw UsageError(flag + ": IMDb's reviews are no rows" +
                     (fs::is_directory(options.from) ? "" : "; " + how));
  }
  CustomData custom;
  custom.splits_are = "IMDb: test is its test split, dev a twentieth of its train split";
  Reviews reviews = read_reviews(options, fs::is_directory(options.from) ? "" : how);
  if (reviews.unlabelled > 0) {
    options.warn(
        fmt::format("{} reviews without a label (train/unsup) are left out", reviews.unlabelled));
  }
  hold_out_dev(read_imdb_split(std::move(reviews.train), true, options, custom), options, custom);
  std::vector<Record> test = read_imdb_split(std::move(reviews.test), false, options, custom);
  // They come sorted by label, and whoever looks at the first ones should see both.
  const Permutation order(test.size(), options.data_seed, 1);
  for (std::size_t i = 0; i < test.size(); ++i) {
    custom.splits[2].push_back(std::move(test[order(i)]));
  }
  return custom;
}

/// Deals the examples of one file 80/10/10, in a seeded order; stratified: those of each class.
void deal(std::vector<Record> all, const PrepareOptions& options, CustomData& custom) {
  std::map<std::string, std::size_t> left;  // examples of each group that are not dealt yet
  const auto group = [&](const Record& example) {
    return options.stratify ? example.label : std::string();
  };
  for (const Record& example : all) ++left[group(example)];
  std::map<std::string, std::size_t> tenth;
  for (const auto& [name, count] : left) {
    tenth[name] =
        !options.stratify ? count / 10 : std::max<std::size_t>(count > 2, (count + 5) / 10);
  }
  const Permutation order(all.size(), options.data_seed, 2);
  for (std::size_t i = 0; i < all.size(); ++i) {
    Record& example = all[order(i)];
    const std::string name = group(example);
    const std::size_t rest = left[name]--, part = tenth[name];
    custom.splits[rest > 2 * part ? 0 : rest > part ? 1 : 2].push_back(std::move(example));
  }
}

/// Either all examples are pairs or none is.
void check_pairs(const CustomData& custom) {
  const Record* first = nullptr;
  for (const auto& split : custom.splits) {
    for (const Record& example : split) {
      if (first == nullptr) first = &example;
      if (first->second.empty() == example.second.empty()) continue;
      throw DataError(fmt::format("{}: {}, unlike {}", example.place,
                                  example.second.empty() ? "one text" : "two texts", first->place));
    }
  }
}

}  // namespace

CustomData read_custom_data(const TaskInfo& task, const TokenChoice& choice,
                            const PrepareOptions& options) {
  CustomData custom;
  Findings findings{EncodingCheck(choice.kind != "bytes")};
  const CustomFile files{options, choice, custom, findings};
  if (may_hold_reviews(options.from)) return read_imdb(options);
  if (fs::is_directory(options.from)) {
    if (options.stratify) throw UsageError("--stratify: the folder is split already");
    const GlueLayout* const layout = by_content(options) ? glue_layout_in(options.from) : nullptr;
    if (layout != nullptr) {
      read_glue_folder(*layout, files);
    } else {
      if (options.data_seed != PrepareOptions().data_seed) {
        throw UsageError("--data-seed: the folder is split already");
      }
      std::array<fs::path, 3> paths;
      for (std::size_t i = 0; i < 3; ++i) paths[i] = file_of_split(options.from, kSplits[i]);
      for (std::size_t i = 0; i < 3; ++i) custom.splits[i] = files.read(paths[i]);
    }
    report(findings, options);
    check_pairs(custom);
    return custom;
  }
  std::vector<Record> all = files.read(options.from);
  report(findings, options);
  if (all.size() < kFewest) {
    std::set<std::string> labels;
    for (const Record& example : all) labels.insert(example.label);
    throw DataError(fmt::format(
        "{}: {}: {} lines with {} different labels, expected at least {} "
        "lines with 2..{} labels",
        task.name, options.from.string(), all.size(), labels.size(), kFewest, kMaxClasses));
  }
  deal(std::move(all), options, custom);
  check_pairs(custom);
  return custom;
}

}  // namespace skytape::data
