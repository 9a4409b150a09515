// The tasks: what each one is, and who fills its cache. A new task is one file in data/tasks/ that
// defines `TaskInfo NAME_task()`, and one line in data/tasks.def. It trains by the recipes' rows
// for Text until it has its own rows in train/config/recipes/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace skytape::data {

class CacheSet;
struct PrepareOptions;

/// The positions that attention may read. `length`: everything before the end of the sequence.
/// `nonzero`: ids that are not 0, as the papers' code does; on images it hides every black
/// pixel, whose intensity is 0. Both agree on text, where id 0 is padding only.
enum class MaskRule { length, nonzero };

/// The examples of dev, for a task without a dev split (Text): the last part of train, or
/// the test split, as the benchmark's own code does. Other tasks ignore it.
enum class DevRule { held_out, test };

/// The meaning of a stored sequence's bytes. Custom data are read accordingly.
enum class TokenKind {
  symbols,  // of a small language with a separate parser: TaskInfo::parse
  bytes,    // of text
  pixels,   // intensities
};

/// One classification task of the Long Range Arena (or the user's own). Name, description, tokens
/// and build are every task's to say, then what differs from these defaults.
struct TaskInfo {
  std::string_view name;
  std::string_view description;
  TokenKind tokens;
  int64_t classes = 2;  // 0: the data tells (Dataset::classes); see is_custom_data
  std::vector<std::string_view> labels = {};  // names of the classes; empty: their numbers
  int64_t vocabulary = 512;          // rows of the embedding, as in the papers' configurations
  int symbols = 0;                   // of symbols: stored tokens are 1 to this number
  std::string_view spelt = {};       // of symbols: how users write them
  int64_t max_length = 0;            // tokens kept from the front of a sequence
  int64_t nominal_length = 0;        // max_length padded to a power of two
  int sequences = 1;                 // of an example: 1, or 2 (Retrieval)
  int token_offset = 0;              // id = stored byte + offset: 1 keeps id 0 free for padding
  MaskRule mask = MaskRule::length;  // default rule
  /// Names what build() generates without source files, and its version: another output, another
  /// version. prepare() writes it into the provenance. Empty: nothing is generated.
  std::string_view generator = {};
  bool benchmark = false;        // one of the Long Range Arena's tasks itself: `--tasks all`
  double held_out = 0;           // share of train that serves as dev; 0: the task has a dev split
  std::string_view source = {};  // official address; empty: there is none
  std::string_view source_sha256 = {};  // of the archive there; empty: not published
  /// Reads or generates all splits.
  void (*build)(const TaskInfo&, const PrepareOptions&, CacheSet&) = nullptr;
  /// Writes the official files; null where they are not ours to write.
  void (*export_files)(const TaskInfo&, const std::filesystem::path& root,
                       const std::filesystem::path& dir) = nullptr;
  /// Appends the tokens of a text as users write it; for symbols only. Returns the first word that
  /// is no symbol, or nothing.
  std::string_view (*parse)(std::string_view text, std::vector<uint8_t>& tokens) = nullptr;
  int closing_symbol = -1;  // id of the token that recipe key drop_close leaves out; -1: none
};

/// This stands behind a task's name where `data --limit` made a set of another size than the
/// benchmark's.
inline constexpr std::string_view kLimited = "-limited";

/// Address of the archive with all of the benchmark's files; it has no published digest.
inline constexpr std::string_view kLraArchive =
    "https://storage.googleapis.com/long-range-arena/lra_release.gz";

/// Every task, in the order of the papers' tables.
[[nodiscard]] std::span<const TaskInfo> tasks();

/// The task of that name; UsageError with the nearest name otherwise.
[[nodiscard]] const TaskInfo& find_task(std::string_view name);

/// Returns whether the data are custom data, which bring their labels and perhaps a vocabulary.
[[nodiscard]] inline bool is_custom_data(const TaskInfo& task) { return task.classes == 0; }

}  // namespace skytape::data
