// Downloading a task's official archive: resumable, and checked against its published digest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace skytape::data {

struct FetchOptions {
  /// Bytes; total 0: not known.
  std::function<void(std::string_view what, int64_t done, int64_t total)> progress =
      [](std::string_view, int64_t, int64_t) {};
  /// Receives each event as a line of text.
  std::function<void(std::string_view text)> say = [](std::string_view) {};
};

/// Downloads `url` (http or https) to the file `to`. The bytes so far lie in `<to>.part`: a lost
/// connection is taken up again as long as bytes come, and the next call resumes where this one
/// ended; a server without byte ranges starts anew. The file gets its name only when it is whole
/// and has the digest `sha256`, if that is not empty; a file that is there already is only checked.
/// Returns its SHA-256. Error: no network, an HTTP status of failure, a full disk, or a build
/// without libcurl. DataError: another digest; what was downloaded is removed.
std::string fetch(const std::string& url, const std::filesystem::path& to, std::string_view sha256,
                  const FetchOptions& options = {});

}  // namespace skytape::data
