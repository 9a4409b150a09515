// All splits of one preparation, behind the lock of the task's folder.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "data/cache/cache.hpp"
#include "data/cache/meanings.hpp"
#include "data/files/digest.hpp"
#include "data/files/json.hpp"
#include "data/files/output.hpp"
#include "data/files/source.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

template <size_t N> void set_text(char (&field)[N], std::string_view text) {
  ENSURE(text.size() < N, "cache: name '", text, "' is longer than ", N - 1, " characters");
  std::memcpy(field, text.data(), text.size());
}

}  // namespace

CacheSet::CacheSet(std::string_view task, const std::filesystem::path& folder, int sequences,
                   int token_offset)
    : name(task), task_(task), folder_(folder), sequences_(sequences), token_offset_(token_offset) {
  make_folder(folder_);
  const auto lock_path = folder_ / ".lock";
  lock_ = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) {
    throw Error(fmt::format("{}: cannot create it: {}", lock_path.string(), std::strerror(errno)));
  }
  while (::flock(lock_, LOCK_EX) != 0) {
    ENSURE(errno == EINTR, lock_path.string(), ": cannot lock it: ", std::strerror(errno));
  }
  std::error_code failure;  // creating the same file reports it
  for (const auto& entry : entries_of(folder_)) {
    if (entry.path().extension() == ".tmp") std::filesystem::remove(entry.path(), failure);
  }
}

CacheSet::~CacheSet() {
  splits_.clear();  // temporary files go before the lock does
  if (lock_ >= 0) ::close(lock_);
}

CacheWriter& CacheSet::split(std::string_view split_name) {
  for (auto& [known, writer] : splits_) {
    if (known == split_name) return *writer;
  }
  splits_.emplace_back(split_name,
                       std::make_unique<CacheWriter>(cache_path(folder_, split_name), sequences_));
  return *splits_.back().second;
}

void CacheSet::finish_contents() {
  if (finished_) return;
  for (auto& [split_name, writer] : splits_) {
    ENSURE(writer->examples() > 0, task_, ": split ", split_name, " has no example");
    const auto [low, high] = std::minmax_element(writer->labels_.begin(), writer->labels_.end());
    ENSURE(*low >= 0 && *high < classes, task_, ": split ", split_name, " has labels ", *low, "..",
           *high, ", expected 0..", classes - 1);
    writer->finish_content();
  }
  finished_ = true;
}

bool CacheSet::agrees_with_stored() {
  finish_contents();
  const Json ours = try_parse_json(provenance);
  return std::all_of(splits_.begin(), splits_.end(), [&](const auto& split) {
    const auto path = cache_path(folder_, split.first);
    if (!std::filesystem::exists(path)) return true;
    CacheHeader stored;
    Json theirs;
    try {
      const auto file = CacheFile::open(path);
      stored = file->header();
      theirs = try_parse_json(file->provenance());
    } catch (const DataError&) {
      return true;  // broken, or by another version of the format: nobody can read it
    }
    return stored.content_checksum == split.second->header_.content_checksum &&
           stored.classes == static_cast<uint64_t>(classes) && stored.name == name &&
           std::all_of(std::begin(kMeanings), std::end(kMeanings),
                       [&](const char* key) { return member(ours, key) == member(theirs, key); });
  });
}

void CacheSet::commit() {
  finish_contents();
  uint64_t number = checksum(as_bytes(provenance));
  for (auto& [split_name, writer] : splits_) {
    number = number * 31 + writer->header_.content_checksum;
  }
  for (auto& [split_name, writer] : splits_) {
    CacheHeader& header = writer->header_;
    set_text(header.task, task_);
    set_text(header.name, name);
    set_text(header.split, split_name);
    header.set = number;
    header.token_offset = static_cast<uint32_t>(token_offset_);
    header.classes = static_cast<uint32_t>(classes);
    header.token_bytes = static_cast<uint32_t>(token_bytes);
    writer->finish(provenance);
  }
  // Train goes last: whoever finds it finds its siblings. Between two renames the splits of an
  // older preparation differ in `set`, so the mixture does not count as complete.
  std::sort(splits_.begin(), splits_.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::stable_partition(splits_.begin(), splits_.end(),
                        [](const auto& split) { return split.first != "train"; });
  if (companion) companion->commit();
  for (auto& [split_name, writer] : splits_) writer->publish();
  const int folder = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
}

}  // namespace skytape::data
