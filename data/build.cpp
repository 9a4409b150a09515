#include "data/build.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <map>
#include <set>

#include "tensor/error.hpp"

namespace skytape::data {

size_t HashedStream::read(std::span<uint8_t> buffer) {
  const size_t got = inner_.read(buffer);
  digest_.update(buffer.first(got));
  bytes_ += got;
  return got;
}

nlohmann::json HashedStream::finish(std::string_view file) {
  std::vector<uint8_t> rest(1 << 16);
  while (read(rest) > 0) {
  }
  return {{"file", file}, {"bytes", bytes_}, {"sha256", digest_.hex()}};
}

std::optional<std::string> choose_folder(const std::filesystem::path& root,
                                         const std::vector<std::string>& names) {
  if (!std::filesystem::is_directory(root)) return {};
  std::map<std::string, int> found;  // folder -> how many of the names it holds
  visit_files(
      root,
      [&](const SourceFile& file) {
        const std::string_view name = leaf(file.path);
        if (std::find(names.begin(), names.end(), name) != names.end()) {
          ++found[file.path.substr(0, file.path.size() - name.size())];
        }
        return false;
      },
      [](const SourceFile&, ByteStream&) {});
  const auto depth = [](const std::string& path) {
    return std::count(path.begin(), path.end(), '/');
  };
  const auto best = std::max_element(found.begin(), found.end(), [&](const auto& a, const auto& b) {
    if (a.second != b.second) return a.second < b.second;
    return depth(a.first) > depth(b.first);
  });
  return best == found.end() ? std::string() : best->first;
}

nlohmann::json read_named_files(
    const TaskInfo& task, const PrepareOptions& options, const std::vector<std::string>& names,
    const std::function<void(std::string_view name, const SourceFile&, ByteStream&)>& read) {
  std::optional<std::string> folder = choose_folder(options.from, names);
  std::set<std::string, std::less<>> missing(names.begin(), names.end());
  nlohmann::json sources = nlohmann::json::array();
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
        progress(options, file.shown, static_cast<int64_t>(sources.size()),
                 static_cast<int64_t>(names.size()));
        HashedStream hashed(stream);
        read(name, file, hashed);
        sources.push_back(hashed.finish(name));
        missing.erase(missing.find(name));
      });
  if (!missing.empty()) {
    throw DataError(fmt::format("{}: {} missing below {}; get it from {}", task.name,
                                fmt::join(missing, ", "), options.from.string(), task.source));
  }
  return sources;
}

void warn(const PrepareOptions& options, std::string_view text) {
  if (options.warn) options.warn(text);
}

void progress(const PrepareOptions& options, std::string_view what, int64_t done, int64_t total) {
  if (options.progress) options.progress(what, done, total);
}

int thread_count(const PrepareOptions& options) {
  return options.threads > 0 ? options.threads : omp_get_max_threads();
}

}  // namespace skytape::data
