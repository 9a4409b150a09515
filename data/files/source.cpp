#include "data/files/source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <map>

#include "tensor/core/error.hpp"

#ifdef SKYTAPE_HAVE_ARCHIVE
#include <archive.h>
#include <archive_entry.h>
#endif

namespace skytape::data {
namespace {

namespace fs = std::filesystem;

/// zlib reads plain files through unchanged.
class GzipStream : public ByteStream {
 public:
  explicit GzipStream(const fs::path& path)
      : name_(path.string()), file_(gzopen(path.c_str(), "rbe")) {
    if (!file_) throw DataError(fmt::format("{}: {}", name_, std::strerror(errno)));
    gzbuffer(file_, 1 << 18);
  }
  ~GzipStream() override { gzclose(file_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  size_t read(std::span<uint8_t> buffer) override {
    const int got = gzread(file_, buffer.data(),
                           static_cast<unsigned>(std::min<size_t>(buffer.size(), 1 << 30)));
    int code = Z_OK;
    const char* text = gzerror(file_, &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {  // Z_BUF_ERROR: ends inside a member
      const bool cut = code == Z_BUF_ERROR;
      throw DataError(fmt::format("{}: {}", name_,
                                  cut               ? "truncated gzip data"
                                  : code == Z_ERRNO ? std::strerror(errno)
                                                    : text));
    }
    return static_cast<size_t>(got);
  }

 private:
  std::string name_;
  gzFile file_;
};

/// Standard input, or a named pipe. Hands out what there is, without waiting for a full buffer as
/// zlib's own reader does. A signal ends the waiting, also where no program has opened the other end.
class Pipe : public ByteStream {
 public:
  Pipe(int file, std::string name, std::function<void()> before_waiting)
      : file_(file), name_(std::move(name)), before_waiting_(std::move(before_waiting)) {}
  ~Pipe() override {
    if (file_ != STDIN_FILENO) ::close(file_);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  size_t read(std::span<uint8_t> buffer) override {
    pollfd input{file_, POLLIN, 0};
    if (before_waiting_ && poll(&input, 1, 0) == 0) before_waiting_();
    for (;;) {
      const ssize_t got = ::read(file_, buffer.data(), buffer.size());
      if (got < 0 && errno != EAGAIN) fail();
      if (got > 0) had_writer_ = true;
      if (got > 0 || (got == 0 && had_writer_)) return static_cast<size_t>(got);
      // Unlike read, poll does not go on by itself after a signal whose handler came back.
      if (poll(&input, 1, -1) < 0) fail();
      if ((input.revents & POLLHUP) != 0) had_writer_ = true;
    }
  }

 private:
  [[noreturn]] void fail() const {
    throw DataError(fmt::format(
        "{}: {}", name_, errno == EINTR ? "a signal ended the waiting" : std::strerror(errno)));
  }

  int file_;
  std::string name_;
  std::function<void()> before_waiting_;
  bool had_writer_ = file_ == STDIN_FILENO;  // until then nothing to read is not the end
};

/// Unpacks what begins as gzip'd data do, members one behind the other; hands on anything else.
class MaybeGzip : public ByteStream {
 public:
  MaybeGzip(std::unique_ptr<ByteStream> inner, std::string name)
      : inner_(std::move(inner)), name_(std::move(name)), block_(1 << 16) {}
  ~MaybeGzip() override {
    if (packed_) inflateEnd(&zlib_);
  }
  MaybeGzip(const MaybeGzip&) = delete;
  MaybeGzip& operator=(const MaybeGzip&) = delete;

  size_t read(std::span<uint8_t> buffer) override {
    if (!started_) start();
    return packed_ ? unpack(buffer) : take(buffer);
  }

 private:
  void start() {
    started_ = true;
    while (unread_.size() < 2 && more()) {
    }
    packed_ = unread_.size() >= 2 && unread_[0] == 0x1f && unread_[1] == 0x8b;
    constexpr int kGzip = 16;
    if (packed_) ENSURE(inflateInit2(&zlib_, MAX_WBITS + kGzip) == Z_OK, "zlib does not start");
  }
  /// Reads on behind what is unread, which is a few bytes at most. False at the end.
  bool more() {
    std::copy(unread_.begin(), unread_.end(), block_.begin());
    const size_t got = inner_->read(std::span(block_).subspan(unread_.size()));
    unread_ = std::span(block_).first(unread_.size() + got);
    return got > 0;
  }
  size_t take(std::span<uint8_t> buffer) {
    if (unread_.empty()) return inner_->read(buffer);
    const size_t part = std::min(buffer.size(), unread_.size());
    std::copy_n(unread_.begin(), part, buffer.begin());
    unread_ = unread_.subspan(part);
    return part;
  }
  size_t unpack(std::span<uint8_t> buffer) {
    zlib_.next_out = buffer.data();
    zlib_.avail_out = static_cast<unsigned>(std::min<size_t>(buffer.size(), 1 << 30));
    const unsigned room = zlib_.avail_out;
    while (zlib_.avail_out == room) {
      if (unread_.empty() && !more()) {
        if (inside_) throw DataError(fmt::format("{}: truncated gzip data", name_));
        return 0;
      }
      if (!inside_) inflateReset(&zlib_);
      inside_ = true;
      zlib_.next_in = const_cast<uint8_t*>(unread_.data());
      zlib_.avail_in = static_cast<unsigned>(unread_.size());
      const int code = inflate(&zlib_, Z_NO_FLUSH);
      unread_ = unread_.last(zlib_.avail_in);
      if (code == Z_STREAM_END) {
        inside_ = false;
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        throw DataError(fmt::format("{}: {}", name_, zlib_.msg ? zlib_.msg : "broken gzip data"));
      }
    }
    return room - zlib_.avail_out;
  }

  std::unique_ptr<ByteStream> inner_;
  std::string name_;
  std::vector<uint8_t> block_;
  std::span<uint8_t> unread_;  // of block_
  z_stream zlib_{};
  bool started_ = false, packed_ = false, inside_ = false;  // inside a member
};

class MemoryStream : public ByteStream {
 public:
  explicit MemoryStream(std::span<const uint8_t> bytes) : rest_(bytes) {}
  size_t read(std::span<uint8_t> buffer) override {
    const size_t part = std::min(buffer.size(), rest_.size());
    if (part > 0) std::memcpy(buffer.data(), rest_.data(), part);
    rest_ = rest_.subspan(part);
    return part;
  }

 private:
  std::span<const uint8_t> rest_;
};

std::string without_gz(std::string path) {
  if (path.ends_with(".gz")) path.resize(path.size() - 3);
  return path;
}

/// One in a folder, not the pipe of a shell, /dev/stdin or /dev/fd/63, whose other end is open.
bool is_named_pipe(const fs::path& path) {
  std::error_code failure;
  return fs::is_fifo(fs::canonical(path, failure), failure);
}

/// Compares texts with runs of digits as numbers: sample_9 comes before sample_10.
bool natural_less(const std::string& a, const std::string& b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!digit(a[i]) || !digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    const auto number = [&digit](const std::string& text, size_t& at) {
      while (at + 1 < text.size() && text[at] == '0' && digit(text[at + 1])) ++at;
      const size_t begin = at;
      while (at < text.size() && digit(text[at])) ++at;
      return std::string_view(text).substr(begin, at - begin);
    };
    const std::string_view x = number(a, i), y = number(b, j);
    if (x != y) return std::pair(x.size(), x) < std::pair(y.size(), y);
  }
  if (i < a.size() || j < b.size()) return a.size() - i < b.size() - j;
  return a < b;  // differ in leading zeros only
}

void visit_folder(const fs::path& root, const std::function<bool(const SourceFile&)>& wanted,
                  const std::function<void(const SourceFile&, ByteStream&)>& visit) {
  // Sorted, numbers by value: the order of a directory differs between machines.
  std::map<std::string, fs::path, decltype(&natural_less)> found(natural_less);
  constexpr auto kOptions = fs::directory_options::follow_directory_symlink;
  for (auto at = fs::recursive_directory_iterator(root, kOptions);
       at != fs::recursive_directory_iterator(); ++at) {
    constexpr int kDeepest = 32;  // stops at a link that points to its own parent
    if (at.depth() >= kDeepest) at.disable_recursion_pending();
    if (!at->is_regular_file()) continue;
    std::string path = at->path().lexically_relative(root).generic_string();
    found.emplace(without_gz(std::move(path)), at->path());
  }
  for (const auto& [path, where] : found) {
    const SourceFile file{path, where.string()};
    if (wanted(file)) visit(file, *open_file(where));
  }
}

#ifdef SKYTAPE_HAVE_ARCHIVE
struct ArchiveCloser {
  void operator()(archive* handle) const { archive_read_free(handle); }
};
using Archive = std::unique_ptr<archive, ArchiveCloser>;

class EntryStream : public ByteStream {
 public:
  EntryStream(archive* handle, std::string name) : handle_(handle), name_(std::move(name)) {}
  size_t read(std::span<uint8_t> buffer) override {
    const la_ssize_t got = archive_read_data(handle_, buffer.data(), buffer.size());
    if (got < 0) throw DataError(fmt::format("{}: {}", name_, archive_error_string(handle_)));
    return static_cast<size_t>(got);
  }

 private:
  archive* handle_;
  std::string name_;
};

/// A named pipe as libarchive reads it: opened so that no writer is waited for without an end.
struct PipedArchive {
  std::unique_ptr<ByteStream> stream;
  std::vector<uint8_t> block;
  std::exception_ptr failure;  // of a read, which must not pass through libarchive
};

la_ssize_t read_piped(archive*, void* source, const void** bytes) {
  auto& piped = *static_cast<PipedArchive*>(source);
  try {
    *bytes = piped.block.data();
    return static_cast<la_ssize_t>(piped.stream->read(piped.block));
  } catch (...) {
    piped.failure = std::current_exception();
    return ARCHIVE_FATAL;
  }
}

bool climbs_out(std::string_view path) {
  if (path.starts_with('/')) return true;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    if (path.substr(at, end - at) == "..") return true;
    at = end + 1;
  }
  return false;
}

void visit_archive(const fs::path& root, const std::function<bool(const SourceFile&)>& wanted,
                   const std::function<void(const SourceFile&, ByteStream&)>& visit) {
  const Archive handle(archive_read_new());
  archive_read_support_filter_all(handle.get());
  archive_read_support_format_tar(handle.get());
  archive_read_support_format_zip(handle.get());
  constexpr size_t kBlock = 1 << 18;
  PipedArchive piped;
  const auto fail = [&] {
    if (piped.failure) std::rethrow_exception(piped.failure);
    const char* text = archive_error_string(handle.get());
    throw DataError(fmt::format("{}: {}", root.string(), text ? text : "not a readable archive"));
  };
  const auto open = [&] {
    if (!is_named_pipe(root)) {
      return archive_read_open_filename(handle.get(), root.c_str(), kBlock);
    }
    piped.stream = open_file(root);
    piped.block.resize(kBlock);
    return archive_read_open(handle.get(), &piped, nullptr, read_piped, nullptr);
  };
  if (open() != ARCHIVE_OK) fail();
  for (archive_entry* entry = nullptr;;) {
    const int code = archive_read_next_header(handle.get(), &entry);
    if (code == ARCHIVE_EOF) break;
    if (code != ARCHIVE_OK && code != ARCHIVE_WARN) fail();
    const char* raw = archive_entry_pathname(entry);
    if (!raw || archive_entry_filetype(entry) != AE_IFREG) continue;
    std::string path(raw);
    if (climbs_out(path)) {
      throw DataError(fmt::format("{}: entry '{}' points outside the archive", root.string(),
                                  printable(path, 80)));
    }
    const SourceFile file{path, root.string() + ":/" + printable(path, 200)};
    if (!wanted(file)) continue;
    EntryStream stream(handle.get(), file.shown);
    visit(file, stream);
  }
}
#else
void visit_archive(const fs::path& root, const std::function<bool(const SourceFile&)>&,
                   const std::function<void(const SourceFile&, ByteStream&)>&) {
  throw Error(
      fmt::format("{}: built without libarchive (package libarchive-dev); unpack it and "
                  "give the folder instead",
                  root.string()));
}
#endif

}  // namespace

std::unique_ptr<ByteStream> open_file(const fs::path& path) {
  if (!is_named_pipe(path)) return std::make_unique<GzipStream>(path);
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // waits for no writer
  if (file < 0) throw DataError(fmt::format("{}: {}", path.string(), std::strerror(errno)));
  return std::make_unique<MaybeGzip>(std::make_unique<Pipe>(file, path.string(), nullptr),
                                     path.string());
}

std::unique_ptr<ByteStream> open_standard_input(std::function<void()> before_waiting) {
  return std::make_unique<MaybeGzip>(
      std::make_unique<Pipe>(STDIN_FILENO, "standard input", std::move(before_waiting)),
      "standard input");
}

std::unique_ptr<ByteStream> open_memory(std::span<const uint8_t> bytes) {
  return std::make_unique<MemoryStream>(bytes);
}

bool is_archive(const fs::path& path) {
  const std::string name = path.filename().string();
  for (const char* ending :
       {".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".zip"}) {
    if (name.ends_with(ending)) return true;
  }
  if (!name.ends_with(".gz") || is_named_pipe(path)) return false;  // a look takes from a pipe
  // lra_release.gz is a tar in spite of its name: "ustar" stands at offset 257 of the first header.
  std::vector<uint8_t> head(512);
  size_t got = 0;
  const auto stream = open_file(path);
  for (size_t part; got < head.size() && (part = stream->read(std::span(head).subspan(got))) > 0;) {
    got += part;
  }
  return got == head.size() && std::memcmp(head.data() + 257, "ustar", 5) == 0;
}

void visit_files(const fs::path& root, const std::function<bool(const SourceFile&)>& wanted,
                 const std::function<void(const SourceFile&, ByteStream&)>& visit) {
  std::error_code failure;
  const auto kind = fs::status(root, failure).type();
  if (kind == fs::file_type::not_found)
    throw DataError(fmt::format("{}: not found", root.string()));
  if (kind == fs::file_type::directory) return visit_folder(root, wanted, visit);
  if (is_archive(root)) return visit_archive(root, wanted, visit);
  const SourceFile file{without_gz(root.filename().string()), root.string()};
  if (wanted(file)) visit(file, *open_file(root));
}

std::string_view leaf(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string_view parent(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : leaf(path.substr(0, slash));
}

std::string printable(std::string_view text, size_t most) {
  std::string shown(text.substr(0, most));
  for (char& c : shown) {
    if (c < 32 || c > 126) c = '?';
  }
  if (text.size() > most) shown += "…";
  return shown;
}

}  // namespace skytape::data
