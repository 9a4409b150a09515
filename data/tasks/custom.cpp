// Custom data (task tsv): labels and texts from one file, or split already.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "data/cache/cache.hpp"
#include "data/custom/encoding.hpp"
#include "data/files/json.hpp"
#include "data/files/output.hpp"
#include "data/files/printable.hpp"
#include "data/tasks/build.hpp"
#include "data/tasks/custom_files.hpp"
#include "data/tasks/tokens.hpp"
#include "data/tokenise.hpp"
#include "data/tokenisers/units.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"

namespace skytape::data {
namespace {

namespace fs = std::filesystem;

/// A whole non-negative decimal number, or -1.
std::int64_t parse_number(std::string_view text) {
  return std::max<std::int64_t>(number_in<std::int64_t>(text).value_or(-1), -1);
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
    text += fmt::format("{}'{}'", i == 0 ? "" : ", ", printable_whole(labels[i]));
  }
  if (labels.size() > kShown) text += fmt::format(" and {} more", labels.size() - kShown);
  return text;
}

/// The label without what a writer easily varies: blanks at its ends, the case of its letters, the
/// spelling of a number.
std::string plain(std::string label) {
  constexpr const char* kBlanks = " \t";
  label.erase(label.find_last_not_of(kBlanks) + 1);
  label.erase(0, label.find_first_not_of(kBlanks));
  for (char& c : label) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  const auto number = number_in<double>(label);
  return number ? fmt::format("{}", *number) : label;
}

/// Names two labels that are alike but for that: likely one class, written in two ways.
void warn_about_spellings(const std::map<std::string, std::int64_t>& counts,
                          const PrepareOptions& options) {
  std::map<std::string, std::string> first;  // by plain label
  for (const auto& [label, count] : counts) {
    const auto [at, fresh] = first.try_emplace(plain(label), label);
    if (fresh) continue;
    options.warn(
        fmt::format("'{}' and '{}' are two classes, though they differ only in blanks, "
                    "case or the spelling of a number",
                    printable_whole(at->second), printable_whole(label)));
    return;
  }
}

void warn_about_labels(const CustomData& custom, const std::map<std::string, std::int64_t>& counts,
                       const PrepareOptions& options) {
  std::vector<std::string> single, untrained;
  std::map<std::string, std::int64_t> trained;
  for (const Record& example : custom.splits[0]) ++trained[example.label];
  for (const auto& [label, count] : counts) {
    if (count == 1)
      single.push_back(label);
    else if (!trained.contains(label))
      untrained.push_back(label);
  }
  warn_about_spellings(counts, options);
  if (!single.empty()) {
    options.warn(fmt::format("{} with a single example: {}",
                             single.size() == 1 ? "a class" : "classes", listed(single)));
  }
  if (!untrained.empty()) {
    options.warn(fmt::format("train has no example of {}", listed(untrained)));
  }
}

/// Says which label stands in first rows and nowhere else: a header that is not known by its names.
void warn_about_first_rows(const CustomData& custom,
                           const std::map<std::string, std::int64_t>& counts,
                           const PrepareOptions& options) {
  std::map<std::string, std::int64_t> first;
  for (const std::string& label : custom.first_labels) ++first[label];
  for (const auto& [label, count] : first) {
    if (counts.at(label) != count) continue;
    options.warn(fmt::format(
        "'{}' is the label of {} and of no other: if that row names the columns, add --header "
        "(with "
        "--label-column and --text-column if the names are not the usual ones)",
        printable_whole(label), count == 1 ? "a first row" : fmt::format("{} first rows", count)));
  }
}

/// Counts the texts of dev and test that are in train, too, and warns of them.
Json count_duplicates(const CustomData& custom, const PrepareOptions& options) {
  using Texts = std::pair<std::string_view, std::string_view>;
  std::map<Texts, std::string_view> trained;  // to labels
  for (const Record& example : custom.splits[0]) {
    trained.emplace(Texts(example.text, example.second), example.label);
  }
  Json counts = Json::object();
  for (const std::size_t i : {1, 2}) {
    std::int64_t same = 0, other_label = 0;
    for (const Record& example : custom.splits[i]) {
      const auto found = trained.find(Texts(example.text, example.second));
      if (found == trained.end()) continue;
      ++same;
      other_label += found->second != example.label;
    }
    if (same == 0) continue;
    counts[kSplits[i]] = same;
    options.warn(fmt::format("{} of {} texts of {} are in train, too ({} with another label)", same,
                             custom.splits[i].size(), kSplits[i], other_label));
  }
  return counts;
}

/// Says how many texts lose their end.
void warn_about_length(const TaskInfo& task, std::int64_t longer, std::int64_t all,
                       const PrepareOptions& options) {
  if (longer == 0) return;
  options.warn(
      fmt::format("{} of {} texts have more than {} tokens: a run reads the first {} "
                  "(train --set max_length=… reads more)",
                  longer, all, task.max_length, task.max_length));
}

/// The vocabulary that the training split makes; null: tokens are bytes.
std::shared_ptr<const Vocabulary> vocabulary_of_training(const TokenChoice& choice,
                                                         const CustomData& custom,
                                                         const PrepareOptions& options,
                                                         CacheSet& set) {
  const auto unit = find_token_unit(choice.kind);
  if (!unit && options.learn_tokens.empty()) return nullptr;
  std::vector<std::string> texts;
  for (const Record& example : custom.splits[0]) {
    for (const std::string* text : {&example.text, &example.second}) {
      EncodingCheck(true).see(*text, example.place);  // a vocabulary is of characters
      if (text == &example.text || !text->empty()) texts.push_back(*text);
    }
  }
  return unit ? vocabulary_of(*unit, texts) : learn_vocabulary(choice, options, texts, set);
}

/// Refuses to export pairs that are stored in such a way that their texts are one.
void refuse_joined_pairs(const Vocabulary& vocabulary) {
  if (vocabulary.end_of_text() >= 0) return;
  throw UsageError(fmt::format("--export: pairs of {} are stored without an end between them",
                               vocabulary.kind()));
}

Json provenance_of(const CustomData& custom, const std::vector<std::string>& labels,
                   const Vocabulary* vocabulary, const PrepareOptions& options) {
  Json provenance = {{"how", "read"}, {"sources", custom.sources}, {"labels", labels}};
  if (!custom.splits_are.empty()) provenance["splits"] = custom.splits_are;
  if (custom.splits_are.empty() && fs::is_directory(options.from)) {
    provenance["splits"] = "the user's";
  } else {
    provenance["data_seed"] = options.data_seed;
  }
  if (options.stratify) provenance["stratified"] = true;
  if (!custom.splits[0].front().second.empty()) provenance["pairs"] = true;
  const Json duplicates = count_duplicates(custom, options);
  if (!duplicates.empty()) provenance["in_train_too"] = duplicates;
  if (vocabulary) put_vocabulary(*vocabulary, provenance);
  return provenance;
}

/// One file of records, split 80/10/10 by a seeded permutation; or a folder with a file for each of
/// train, dev and test, taken as they are. Labels may be any words; sorted (as numbers if all are),
/// they become the classes 0, 1, …. What is odd but usable is a warning: classes with a single
/// example, labels that training never shows, texts longer than a run reads.
/// A folder in the layout of GLUE has train.tsv and dev.tsv: the second is the test split, whose
/// labels are public, and a twentieth of the first the dev split. The texts of a pair make one
/// sequence, with the tokens' end of a text between them (bytes: a tab).
/// IMDb's archive, or the folder that it unpacks to: its test split is test, a twentieth of its
/// train split dev; the classes are neg and pos.
void build_own(const TaskInfo& task, const PrepareOptions& options, CacheSet& set) {
  const TokenChoice choice = chosen_tokens(options);
  // Before the texts, which may take long. Null: bytes, or the training split makes it.
  std::shared_ptr<const Vocabulary> vocabulary = given_vocabulary(choice, options);
  const CustomData custom = read_custom_data(task, choice, options);
  std::map<std::string, std::int64_t> counts;
  for (const auto& split : custom.splits) {
    for (const Record& example : split) ++counts[example.label];
  }
  if (counts.size() < 2 || counts.size() > kMaxClasses) {
    throw DataError(fmt::format("{}: {}: {} different label{}, expected 2..{}", task.name,
                                options.from.string(), counts.size(), counts.size() == 1 ? "" : "s",
                                kMaxClasses));
  }
  warn_about_labels(custom, counts, options);
  warn_about_first_rows(custom, counts, options);
  const std::vector<std::string> labels = sorted_labels(counts);
  std::map<std::string, std::int32_t> classes;
  for (const std::string& label : labels) {
    classes.emplace(label, static_cast<std::int32_t>(classes.size()));
  }

  if (!vocabulary) vocabulary = vocabulary_of_training(choice, custom, options, set);
  const bool pairs = !custom.splits[0].front().second.empty();
  if (options.exported && pairs && vocabulary) refuse_joined_pairs(*vocabulary);
  if (vocabulary) set.token_bytes = 2;
  set.classes = static_cast<std::int64_t>(labels.size());
  std::int64_t longer = 0, all = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    CacheWriter& out = set.split(kSplits[i]);
    for (const Record& example : custom.splits[i]) {
      const std::int32_t label = classes.at(example.label);
      std::string text = example.texts();
      if (pairs && !vocabulary) mark_end(text, example.text.size());
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

  const Json provenance = provenance_of(custom, labels, vocabulary.get(), options);
  // Texts may be in any encoding; JSON is in UTF-8.
  set.provenance = json_text(provenance, {.ascii = true});
}

/// Brings the texts of a split back from its tokens.
class SplitTexts {
 public:
  SplitTexts(const TaskInfo& task, const fs::path& root, const char* split)
      : data_(open(task, root, split)) {
    const Json provenance = try_parse_json(data_.provenance());
    labels_ = provenance.value("labels", std::vector<std::string>());
    pairs_ = provenance.value("pairs", false);
    if (has_vocabulary(provenance)) vocabulary_ = vocabulary_in(provenance);
    if (pairs_ && vocabulary_) refuse_joined_pairs(*vocabulary_);
  }

  [[nodiscard]] std::int64_t size() const { return data_.size(); }
  [[nodiscard]] bool pairs() const { return pairs_; }

  [[nodiscard]] Record at(std::int64_t i) const {
    Record record{
        .label = labels_.at(static_cast<std::size_t>(data_.label(i))), .text = {}, .place = {}};
    if (vocabulary_) {
      const auto tokens = data_.wide_tokens(i);
      std::tie(record.text, record.second) = divided(
          std::vector<std::int32_t>(tokens.begin(), tokens.end()), vocabulary_->end_of_text(),
          [&](auto part) { return vocabulary_->text_of(part); });
    } else {
      const auto bytes = data_.tokens(i);
      std::tie(record.text, record.second) =
          divided(std::vector<char>(bytes.begin(), bytes.end()), '\t',
                  [](auto part) { return std::string(part.begin(), part.end()); });
    }
    return record;
  }

 private:
  /// The texts of a pair, or one text alone. The second begins behind the first `end`.
  template <class Token, class TextOf>
  [[nodiscard]] std::pair<std::string, std::string> divided(const std::vector<Token>& tokens,
                                                            Token end, TextOf text_of) const {
    const std::span<const Token> all(tokens);
    if (!pairs_) return {text_of(all), ""};
    const auto first = static_cast<std::size_t>(std::ranges::find(tokens, end) - tokens.begin());
    return {text_of(all.first(first)), text_of(all.subspan(std::min(first + 1, all.size())))};
  }

  Dataset data_;
  std::vector<std::string> labels_;
  bool pairs_ = false;
  std::shared_ptr<const Vocabulary> vocabulary_;
};

/// Writes the splits as files that build_own reads again: `{train,dev,test}.tsv`, or `.jsonl` where
/// a text has line ends or is one of a pair. Of words and integers what the model reads.
void export_own(const TaskInfo& task, const fs::path& root, const fs::path& dir) {
  fs::create_directories(dir);
  std::deque<OutputFile> files;  // none is there unless all could be written
  for (const char* split : kSplits) {
    const SplitTexts texts(task, root, split);
    bool lines = !texts.pairs();  // no text has a line end
    for (std::int64_t i = 0; i < texts.size() && lines; ++i) {
      lines = texts.at(i).text.find_first_of("\r\n") == std::string::npos;
    }
    OutputFile& file = files.emplace_back(dir / (std::string(split) + (lines ? ".tsv" : ".jsonl")));
    for (std::int64_t i = 0; i < texts.size(); ++i) {
      const Record row = texts.at(i);
      if (lines) {
        file.write(fmt::format("{}\t{}\n", row.label, row.text));
      } else {
        Json record = {{"label", row.label}, {"text", row.text}};
        if (texts.pairs()) record["text2"] = row.second;
        if (first_not_utf8(row.texts()) != std::string::npos) {
          throw DataError(fmt::format(
              "--export: {}: '{}' is no UTF-8: expected it, as {} are written as JSON "
              "Lines",
              split, printable(row.texts()), texts.pairs() ? "pairs" : "texts with line ends"));
        }
        file.write(json_text(record) + "\n");
      }
    }
  }
  for (OutputFile& file : files) file.sync();
  for (OutputFile& file : files) file.commit();
}

}  // namespace

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
