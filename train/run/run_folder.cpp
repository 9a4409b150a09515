#include "train/run/run_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <sstream>
#include <utility>

#include "data/files/json.hpp"
#include "data/files/output.hpp"
#include "data/files/source.hpp"
#include "tensor/core/error.hpp"
#include "train/config/run_config.hpp"
#include "train/formats/json_file.hpp"
#include "train/formats/safetensors.hpp"
#include "train/formats/tensorboard.hpp"
#include "train/run/train_options.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;
using data::Json;

constexpr std::string_view kEventsPrefix = "events.out.tfevents.";
constexpr std::string_view kEventsEnding = ".skytape";  // other programs' have another one

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool is_events(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.starts_with(kEventsPrefix) && name.ends_with(kEventsEnding);
}

bool is_ours(const fs::path& file) {
  const std::string name = file.filename().string();
  for (const char* known :
       {"config.json", "metrics.jsonl", "result.json", "last.safetensors", "best.safetensors"}) {
    if (name == known || (name.starts_with(known) && name.ends_with(".tmp"))) return true;
  }
  return is_events(file);
}

/// Removes what a killed process left unfinished; with `all`, every file of a run.
void clean(const fs::path& folder, bool all) {
  for (const fs::directory_entry& entry : data::entries_of(folder)) {
    if (!entry.is_regular_file() || !is_ours(entry.path())) continue;
    if (all || entry.path().extension() == ".tmp") fs::remove(entry.path());
  }
}

/// The parts of a line of metrics.jsonl that are read again.
constexpr JsonPart kMetricParts[] = {{"kind", JsonKind::text},
                                     {"split", JsonKind::text},
                                     {"phase", JsonKind::text},
                                     {"step", JsonKind::natural},
                                     {"time", JsonKind::number}};

/// The TensorBoard record of a metric.
std::string event_of(const Json& metric) {
  std::string group = metric.value("kind", "train");
  if (metric.contains("split")) group = metric.at("split").get<std::string>();
  if (metric.contains("phase")) group = metric.at("phase").get<std::string>() + "/" + group;
  std::vector<Scalar> scalars;
  for (const auto& [key, value] : metric.items()) {
    if (!value.is_number() || key == "step" || key == "time") continue;
    scalars.push_back({group + "/" + key, value.get<float>()});
  }
  return scalar_event(metric.value("time", 0.0), metric.value("step", std::int64_t{0}), scalars);
}

/// Lines of metrics.jsonl that a run in `state` keeps.
std::vector<Json> kept_metrics(const fs::path& path, const RunState& state) {
  std::vector<Json> kept = read_metrics(path);
  std::erase_if(kept, [&](const Json& metric) {
    const std::string kind = metric.value("kind", "");
    const std::int64_t last = kind == "eval" ? state.evaluated : state.step;
    return kind == "final" || metric.value("step", last + 1) > last;
  });
  return kept;
}

void refuse_files(const fs::path& path) {
  std::error_code error;
  if (fs::exists(config_file(path), error) || fs::exists(last_file(path), error)) {
    throw UsageError(
        fmt::format("{}: holds a run already; --resume continues it, --force "
                    "replaces it (through make: RESUME=1, FORCE=1)",
                    path.string()));
  }
  if (!fs::is_directory(path, error)) return;
  for (const fs::directory_entry& entry : data::entries_of(path)) {
    if (!is_ours(entry.path()) || entry.path().extension() == ".tmp") continue;
    throw UsageError(
        fmt::format("{}: is there, and a run writes a file of that name; --force replaces it, "
                    "--out FOLDER keeps it",
                    entry.path().string()));
  }
}

}  // namespace

AppendFile::AppendFile(const fs::path& path) : path_(path) {
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) {
    throw Error(fmt::format("{}: cannot open it: {}", path.string(), std::strerror(errno)));
  }
}

AppendFile::~AppendFile() {
  if (file_ >= 0) ::close(file_);
}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  return *this;
}

void AppendFile::append(std::string_view bytes) {
  const off_t before = ::lseek(file_, 0, SEEK_END);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = ::write(file_, bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int problem = errno;
      // Best effort: a line is there whole or not at all. The error below is what counts.
      const bool restored = before >= 0 && ::ftruncate(file_, before) == 0;
      throw Error(fmt::format("{}: cannot write to it: {}{}", path_.string(),
                              std::strerror(problem), restored ? "" : " (its last line is cut)"));
    }
    done += static_cast<std::size_t>(written);
  }
}

