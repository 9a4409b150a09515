// A run's folder: config.json, metrics.jsonl, a TensorBoard event file, last.safetensors,
// best.safetensors, result.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/json_fwd.hpp"
#include "train/run/run_state.hpp"

namespace skytape::train {

enum class ExistingRun;

/// Appends whole lines or records to a file. Error naming it when the disk is full; what was there
/// before stays as it was.
class AppendFile {
 public:
  AppendFile() = default;
  explicit AppendFile(const std::filesystem::path& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  AppendFile& operator=(AppendFile&& other) noexcept;

  void append(std::string_view bytes);

 private:
  std::filesystem::path path_;
  int file_ = -1;
};

// The files of a run's folder.
[[nodiscard]] inline std::filesystem::path config_file(const std::filesystem::path& folder) {
  return folder / "config.json";
}
[[nodiscard]] inline std::filesystem::path result_file(const std::filesystem::path& folder) {
  return folder / "result.json";
}
[[nodiscard]] inline std::filesystem::path last_file(const std::filesystem::path& folder) {
  return folder / "last.safetensors";
}
[[nodiscard]] inline std::filesystem::path best_file(const std::filesystem::path& folder) {
  return folder / "best.safetensors";
}

/// Inside the folder of a run of two phases: the folder of the first, a separate run.
inline constexpr const char* kPretrainingFolder = "pretraining";

class RunFolder {
 public:
  /// Creates the folder and locks it while the object lives. UsageError if it holds a run and
  /// `existing` is refuse, or if another process has it; replace removes the files of the run
  /// there and of its first phase, and no others.
  RunFolder(std::filesystem::path path, ExistingRun existing);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }

  /// Starts the metrics at a checkpoint's state: lines of later steps, final ones, and evaluations
  /// that the state does not know, which are made again, are cut off. The event file is written
  /// anew from the rest.
  void start_metrics(const RunState& state);

  /// One object for metrics.jsonl: "kind" (train, eval, chance, final), "step", numbers. Adds
  /// "time" and mirrors every number to TensorBoard as "<kind or split>/<key>", behind "<phase>/"
  /// if it says one.
  void add_metric(data::Json metric);

  /// Writes `json` to a file of the folder, whole or not at all.
  void write_json(const std::filesystem::path& path, const data::Json& json) const;

 private:
  void lock();

  std::filesystem::path path_;
  int lock_ = -1;  // the file .lock
  AppendFile metrics_, events_;
};

/// DataError if what a run calls its own in the folder is no file: opening a named pipe would wait
/// for who reads it, for ever.
void refuse_odd_files(const std::filesystem::path& folder);

/// UsageError if the folder holds a run or the first phase of one, or a file of a name that a run
/// writes: what ExistingRun::refuse does.
void refuse_existing(const std::filesystem::path& path);

/// The bytes of a file in a run's folder. DataError with the reason where it cannot be read.
[[nodiscard]] std::string read_text(const std::filesystem::path& path);

/// The objects of a metrics.jsonl, in order; a last line that a crash cut short is left out, and a
/// missing file is an empty one. DataError if it is there and cannot be read.
[[nodiscard]] std::vector<data::Json> read_metrics(const std::filesystem::path& path);

/// Parses a file that holds a JSON object. DataError naming it if it is missing or broken.
[[nodiscard]] data::Json read_json(const std::filesystem::path& path);
/// The config.json of a run's folder, its parts checked. DataError if it holds none, or a broken
/// one.
[[nodiscard]] data::Json read_config(const std::filesystem::path& folder);
/// The config.json of the run that a folder holds, {"file", "config"}: of a run of two phases the
/// one of the first, less its "phase", until the second begins. Null: the folder holds no run.
[[nodiscard]] data::Json find_config(const std::filesystem::path& folder);

}  // namespace skytape::train
