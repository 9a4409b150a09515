// The tasks: what each one is, and who fills its cache. A new task is one row in task.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skytape::data {

class CacheSet;
struct PrepareOptions;

/// Which positions attention may read. `length`: everything before the end of the sequence.
/// `nonzero`: ids that are not 0, as the papers' code does; on images it hides black pixels
/// (trap T1 of the benchmark). Both agree on text, where id 0 is padding only.
enum class MaskRule { length, nonzero };

/// "length" or "nonzero"; parse_mask_rule throws UsageError for any other name.
[[nodiscard]] std::string_view to_string(MaskRule rule);
[[nodiscard]] MaskRule parse_mask_rule(std::string_view name);

/// One classification task of the Long Range Arena (or the user's own).
struct TaskInfo {
  std::string_view name;
  int64_t classes;             // 0: the data tells (Dataset::classes)
  int64_t vocabulary;          // rows of the embedding, as in the papers' configurations
  int64_t max_length;          // tokens kept from the front of a sequence
  int64_t nominal_length;      // max_length padded to a power of two
  int towers;                  // sequences per example: 1, or 2 (Retrieval)
  int token_offset;            // id = stored byte + offset: 1 keeps id 0 free for padding
  MaskRule mask;               // default rule
  std::string_view generator;  // that prepare() uses without source files, and its version; or ""
  bool benchmark;              // a column of the benchmark, not a variant or own data
  double held_out;  // share of train that serves as dev; 0: the task has its own dev split
  std::string_view description;
  std::string_view source;         // official address; empty: there is none
  std::string_view source_sha256;  // of the archive there; empty: not published
  // Reads or generates all splits.
  void (*build)(const TaskInfo&, const PrepareOptions&, CacheSet&);
  // Writes the official files; null where they are not ours to write.
  void (*export_files)(const TaskInfo&, const std::filesystem::path& root,
                       const std::filesystem::path& dir);
};

/// Every task, in the order of the papers' tables.
[[nodiscard]] std::span<const TaskInfo> tasks();

/// The task of that name; UsageError with the nearest name otherwise.
[[nodiscard]] const TaskInfo& find_task(std::string_view name);

/// Names of all tasks, for help texts and suggestions.
[[nodiscard]] std::vector<std::string> task_names();

}  // namespace skytape::data
