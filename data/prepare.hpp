// Preparing, opening, describing and exporting the data of a task.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/cache/dataset.hpp"
#include "data/files/columns.hpp"
#include "data/files/fetch.hpp"
#include "data/task.hpp"

namespace skytape::data {

inline constexpr std::array<const char*, 3> kSplits = {"train", "dev", "test"};

struct PrepareOptions {
  std::filesystem::path from;  // folder, file or archive to read; empty: generate
  uint64_t data_seed = 1;      // of generators and of seeded splits
  int threads = 0;             // 0: all cores; never changes the result
  bool force = false;          // prepare again although a complete cache is there; replace it
  int64_t limit = 0;           // generate only that many examples in all (0: the official number)
  bool header = false;         // custom data: the first row of each file names the columns
  std::string format;          // custom data: tsv, csv or jsonl; empty: by the files
  ColumnNames columns;         // custom data: which columns are read; empty: the usual ones
  std::string delimiter;       // custom data: of CSV; empty: by the first rows
  bool skip_bad_rows = false;  // custom data: broken rows are left out
  bool stratify = false;       // custom data: one file is split class by class
  std::string tokens;          // custom data: what a token is (TokenChoice); empty: bytes
  std::string learn_tokens;    // custom data: how to learn the file of `tokens`; empty: read it
  int64_t length = 512;        // corpora: tokens of a stored sequence
  /// Called on the way; a total of 0: it is not known.
  std::function<void(std::string_view what, int64_t done, int64_t total)> progress =
      [](std::string_view, int64_t, int64_t) {};
  /// Called for oddities that are tolerated: an empty PNG, …
  std::function<void(std::string_view text)> warn = [](std::string_view) {};
  bool exported = false;             // the set is to be exported: one that cannot be is refused
  std::vector<std::string> used_by;  // runs that need the cache that is there: a refusal names them
};

/// Returns the first flag that is given and that only custom data heed; empty: none is given.
[[nodiscard]] std::string flag_of_custom_data(const PrepareOptions& options);
/// Returns the first flag that is given and that says how rows are read, which a corpus and IMDb's
/// reviews do not have; empty: none is given.
[[nodiscard]] std::string flag_of_rows(const PrepareOptions& options);

/// Reads or generates all splits of `task` into `<root>/<task>/*.skydata`, once: a complete cache
/// is kept unless `from` or `force` is given. Several processes may call it at the same time.
/// DataError: bad source files, or no `from` for a task that cannot be generated. UsageError: other
/// data are there and `force` is not given. Error: the disk is full.
void prepare(const TaskInfo& task, const std::filesystem::path& root,
             const PrepareOptions& options = {});

/// Fetches the official archive of a task, from `url` if that is not empty, into
/// `<root>/downloads`; returns its path. UsageError for a task without one, or another kind of
/// address.
std::filesystem::path fetch_source(const TaskInfo& task, const std::filesystem::path& root,
                                   const std::string& url, const FetchOptions& options = {});

/// True if every split is there and belongs to one preparation (checksums are left to open()).
[[nodiscard]] bool is_prepared(const TaskInfo& task, const std::filesystem::path& root);

/// Split `train`, `dev` or `test`, checked against its checksum. DataError names the file and what
/// is wrong; if nothing is there, the command to type.
[[nodiscard]] Dataset open(const TaskInfo& task, const std::filesystem::path& root,
                           std::string_view split, DevRule dev = DevRule::held_out);

/// UsageError where export_official() would refuse the task or the folder, whatever the data are.
void refuse_export(const TaskInfo& task, const std::filesystem::path& dir);

/// Writes the official files of a generable task: `basic_{train,val,test}.tsv` for ListOps, the
/// image and metadata folders for Pathfinder; of custom data `{train,dev,test}.tsv`. UsageError for
/// a task whose files are not ours.
void export_official(const TaskInfo& task, const std::filesystem::path& root,
                     const std::filesystem::path& dir);

/// The contents of a prepared split.
struct SplitFacts {
  std::string split;
  int64_t examples = 0;
  int64_t tokens = 0;  // of all sequences
  int64_t min_length = 0;
  int64_t max_length = 0;
  double mean_length = 0;
  std::vector<int64_t> label_counts;  // [classes]
  std::string fingerprint;
};

struct Description {
  std::string task;
  std::string name;  // what results must be called
  std::vector<SplitFacts> splits;
  std::string provenance;  // JSON
};

/// Reads every split once and counts. Throws as open() does.
[[nodiscard]] Description describe(const TaskInfo& task, const std::filesystem::path& root);

/// The description as a small table for a terminal.
[[nodiscard]] std::string to_text(const Description& description);

}  // namespace skytape::data
