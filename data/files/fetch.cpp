#include "data/files/fetch.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "data/files/digest.hpp"
#include "data/files/output.hpp"
#include "data/files/source.hpp"
#include "tensor/core/error.hpp"

#ifdef SKYTAPE_HAVE_CURL
#include <curl/curl.h>
#endif

namespace skytape::data {
namespace {

namespace fs = std::filesystem;

#ifdef SKYTAPE_HAVE_CURL

constexpr long kConnectSeconds = 30;
constexpr long kStalledSeconds = 60;  // without a byte: the connection is lost

int64_t size_of(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

/// One connection that appends to a file.
class Download {
 public:
  enum class End { whole, lost, no_ranges };

  Download(const std::string& url, const fs::path& part, const FetchOptions& options)
      : url_(url),
        part_(part),
        options_(options),
        begin_(size_of(part)),
        file_(std::fopen(part.c_str(), "abe")),
        curl_(curl_easy_init()) {
    if (!file_) fail_writing();
    if (!curl_) throw Error("libcurl cannot be started");
  }

  /// Error unless it ended in one of the ways from which fetch() can resume.
  End run() {
    CURL* const c = curl_.get();
    curl_easy_setopt(c, CURLOPT_URL, url_.c_str());
    curl_easy_setopt(c, CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(begin_));
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, 10L);
    curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, kStalledSeconds);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, error_text_);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, this);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, report);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, this);
    const CURLcode code = curl_easy_perform(c);
    if (std::fflush(file_.get()) != 0 || ::fsync(::fileno(file_.get())) != 0 ||
        code == CURLE_WRITE_ERROR) {
      fail_writing();
    }
    long status = 0;
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    constexpr long kRangeNotSatisfiable = 416;  // the part is longer than the file
    if (code == CURLE_RANGE_ERROR || status == kRangeNotSatisfiable) return End::no_ranges;
    if (code == CURLE_OK) return End::whole;
    if (size_of(part_) > begin_) return End::lost;
    if (begin_ == 0) fs::remove(part_);
    throw Error(fmt::format("{}: {}", url_,
                            status >= 400  ? fmt::format("HTTP status {}", status)
                            : *error_text_ ? std::string(error_text_)
                                           : std::string(curl_easy_strerror(code))));
  }

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
    void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
  };

  static size_t take(char* bytes, size_t size, size_t count, void* self) {
    return std::fwrite(bytes, size, count, static_cast<Download*>(self)->file_.get());
  }
  static int report(void* self, curl_off_t total, curl_off_t done, curl_off_t, curl_off_t) {
    const auto* d = static_cast<const Download*>(self);
    d->options_.progress("downloading", d->begin_ + done, total > 0 ? d->begin_ + total : 0);
    return 0;
  }
  [[noreturn]] void fail_writing() const {
    throw Error(fmt::format("{}: cannot write to it: {}", part_.string(), std::strerror(errno)));
  }

  const std::string& url_;
  const fs::path& part_;
  const FetchOptions& options_;
  int64_t begin_;  // bytes of earlier connections
  std::unique_ptr<std::FILE, Closer> file_;
  std::unique_ptr<CURL, Closer> curl_;
  char error_text_[CURL_ERROR_SIZE] = "";
};

/// Downloads until `part` is whole.
void download(const std::string& url, const fs::path& part, const FetchOptions& options) {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (started != CURLE_OK) throw Error("libcurl cannot be started");
  bool anew = false;
  int64_t most = 0;  // bytes that were ever there
  for (;;) {
    const int64_t before = size_of(part);
    options.say(fmt::format("{} {}{}", before > 0 ? "resuming" : "downloading", url,
                            before > 0 ? fmt::format(" at byte {}", before) : ""));
    const Download::End end = Download(url, part, options).run();
    if (end == Download::End::whole) return;
    if (end == Download::End::no_ranges) {
      if (anew)
        throw Error(
            fmt::format("{}: the connection breaks, and the server cannot resume in "
                        "the middle of the file",
                        url));
      anew = true;
      options.say("the server cannot resume there: starting anew");
      fs::resize_file(part, 0);
      continue;
    }
    const int64_t now = size_of(part);
    if (now <= most)
      throw Error(fmt::format("{}: the connection breaks at byte {} again", url, now));
    most = now;
    options.say(fmt::format("connection lost at byte {}", now));
  }
}

#else

void download(const std::string& url, const fs::path&, const FetchOptions&) {
  throw Error(fmt::format(
      "built without libcurl, so that nothing can be downloaded: install libcurl4-openssl-dev and "
      "make again, or download {} yourself and prepare it with FROM=<file>",
      url));
}

#endif

std::string digest_of(const fs::path& path, const FetchOptions& options) {
  std::error_code error;
  const auto total = static_cast<int64_t>(fs::file_size(path, error));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             std::fclose);
  if (!file) throw DataError(fmt::format("{}: {}", path.string(), std::strerror(errno)));
  Sha256 digest;
  std::vector<uint8_t> block(1 << 20);
  int64_t done = 0;
  for (size_t got; (got = std::fread(block.data(), 1, block.size(), file.get())) > 0;) {
    digest.update(std::span(block).first(got));
    done += static_cast<int64_t>(got);
    options.progress("checking", done, total);
  }
  if (std::ferror(file.get())) throw DataError(fmt::format("{}: cannot read it", path.string()));
  return digest.hex();
}

/// The digest, compared with the published one; DataError if they differ.
std::string checked_digest(const fs::path& path, std::string_view published, const char* remedy,
                           const FetchOptions& options) {
  const std::string digest = digest_of(path, options);
  if (!published.empty() && digest != published) {
    throw DataError(
        fmt::format("{}: SHA-256 {}, expected {}; {}", path.string(), digest, published, remedy));
  }
  options.say(fmt::format("{}: {} bytes, SHA-256 {}{}", path.string(), fs::file_size(path), digest,
                          published.empty() ? ": no digest of it is published" : ", as published"));
  return digest;
}

}  // namespace

std::string fetch(const std::string& url, const fs::path& to, std::string_view sha256,
                  const FetchOptions& options) {
  if (fs::exists(to)) {
    return checked_digest(to, sha256, "delete it to download it again", options);
  }
  if (to.has_parent_path()) make_folder(to.parent_path());
  const fs::path part = to.string() + ".part";
  download(url, part, options);
  std::string digest;
  try {
    digest = checked_digest(part, sha256, "it is removed", options);
  } catch (const DataError&) {
    fs::remove(part);
    throw;
  }
  fs::rename(part, to);
  return digest;
}

}  // namespace skytape::data
