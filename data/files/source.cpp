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

#include "data/files/printable.hpp"
#include "tensor/core/error.hpp"

#ifdef SKYTAPE_HAVE_ARCHIVE
#include <archive.h>
#include <archive_entry.h>
#endif

namespace skytape::data {
namespace {

namespace fs = std::filesystem;

/// A file, standard input or a named pipe. Hands out what there is, without waiting for a full
/// buffer as zlib's own reader does. A signal ends the waiting, also where no program has opened
/// the other end.
class Descriptor : public ByteStream {
 public:
  /// `has_writer`: until then nothing to read is not the end.
  Descriptor(int file, std::string name, bool has_writer, std::function<void()> before_waiting)
      : file_(file),
        name_(std::move(name)),
        has_writer_(has_writer),
        before_waiting_(std::move(before_waiting)) {}
  ~Descriptor() override {
    if (file_ != STDIN_FILENO) ::close(file_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  size_t read(std::span<uint8_t> buffer) override {
    pollfd input{file_, POLLIN, 0};
    if (before_waiting_ && poll(&input, 1, 0) == 0) before_waiting_();
    for (;;) {
      const ssize_t got = ::read(file_, buffer.data(), buffer.size());
      if (got < 0 && errno != EAGAIN) fail();
      if (got > 0) has_writer_ = true;
      if (got > 0 || (got == 0 && has_writer_)) return static_cast<size_t>(got);
      // Unlike read, poll does not go on by itself after a signal whose handler came back.
      if (poll(&input, 1, -1) < 0) fail();
      if ((input.revents & POLLHUP) != 0) has_writer_ = true;
    }
  }

 private:
  [[noreturn]] void fail() const {
    throw DataError(fmt::format(
        "{}: {}", name_, errno == EINTR ? "a signal ended the waiting" : std::strerror(errno)));
  }

  int file_;
  std::string name_;
  bool has_writer_;
  std::function<void()> before_waiting_;
};

/// Unpacks what begins as gzip'd data do, members one behind the other; hands on anything else.
class MaybeGzip : public ByteStream {
 public:
  MaybeGzip(std::unique_ptr<ByteStream> inner, std::string name)
      : inner_(std::move(inner)), packed_bytes_(*inner_), name_(std::move(name)) {}
  ~MaybeGzip() override {
    if (packed_) inflateEnd(&zlib_);
  }
  MaybeGzip(const MaybeGzip&) = delete;
  MaybeGzip& operator=(const MaybeGzip&) = delete;

  size_t read(std::span<uint8_t> buffer) override {
    if (!started_) start();
    return packed_ ? unpack(buffer) : packed_bytes_.read(buffer);
  }

 private:
  void start() {
    started_ = true;
    packed_ = packed_bytes_.front(2).starts_with("\x1f\x8b");
    if (!packed_) return;
    constexpr int kGzip = 16;
    ENSURE(inflateInit2(&zlib_, MAX_WBITS + kGzip) == Z_OK, "zlib does not start");
    block_.resize(1 << 16);
  }
  size_t unpack(std::span<uint8_t> buffer) {
    zlib_.next_out = buffer.data();
    zlib_.avail_out = static_cast<unsigned>(std::min<size_t>(buffer.size(), 1 << 30));
    const unsigned room = zlib_.avail_out;
    while (zlib_.avail_out == room) {
      if (unread_.empty()) unread_ = std::span(block_).first(packed_bytes_.read(block_));
      if (unread_.empty() && inside_) throw DataError(name_ + ": truncated gzip data");
      // Bytes behind the last member that are no member are skipped, as gzip does.
      if (unread_.empty() || (!inside_ && unread_[0] != 0x1f)) return 0;
      if (!inside_) inflateReset(&zlib_);
      inside_ = true;
      zlib_.next_in = unread_.data();
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
  Preview packed_bytes_;  // of inner_; plain ones where it is not packed
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

/// Refuses two files, the name of one being the other's with ".gz".
[[noreturn]] void refuse_two(const std::string& first, const std::string& second,
                             const std::string& path) {
  throw DataError(fmt::format("{} and {} are both {} once unpacked: expected one of them", first,
                              second, printable(path, 200)));
}

void visit_folder(const fs::path& root, const std::function<bool(const SourceFile&)>& wanted,
                  const std::function<void(const SourceFile&, ByteStream&)>& visit) {
  // Sorted, numbers by value: the order of a directory differs between machines.
  std::multimap<std::string, fs::path, decltype(&natural_less)> found(natural_less);
  std::vector<fs::path> above = {fs::canonical(root)};  // the folders that an entry is in
  constexpr auto kOptions = fs::directory_options::follow_directory_symlink;
  for (auto at = fs::recursive_directory_iterator(root, kOptions);
       at != fs::recursive_directory_iterator(); advance(at)) {
    above.resize(static_cast<size_t>(at.depth()) + 1);
    if (at->is_directory()) {
      above.push_back(fs::canonical(at->path()));
      // A link to a folder above it is not followed: it would lead round and round.
      const auto same = std::find(above.begin(), above.end() - 1, above.back());
      if (same != above.end() - 1) at.disable_recursion_pending();
    }
    if (!at->is_regular_file()) continue;
    std::string path = at->path().lexically_relative(root).generic_string();
    found.emplace(without_gz(std::move(path)), at->path());
  }
  for (auto at = found.begin(); at != found.end(); ++at) {
    const SourceFile file{at->first, at->second.string()};
    if (!wanted(file)) continue;
    const auto next = std::next(at);
    if (next != found.end() && next->first == file.path) {
      refuse_two(std::min(at->second, next->second).string(),
                 std::max(at->second, next->second).string(), file.path);
    }
    visit(file, *open_file(at->second));
  }
}

#ifdef SKYTAPE_HAVE_ARCHIVE
struct ArchiveCloser {
  void operator()(archive* handle) const { archive_read_free(handle); }
};
using Archive = std::unique_ptr<archive, ArchiveCloser>;

/// Bytes as libarchive reads them from us: of a named pipe, opened so that no writer is waited for
/// without an end, and of a gzip'd file, whose checksum libarchive does not check.
struct PipedArchive {
  std::unique_ptr<ByteStream> stream;
  std::vector<uint8_t> block;
  std::exception_ptr failure;  // of a read, which must not pass through libarchive
};

class EntryStream : public ByteStream {
 public:
  EntryStream(archive* handle, const PipedArchive& piped, std::string name)
      : handle_(handle), piped_(piped), name_(std::move(name)) {}
  size_t read(std::span<uint8_t> buffer) override {
    const la_ssize_t got = archive_read_data(handle_, buffer.data(), buffer.size());
    if (got < 0 && piped_.failure) std::rethrow_exception(piped_.failure);
    if (got < 0) throw DataError(fmt::format("{}: {}", name_, archive_error_string(handle_)));
    return static_cast<size_t>(got);
  }

 private:
  archive* handle_;
  const PipedArchive& piped_;
  std::string name_;
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
  const std::vector<std::string_view> parts = split(path, '/');
  return path.starts_with('/') || std::find(parts.begin(), parts.end(), "..") != parts.end();
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
  const bool packed = root.extension() == ".gz" || root.extension() == ".tgz";
  const auto open = [&] {
    if (!packed && !is_named_pipe(root)) {
      return archive_read_open_filename(handle.get(), root.c_str(), kBlock);
    }
    piped.stream = open_file(root);
    piped.block.resize(kBlock);
    return archive_read_open(handle.get(), &piped, nullptr, read_piped, nullptr);
  };
  if (open() != ARCHIVE_OK) fail();
  std::map<std::string, std::string> names;  // of the entries visited, by their paths
  for (archive_entry* entry = nullptr;;) {
    const int code = archive_read_next_header(handle.get(), &entry);
    if (code == ARCHIVE_EOF) break;
    if (code != ARCHIVE_OK && code != ARCHIVE_WARN) fail();
    const char* raw = archive_entry_pathname(entry);
    if (!raw || archive_entry_filetype(entry) != AE_IFREG) continue;
    const std::string name(raw);
    if (climbs_out(name)) {
      throw DataError(fmt::format("{}: entry '{}' points outside the archive", root.string(),
                                  printable(name, 80)));
    }
    const auto shown = [&](const std::string& of) {
      return root.string() + ":/" + printable(of, 200);
    };
    const SourceFile file{without_gz(name), shown(name)};
    if (!wanted(file)) continue;
    const std::string& first = names.try_emplace(file.path, name).first->second;
    if (first != name) refuse_two(shown(first), file.shown, file.path);
    MaybeGzip stream(std::make_unique<EntryStream>(handle.get(), piped, file.shown), file.shown);
    visit(file, stream);
  }
  if (piped.failure) std::rethrow_exception(piped.failure);
  // The checksum stands at the end, behind what a tar needs.
  while (packed && piped.stream->read(piped.block) > 0) {
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
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // waits for no writer
  if (file < 0) throw DataError(fmt::format("{}: {}", path.string(), std::strerror(errno)));
  return std::make_unique<MaybeGzip>(
      std::make_unique<Descriptor>(file, path.string(), !is_named_pipe(path), nullptr),
      path.string());
}

std::unique_ptr<ByteStream> open_standard_input(std::function<void()> before_waiting) {
  return std::make_unique<MaybeGzip>(
      std::make_unique<Descriptor>(STDIN_FILENO, "standard input", true, std::move(before_waiting)),
      "standard input");
}

std::unique_ptr<ByteStream> open_memory(std::span<const uint8_t> bytes) {
  return std::make_unique<MemoryStream>(bytes);
}

std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
  std::vector<fs::directory_entry> entries;
  std::error_code failure;
  for (fs::directory_iterator at(folder, failure); at != fs::directory_iterator();
       at.increment(failure)) {
    entries.push_back(*at);
  }
  if (failure) throw DataError(fmt::format("{}: {}", folder.string(), failure.message()));
  std::sort(entries.begin(), entries.end());
  return entries;
}

void advance(fs::recursive_directory_iterator& at) {
  const bool enters = at->is_directory() && at.recursion_pending();
  const fs::path folder = enters ? at->path() : at->path().parent_path();
  std::error_code failure;
  at.increment(failure);
  if (failure) throw DataError(fmt::format("{}: {}", folder.string(), failure.message()));
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
  return read_full(*open_file(path), head) == head.size() &&
         std::memcmp(head.data() + 257, "ustar", 5) == 0;
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

std::vector<std::string_view> split(std::string_view text, char separator, size_t most) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = parts.size() + 1 < most ? text.find(separator) : text.npos;
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string_view leaf(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string_view parent(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : leaf(path.substr(0, slash));
}

}  // namespace skytape::data
