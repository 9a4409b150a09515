#include "train/lab/lra/pack.hpp"

#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "data/files/output.hpp"
#include "data/files/printable.hpp"
#include "data/files/source.hpp"
#include "tensor/core/error.hpp"
#include "train/lab/lra/finished_runs.hpp"
#include "train/run/run_folder.hpp"

#ifdef SKYTAPE_HAVE_ARCHIVE
#include <archive.h>
#include <archive_entry.h>
#endif

namespace skytape::train {
namespace {

namespace fs = std::filesystem;

// config.json comes last when unpacked: without it a folder's run would be taken for another one.
constexpr const char* kPacked[] = {"metrics.jsonl", "result.json", "config.json"};
constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // of a file in an archive

bool is_packed(const data::SourceFile& file) {
  return std::ranges::any_of(kPacked,
                             [&](const char* name) { return data::leaf(file.path) == name; });
}

#ifdef SKYTAPE_HAVE_ARCHIVE

/// A .tar.gz in memory.
class TarGz {
 public:
  TarGz() : handle_(archive_write_new()) {
    archive_write_add_filter_gzip(handle_);
    archive_write_set_format_pax_restricted(handle_);
    check(archive_write_open(handle_, &bytes_, nullptr, take, nullptr));
  }
  ~TarGz() { archive_write_free(handle_); }
  TarGz(const TarGz&) = delete;
  TarGz& operator=(const TarGz&) = delete;

  void add(const std::string& name, const std::string& bytes) {
    archive_entry* const entry = archive_entry_new();
    archive_entry_set_pathname(entry, name.c_str());
    archive_entry_set_size(entry, static_cast<la_int64_t>(bytes.size()));
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    const int code = archive_write_header(handle_, entry);
    archive_entry_free(entry);
    check(code);
    ENSURE(archive_write_data(handle_, bytes.data(), bytes.size()) == std::ssize(bytes), "packing ",
           name, ": ", archive_error_string(handle_));
  }

  /// Ends the archive.
  const std::string& bytes() {
    check(archive_write_close(handle_));
    return bytes_;
  }

 private:
  static la_ssize_t take(archive*, void* bytes, const void* part, std::size_t count) {
    static_cast<std::string*>(bytes)->append(static_cast<const char*>(part), count);
    return static_cast<la_ssize_t>(count);
  }
  void check(int code) {
    if (code != ARCHIVE_OK) {
      throw Error(fmt::format("packing results: {}", archive_error_string(handle_)));
    }
  }

  archive* handle_;
  std::string bytes_;
};

#endif

}  // namespace

#ifdef SKYTAPE_HAVE_ARCHIVE

void pack_results(const fs::path& runs, const fs::path& archive) {
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : data::entries_of(runs)) {
    if (fs::exists(result_file(entry.path()))) folders.push_back(entry.path());
  }
  TarGz packed;
  for (const fs::path& folder : folders) {
    for (const char* file : kPacked) {
      if (!fs::exists(folder / file)) continue;
      packed.add(folder.filename().string() + "/" + file, read_text(folder / file));
    }
  }
  data::write_file(archive, packed.bytes());
}

#else

void pack_results(const fs::path&, const fs::path& archive) {
  throw Error(fmt::format("{}: this program was built without libarchive (libarchive-dev)",
                          archive.string()));
}

#endif

void refuse_other_file(const fs::path& archive) {
  std::error_code error;
  if (!fs::exists(archive, error)) return;
  const auto refuse = [&](const std::string& found) {
    throw UsageError(
        fmt::format("--pack {}: is there, and {}; expected a new FILE.tar.gz, or one that --pack "
                    "wrote",
                    archive.string(), found));
  };
  if (!fs::is_regular_file(archive, error)) refuse("is no regular file");
  if (!data::is_archive(archive)) refuse("is no archive");
  std::string other;  // an entry that is of no run
  const auto is_other = [&](const data::SourceFile& file) {
    const bool of_run = is_packed(file) && !data::parent(file.path).empty();
    if (!of_run && other.empty()) other = file.path;
    return false;
  };
  try {
    data::visit_files(archive, is_other, [](const data::SourceFile&, data::ByteStream&) {});
  } catch (const DataError& broken) {
    refuse(fmt::format("cannot be read: {}", broken.what()));
  }
  if (!other.empty()) {
    refuse(fmt::format("holds '{}', which is of no run", data::printable(other, 80)));
  }
}

int unpack_results(const fs::path& archive, const fs::path& runs) {
  std::map<std::string, std::map<std::string, std::string>> folders;  // bytes by folder and file
  data::visit_files(archive, is_packed, [&](const data::SourceFile& file, data::ByteStream& in) {
    const std::vector<std::uint8_t> bytes = data::read_all(in, file.shown, kMostBytes);
    folders[std::string(data::parent(file.path))][std::string(data::leaf(file.path))] =
        std::string(bytes.begin(), bytes.end());
  });
  int made = 0;
  for (const auto& [name, files] : folders) {
    const fs::path folder = runs / name;
    if (name.empty() || holds_run(folder)) continue;
    data::make_folder(folder);
    for (const char* file : kPacked) {
      if (files.contains(file)) data::write_file(folder / file, files.at(file));
    }
    ++made;
  }
  return made;
}

}  // namespace skytape::train
