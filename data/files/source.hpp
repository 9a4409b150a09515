// Reading what users have: folders, plain or gzip'd files, tar and zip archives; line by line or in
// whole. Every error names the file and the place in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skytape::data {

/// A file's bytes, in order. Unpacking happens behind it.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Fills `buffer` from the front and returns the number of bytes; 0 at the end only. DataError if
  /// the file is truncated or broken.
  virtual size_t read(std::span<uint8_t> buffer) = 0;
};

/// Fills `buffer` as far as the stream goes; returns the number of bytes.
size_t read_full(ByteStream& stream, std::span<uint8_t> buffer);

/// Shows the front of a stream and then hands out all of it. It reads no further than it is asked
/// to show: who types the next bytes may wait for what becomes of these.
class Preview : public ByteStream {
 public:
  explicit Preview(ByteStream& inner) : inner_(inner) {}
  /// The bytes that come next: so many, or more where more are at hand; fewer at the end.
  [[nodiscard]] std::string_view front(size_t count);
  /// The first line that is not blank, without a byte order mark; cut where it is very long.
  [[nodiscard]] std::string_view first_line();
  /// Hands out `count` of the bytes that front() showed to nobody.
  void skip(size_t count) { handed_out_ += count; }
  size_t read(std::span<uint8_t> buffer) override;

 private:
  [[nodiscard]] bool look_on();  // false at the end
  [[nodiscard]] std::string_view seen() const;

  ByteStream& inner_;
  std::vector<uint8_t> front_;  // read already
  size_t handed_out_ = 0;       // bytes of front_
};

/// Opens a plain or gzip'd file; the bytes are the unpacked ones. DataError if it is not there.
[[nodiscard]] std::unique_ptr<ByteStream> open_file(const std::filesystem::path& path);

/// Standard input, gzip'd or not. `before_waiting` is called before a read for which nothing is
/// there yet: the other side may be waiting for what became of its last line.
[[nodiscard]] std::unique_ptr<ByteStream> open_standard_input(
    std::function<void()> before_waiting = {});

/// Bytes in memory, which must outlive the stream.
[[nodiscard]] std::unique_ptr<ByteStream> open_memory(std::span<const uint8_t> bytes);

/// The whole rest of a stream; DataError naming `name` beyond `limit` bytes.
[[nodiscard]] std::vector<uint8_t> read_all(ByteStream& stream, const std::string& name,
                                            size_t limit);

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // of UTF-8

/// Bytes that no honest line has; a paper of the Retrieval task has some 100,000.
inline constexpr size_t kMaxLine = 16 << 20;

/// Cuts a stream into lines at LF; a CR before it is dropped.
class LineReader {
 public:
  /// A line beyond `max_line` bytes is a DataError: memory stays bounded whatever the file is.
  LineReader(ByteStream& stream, std::string name, size_t max_line);

  /// False at the end; the last line need not end in LF. The view holds until the next call.
  bool next(std::string_view& line);

  [[nodiscard]] int64_t line_number() const { return line_number_; }  // of the last line, from 1
  /// Throws DataError `file:line: what`.
  [[noreturn]] void fail(const std::string& what) const;

 private:
  ByteStream& stream_;
  std::string name_;
  size_t max_line_;
  std::vector<uint8_t> buffer_;
  size_t begin_ = 0, end_ = 0;  // unread part of the buffer
  bool exhausted_ = false;
  int64_t line_number_ = 0;
};

/// The entries of a folder, by name. DataError that names the folder: an iterator of the standard
/// library names nothing where it cannot go on.
[[nodiscard]] std::vector<std::filesystem::directory_entry> entries_of(
    const std::filesystem::path& folder);
/// Goes on to the next entry of a tree; DataError as above.
void advance(std::filesystem::recursive_directory_iterator& at);

/// True for a file that visit_files() takes for an archive: by its name, or a tar called .gz.
[[nodiscard]] bool is_archive(const std::filesystem::path& path);

/// A file found in a source tree.
struct SourceFile {
  std::string path;   // inside the tree, '/' between the parts, a final ".gz" removed
  std::string shown;  // its place, for messages
};

/// Visits the files below a folder, or the entries of an archive (tar, zip, any compression), or
/// one file, in the order found: folders sorted by name, archives front to back. Nothing is ever
/// unpacked to the disk. A link to a folder above it is not followed. DataError if `root` is
/// missing, if the names of two wanted files differ in ".gz" alone, or if an archive is broken or
/// has an entry that climbs out of the folder ("../", "/…").
void visit_files(const std::filesystem::path& root,
                 const std::function<bool(const SourceFile&)>& wanted,
                 const std::function<void(const SourceFile&, ByteStream&)>& visit);

/// The parts between separators; of more than `most`, the last one keeps its separators.
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator,
                                                  size_t most = std::string_view::npos);

/// Last part of a path; its parts from the back: parent(path) is the folder's own name.
[[nodiscard]] std::string_view leaf(std::string_view path);
[[nodiscard]] std::string_view parent(std::string_view path);

}  // namespace skytape::data
