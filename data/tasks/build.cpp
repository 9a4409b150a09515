#include "data/tasks/build.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "data/cache/cache.hpp"
#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"

namespace skytape::data {
namespace {

/// A folder of a source tree, with the part of a list of files that it holds.
struct FoundFolder {
  std::string path;  // inside the tree, "" or ending in '/'
  size_t files = 0;
  uint64_t bytes = 0;
};

/// The folder at any depth of `root` that holds most of `names`; of equals, the one with most
/// bytes. Nothing for an archive, which is read only once: there the first folder found counts.
std::optional<FoundFolder> find_folder(const std::filesystem::path& root,
                                       const std::vector<std::string>& names) {
  if (!std::filesystem::is_directory(root)) return {};
  std::map<std::string, FoundFolder> found;
  visit_files(
      root,
      [&](const SourceFile& file) {
        const std::string_view name = leaf(file.path);
        if (std::find(names.begin(), names.end(), name) != names.end()) {
          FoundFolder& folder = found[file.path.substr(0, file.path.size() - name.size())];
          ++folder.files;
          folder.bytes += std::filesystem::file_size(file.shown);
        }
        return false;
      },
      [](const SourceFile&, ByteStream&) {});
  FoundFolder best;
  for (auto& [path, folder] : found) {
    folder.path = path;
    if (std::pair(folder.files, folder.bytes) > std::pair(best.files, best.bytes)) best = folder;
  }
  return best;
}

}  // namespace

size_t HashedStream::read(std::span<uint8_t> buffer) {
  const size_t got = inner_.read(buffer);
  digest_.update(buffer.first(got));
  bytes_ += got;
  return got;
}

Json HashedStream::finish(std::string_view file) {
  std::vector<uint8_t> rest(1 << 16);
  while (read(rest) > 0) {
  }
  return {{"file", file}, {"bytes", bytes_}, {"sha256", digest_.hex()}};
}

const std::vector<std::string>& find_form(const std::filesystem::path& root,
                                          const std::vector<std::vector<std::string>>& forms) {
  size_t best = 0;
  std::tuple<bool, uint64_t> most{false, 0};
  for (size_t i = 0; i < forms.size(); ++i) {
    const auto found = find_folder(root, forms[i]);
    if (!found) return forms[0];
    const std::tuple<bool, uint64_t> here{found->files == forms[i].size(), found->bytes};
    if (here > most) most = here, best = i;
  }
  return forms[best];
}

Json read_named_files(
    const TaskInfo& task, const PrepareOptions& options, const std::vector<std::string>& names,
    const std::function<void(std::string_view name, const SourceFile&, ByteStream&)>& read) {
  std::optional<std::string> folder;
  if (const auto found = find_folder(options.from, names)) folder = found->path;
  std::set<std::string, std::less<>> missing(names.begin(), names.end());
  Json sources = Json::array();
  visit_files(
      options.from,
      [&](const SourceFile& file) {
        const std::string_view name = leaf(file.path);
        if (!missing.contains(name)) return false;
        const std::string here = file.path.substr(0, file.path.size() - name.size());
        if (!folder) folder = here;
        return here == *folder;
      },
      [&](const SourceFile& file, ByteStream& stream) {
        const std::string_view name = leaf(file.path);
        options.progress(file.shown, static_cast<int64_t>(sources.size()),
                         static_cast<int64_t>(names.size()));
        HashedStream hashed(stream);
        read(name, file, hashed);
        sources.push_back(hashed.finish(name));
        missing.erase(missing.find(name));
      });
  if (!missing.empty()) {
    throw DataError(fmt::format("{}: {} missing below {}; get it from {}", task.name,
                                listed(std::vector(missing.begin(), missing.end())),
                                options.from.string(), task.source));
  }
  return sources;
}

void call_limited(int64_t limit, CacheSet& set, Json& provenance) {
  set.name += kLimited;
  provenance["limit"] = limit;
}

int thread_count(const PrepareOptions& options) {
  return options.threads > 0 ? options.threads : omp_get_max_threads();
}

}  // namespace skytape::data