RunFolder::RunFolder(fs::path path, ExistingRun existing) : path_(std::move(path)) {
  if (existing == ExistingRun::refuse) refuse_existing(path_);
  if (existing == ExistingRun::after_first) refuse_files(path_);
  std::error_code error;
  fs::create_directories(path_, error);
  if (error || !fs::is_directory(path_)) {
    throw Error(fmt::format("{}: cannot create the run's folder: {}", path_.string(),
                            error ? error.message() : "a file of that name exists"));
  }
  lock();
  clean(path_, existing == ExistingRun::replace);
  const fs::path first = path_ / kPretrainingFolder;
  if (existing != ExistingRun::replace || !fs::is_directory(first)) return;
  clean(first, true);
  fs::remove(first / ".lock");
  if (fs::is_empty(first)) fs::remove(first);
}

RunFolder::~RunFolder() {
  if (lock_ >= 0) ::close(lock_);
}

void RunFolder::lock() {
  lock_ = ::open((path_ / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ >= 0 && ::flock(lock_, LOCK_EX | LOCK_NB) == 0) return;
  const int problem = errno;
  if (lock_ >= 0) ::close(lock_);  // the destructor does not run
  if (lock_ >= 0 && problem == EWOULDBLOCK) {
    throw UsageError(fmt::format("{}: another process trains there", path_.string()));
  }
  throw Error(fmt::format("{}: cannot lock it: {}", path_.string(), std::strerror(problem)));
}

void refuse_odd_files(const fs::path& folder) {
  if (!fs::is_directory(folder)) return;
  for (const fs::directory_entry& entry : data::entries_of(folder)) {
    if (!is_ours(entry.path()) || !entry.exists() || entry.is_regular_file()) continue;
    throw DataError(fmt::format("{}: {}, expected a file that can be read and replaced",
                                entry.path().string(),
                                entry.is_fifo() ? "a named pipe" : "not a regular file"));
  }
}

void refuse_existing(const fs::path& path) {
  refuse_files(path);
  refuse_files(path / kPretrainingFolder);
}

void RunFolder::start_metrics(const RunState& state) {
  const std::vector<Json> kept = kept_metrics(metrics(), state);
  for (const fs::directory_entry& entry : data::entries_of(path_)) {
    if (is_events(entry.path())) fs::remove(entry.path());
  }
  std::string lines;
  std::string records = event_file_header(wall_time());
  for (const Json& metric : kept) {
    lines += data::json_text(metric) + "\n";
    records += event_of(metric);
  }
  data::write_file(metrics(), lines);
  metrics_ = AppendFile(metrics());
  events_ = AppendFile(path_ / fmt::format("{}{}{}", kEventsPrefix,
                                           static_cast<std::int64_t>(wall_time()), kEventsEnding));
  events_.append(records);
}

void RunFolder::add_metric(Json metric) {
  metric["time"] = wall_time();
  metrics_.append(data::json_text(metric) + "\n");
  events_.append(event_of(metric));
}

void RunFolder::write_json(const fs::path& path, const Json& json) const {
  data::write_file(path, data::json_text(json, {.indent = 2}) + "\n");
  sync_folder(path_);
}

std::string read_text(const fs::path& path) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 30;
  const std::vector<std::uint8_t> bytes =
      data::read_all(*data::open_file(path), path.string(), kMostBytes);
  return {bytes.begin(), bytes.end()};
}

std::vector<Json> read_metrics(const fs::path& path) {
  std::vector<Json> metrics;
  if (!fs::exists(path)) return metrics;
  std::istringstream in(read_text(path));
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    Json metric = data::try_parse_json(line);
    if (!metric.is_object()) continue;  // cut off by a kill
    const std::string place = fmt::format("{}:{}", path.string(), number);
    check_parts(metric, kMetricParts, place);
    const Json& loss = data::member(metric, "loss");  // null: not finite, or there is none
    if (!loss.is_number() && !loss.is_null()) refuse_json_part(place, "loss", "a number", loss);
    metrics.push_back(std::move(metric));
  }
  return metrics;
}

Json read_json(const fs::path& path) {
  if (fs::exists(path) && !fs::is_regular_file(path)) {
    throw DataError(fmt::format("{}: expected a file, got a folder or a device", path.string()));
  }
  return json_object_in(read_text(path), path.string());
}

Json read_config(const fs::path& folder) {
  const fs::path file = config_file(folder);
  if (!fs::exists(file)) {
    throw DataError(fmt::format("{}: holds no run (no config.json)", folder.string()));
  }
  Json config = read_json(file);
  check_parts(config, file.string());
  return config;
}

Json find_config(const fs::path& folder) {
  if (const fs::path file = config_file(folder); fs::exists(file)) {
    return {{"file", file.string()}, {"config", read_config(folder)}};
  }
  const fs::path first = folder / kPretrainingFolder;
  if (!fs::exists(config_file(first))) return {};
  Json config = read_config(first);
  config.erase("phase");
  return {{"file", config_file(first).string()}, {"config", std::move(config)}};
}

}  // namespace skytape::train
