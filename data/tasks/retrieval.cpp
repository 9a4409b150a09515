#include "data/tasks/retrieval.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>

#include "data/cache/cache.hpp"
#include "data/files/json.hpp"
#include "data/files/printable.hpp"
#include "data/tasks/build.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"

namespace skytape::data {
namespace {

constexpr size_t kKeptBytes = 10000;  // of each document, as the benchmark does before tokenising
constexpr int64_t kOfficialPairs[] = {147086, 18090, 17437};

const std::vector<std::string> kFiveColumns = {"new_aan_pairs.train.tsv", "new_aan_pairs.eval.tsv",
                                               "new_aan_pairs.test.tsv"};
const std::vector<std::string> kIdsOnly = {"new_aan_pairs.train.only_ids.tsv",
                                           "new_aan_pairs.eval.only_ids.tsv",
                                           "new_aan_pairs.test.only_ids.tsv", "documents.tsv"};

std::span<const uint8_t> kept(std::string_view text) {
  return as_bytes(text.substr(0, kKeptBytes));
}

/// Stores each distinct text of a split once: a paper occurs in many pairs.
class DocumentStore {
 public:
  explicit DocumentStore(CacheWriter& out) : out_(out) {}
  uint32_t number_of(std::string_view text) {
    const auto bytes = kept(text);
    const auto [at, fresh] = known_.try_emplace(checksum(bytes), 0);
    if (fresh) at->second = out_.add_document(bytes);
    return at->second;
  }

 private:
  CacheWriter& out_;
  std::unordered_map<uint64_t, uint32_t> known_;  // checksum of the text -> document
};

Json read_five_columns(const TaskInfo& task, const PrepareOptions& options, CacheSet& set) {
  return read_named_files(task, options, kFiveColumns,
                          [&](std::string_view name, const SourceFile& file, ByteStream& stream) {
                            const auto split =
                                std::find(kFiveColumns.begin(), kFiveColumns.end(), name);
                            CacheWriter& out = set.split(kSplits[split - kFiveColumns.begin()]);
                            DocumentStore documents(out);
                            read_pairs(stream, file.shown, true, [&](const RetrievalLine& line) {
                              const uint32_t pair[] = {documents.number_of(line.text1),
                                                       documents.number_of(line.text2)};
                              out.add_example(line.label, pair);
                            });
                          });
}

/// The table `id<TAB>text`.
std::map<std::string, std::string, std::less<>> read_documents(ByteStream& stream,
                                                               const std::string& name) {
  std::map<std::string, std::string, std::less<>> documents;
  LineReader lines(stream, name, kMaxLine);
  for (std::string_view line; lines.next(line);) {
    const size_t tab = line.find('\t');
    if (tab == std::string_view::npos || tab == 0) {
      lines.fail(fmt::format("'{}', expected id<TAB>text", printable(line)));
    }
    const std::string_view text = line.substr(tab + 1, kKeptBytes);
    if (!documents.emplace(line.substr(0, tab), text).second) {
      lines.fail(fmt::format("document '{}' a second time", printable(line.substr(0, tab))));
    }
  }
  return documents;
}

Json read_ids_only(const TaskInfo& task, const PrepareOptions& options, CacheSet& set) {
  struct Pair {
    int label;
    std::string id1, id2;
  };
  std::map<std::string, std::string, std::less<>> texts;
  std::vector<Pair> pairs[3];
  auto sources = read_named_files(
      task, options, kIdsOnly,
      [&](std::string_view name, const SourceFile& file, ByteStream& stream) {
        const size_t number = std::find(kIdsOnly.begin(), kIdsOnly.end(), name) - kIdsOnly.begin();
        if (number == 3) {
          texts = read_documents(stream, file.shown);
          return;
        }
        read_pairs(stream, file.shown, false, [&](const RetrievalLine& line) {
          pairs[number].push_back({line.label, std::string(line.id1), std::string(line.id2)});
        });
      });
  for (int split = 0; split < 3; ++split) {
    CacheWriter& out = set.split(kSplits[split]);
    DocumentStore documents(out);
    for (size_t i = 0; i < pairs[split].size(); ++i) {
      const auto text_of = [&](const std::string& id) -> const std::string& {
        const auto found = texts.find(id);
        if (found == texts.end()) {
          throw DataError(fmt::format("{}:{}: document '{}' is not in documents.tsv",
                                      kIdsOnly[split], i + 1, printable(id)));
        }
        return found->second;
      };
      const Pair& pair = pairs[split][i];
      const uint32_t both[] = {documents.number_of(text_of(pair.id1)),
                               documents.number_of(text_of(pair.id2))};
      out.add_example(pair.label, both);
    }
  }
  return sources;
}

}  // namespace

void read_pairs(ByteStream& stream, const std::string& name, bool with_texts,
                const std::function<void(const RetrievalLine&)>& each) {
  const size_t columns = with_texts ? 5 : 3;
  LineReader lines(stream, name, kMaxLine);
  for (std::string_view line; lines.next(line);) {
    std::vector<std::string_view> field = split(line, '\t', columns);
    if (field.size() < columns) {
      lines.fail(fmt::format("{} columns, expected {}: label, id1, id2{}", field.size(), columns,
                             with_texts ? ", text1, text2" : ""));
    }
    field.resize(5);
    const double label = number_in<double>(field[0]).value_or(-1);
    if (label != 0 && label != 1) {
      lines.fail(fmt::format("label '{}', expected 0 or 1", printable(field[0])));
    }
    each({label == 1 ? 1 : 0, field[1], field[2], field[3], field[4]});
  }
}

namespace {

/// Reads `new_aan_pairs.{train,eval,test}.tsv`, or `….only_ids.tsv` with `documents.tsv`. A set
/// that does not have the official numbers of pairs is called `retrieval-substitute`.
void build_retrieval(const TaskInfo& task, const PrepareOptions& options, CacheSet& set) {
  const bool ids_only = find_form(options.from, {kFiveColumns, kIdsOnly}).size() == 4;
  const auto sources =
      ids_only ? read_ids_only(task, options, set) : read_five_columns(task, options, set);
  bool official = true;
  for (int i = 0; i < 3; ++i) official &= set.split(kSplits[i]).examples() == kOfficialPairs[i];
  if (!official) {
    set.name = "retrieval-substitute";
    options.warn("these are not the official AAN pairs: results are called retrieval-substitute");
  }
  set.provenance = json_text({{"how", "read"},
                              {"form", ids_only ? "ids and documents" : "five columns"},
                              {"official", official},
                              {"sources", sources}});
}

}  // namespace

// The two names differ in the paths of their caches.
TaskInfo retrieval_task() {
  return {.name = "retrieval",
          .description = "does one paper cite the other? byte by byte (AAN)",
          .tokens = TokenKind::bytes,
          .max_length = 4000,
          .nominal_length = 4096,
          .sequences = 2,
          .token_offset = 1,
          .benchmark = true,
          .source = kLraArchive,
          .build = build_retrieval};
}

TaskInfo retrieval_substitute_task() {
  TaskInfo task = retrieval_task();
  task.name = "retrieval-substitute";
  task.description = "retrieval on papers that are not the official set";
  task.benchmark = false;
  return task;
}

}  // namespace skytape::data
