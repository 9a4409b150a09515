// The cache file: one split of a task, ready to be mapped into memory.
//
//   offset 0      Header, 256 bytes, with checksums of itself and of the two parts below
//   offset 256    content: tokens of all documents, one byte each, or two: custom data with a
//                          vocabulary
//                          begin of each document     uint64 [documents + 1], in bytes
//                          documents of each example  uint32 [examples, sequences]
//                          labels                     int32  [examples]
//   then          provenance: JSON text
//
// A document is one token sequence; examples refer to documents by number, so a text that occurs
// in many pairs (Retrieval) is stored once. All numbers are little-endian, sections 8-aligned.
// Equal contents give equal content checksums, however the set was made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skytape::data {

class OutputFile;

struct CacheHeader {
  char magic[8];
  uint32_t version;
  uint32_t token_bytes;  // 1 or 2
  char task[32];
  char name[32];   // what results are called
  char split[16];  // train, dev or test
  uint64_t set;    // equal in all splits of one preparation
  uint64_t examples;
  uint64_t documents;
  uint64_t tokens;  // bytes of them over all documents
  uint32_t sequences;
  uint32_t token_offset;
  uint32_t classes;
  uint32_t reserved;
  uint64_t begins_at;
  uint64_t examples_at;
  uint64_t labels_at;
  uint64_t provenance_at;
  uint64_t file_bytes;
  uint64_t content_checksum;
  uint64_t provenance_checksum;
  uint64_t unused[6];
  uint64_t header_checksum;  // over everything above
};
static_assert(sizeof(CacheHeader) == 256);

/// A mapped cache file. Opening checks every byte.
class CacheFile {
 public:
  /// DataError naming the file and what is wrong with it: missing, foreign, truncated, corrupted.
  [[nodiscard]] static std::shared_ptr<const CacheFile> open(const std::filesystem::path& path);

  /// The header alone, checked against its own checksum.
  [[nodiscard]] static CacheHeader read_header(const std::filesystem::path& path);

  ~CacheFile();
  CacheFile(const CacheFile&) = delete;
  CacheFile& operator=(const CacheFile&) = delete;

  [[nodiscard]] const CacheHeader& header() const { return header_; }
  [[nodiscard]] std::string_view provenance() const;
  [[nodiscard]] int32_t label(int64_t example) const { return labels_[example]; }
  [[nodiscard]] std::span<const uint8_t> tokens(int64_t example, int sequence) const;

 private:
  explicit CacheFile(const std::filesystem::path& path);
  void check(const std::filesystem::path& path) const;

  const uint8_t* bytes_ = nullptr;  // the mapping
  uint64_t size_ = 0;
  CacheHeader header_{};
  const uint64_t* begins_ = nullptr;     // [documents + 1]
  const uint32_t* documents_ = nullptr;  // [examples, sequences]
  const int32_t* labels_ = nullptr;      // [examples]
};

/// Writes one cache file under a temporary name; CacheSet gives it its real one.
class CacheWriter {
 public:
  CacheWriter(const std::filesystem::path& path, int sequences);
  ~CacheWriter();  // removes the temporary file unless published
  CacheWriter(const CacheWriter&) = delete;
  CacheWriter& operator=(const CacheWriter&) = delete;

  /// Stores a token sequence and returns its number.
  uint32_t add_document(std::span<const uint8_t> tokens);
  /// One example over stored documents, one per sequence.
  void add_example(int32_t label, std::span<const uint32_t> documents);
  /// One example of one sequence.
  void add(int32_t label, std::span<const uint8_t> tokens);
  /// The same where a token takes two bytes.
  void add(int32_t label, std::span<const uint16_t> tokens);

  [[nodiscard]] int64_t examples() const { return static_cast<int64_t>(labels_.size()); }

 private:
  friend class CacheSet;
  void finish_content();  // writes the tables; the checksum is in header_
  void finish(std::string_view provenance);
  void publish();

  void append(std::span<const uint8_t> bytes);
  uint64_t append_aligned(std::span<const uint8_t> bytes);
  void flush_block();
  void write_all(std::span<const uint8_t> bytes);

  std::filesystem::path path_, temporary_;
  int file_ = -1;
  int sequences_;
  std::vector<uint64_t> begins_{0};
  std::vector<uint32_t> documents_;
  std::vector<int32_t> labels_;
  std::vector<uint8_t> block_;  // content not yet written
  std::vector<uint64_t> block_checksums_;
  CacheHeader header_{};  // the set says what is its own
};

/// All splits of one preparation: they appear together or not at all. Holds a lock on the task's
/// folder, so a second process waits instead of writing too.
class CacheSet {
 public:
  /// Creates `<root>/<task>` and waits for its lock; removes what interrupted preparations left.
  CacheSet(std::string_view task, const std::filesystem::path& folder, int sequences,
           int token_offset);
  ~CacheSet();
  CacheSet(const CacheSet&) = delete;
  CacheSet& operator=(const CacheSet&) = delete;

  /// Writer of split train, dev or test, created on first use.
  [[nodiscard]] CacheWriter& split(std::string_view name);

  std::string name;        // what results are called; the task's name at first
  int64_t classes = 0;     // labels are 0..classes-1
  int token_bytes = 1;     // 2 where the builder stores wider tokens
  std::string provenance;  // JSON text
  /// A file that the set was made with, to appear with it.
  std::unique_ptr<OutputFile> companion;

  /// Finishes the contents; whether the folder's files hold the same ones, as far as they are there
  /// and whole.
  [[nodiscard]] bool agrees_with_stored();

  /// Finishes, syncs and renames all splits. Error if the disk is full or a label is out of range.
  void commit();

 private:
  void finish_contents();

  std::string task_;
  std::filesystem::path folder_;
  int sequences_, token_offset_;
  bool finished_ = false;  // the contents are
  int lock_ = -1;
  std::vector<std::pair<std::string, std::unique_ptr<CacheWriter>>> splits_;
};

/// `<folder>/<split>.skydata`.
[[nodiscard]] std::filesystem::path cache_path(const std::filesystem::path& folder,
                                               std::string_view split);

}  // namespace skytape::data
