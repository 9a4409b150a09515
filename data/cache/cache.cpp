#include "data/cache/cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <omp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "data/files/digest.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::data {
namespace {

constexpr char kMagic[8] = {'S', 'K', 'Y', 'D', 'A', 'T', 'A', '\n'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kBlock = 1 << 20;  // bytes that are checksummed together

uint64_t header_checksum(const CacheHeader& header) {
  return checksum(
      {reinterpret_cast<const uint8_t*>(&header), offsetof(CacheHeader, header_checksum)});
}

uint64_t combine(std::span<const uint64_t> block_checksums) {
  return checksum(
      {reinterpret_cast<const uint8_t*>(block_checksums.data()), block_checksums.size_bytes()});
}

/// Checksum of the content, its blocks spread over all threads.
uint64_t content_checksum(std::span<const uint8_t> content) {
  const auto blocks = static_cast<int64_t>(ceil_div(content.size(), kBlock));
  std::vector<uint64_t> sums(blocks);
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < blocks; ++i) {
    const uint64_t begin = i * kBlock;
    sums[i] = checksum(content.subspan(begin, std::min(kBlock, content.size() - begin)));
  }
  return combine(sums);
}

[[noreturn]] void broken(const std::filesystem::path& path, const std::string& what) {
  throw DataError(fmt::format("{}: {}; delete it and prepare the data again", path.string(), what));
}

[[noreturn]] void system_failure(const std::filesystem::path& path, const char* what) {
  const int code = errno;
  throw Error(fmt::format("{}: cannot {}: {}", path.string(), what, std::strerror(code)));
}

template <class T> std::span<const uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}

/// Sections inside the file, in order, and of the sizes that the counts ask for.
bool plausible(const CacheHeader& h) {
  constexpr uint64_t kMany = uint64_t{1} << 40;
  if (h.examples > kMany || h.documents > kMany || h.tokens > kMany) return false;
  if (h.token_bytes < 1 || h.token_bytes > 2) return false;
  if (h.sequences < 1 || h.sequences > 2 || h.classes < 1) return false;
  if (h.task[31] || h.name[31] || h.split[15]) return false;  // texts end inside their fields
  const auto aligned = [](uint64_t at) { return at % 8 == 0; };
  return aligned(h.begins_at) && aligned(h.examples_at) && aligned(h.labels_at) &&
         sizeof(CacheHeader) + h.tokens <= h.begins_at &&
         h.begins_at + 8 * (h.documents + 1) <= h.examples_at &&
         h.examples_at + 4 * h.examples * h.sequences <= h.labels_at &&
         h.labels_at + 4 * h.examples <= h.provenance_at && h.provenance_at <= h.file_bytes;
}

void check_header(const CacheHeader& header, const std::filesystem::path& path) {
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    broken(path, "not a skytape data file");
  if (header.version != kVersion) {
    broken(path, fmt::format("format version {}, expected {}", header.version, kVersion));
  }
  if (header.header_checksum != header_checksum(header)) {
    broken(path, "corrupted header (its checksum differs)");
  }
  if (!plausible(header)) broken(path, "inconsistent header");
}

}  // namespace

std::filesystem::path cache_path(const std::filesystem::path& folder, std::string_view split) {
  return folder / (std::string(split) + ".skydata");
}

// ---- reading -----------------------------------------------------------------------------------

CacheHeader CacheFile::read_header(const std::filesystem::path& path) {
  // A named pipe is refused by the read, and waits for nobody.
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) throw DataError(fmt::format("{}: {}", path.string(), std::strerror(errno)));
  CacheHeader header{};
  const ssize_t got = ::pread(file, &header, sizeof header, 0);
  const int problem = errno;
  ::close(file);
  if (got < 0 && problem != ESPIPE) {  // that is a pipe's
    throw DataError(fmt::format("{}: {}", path.string(), std::strerror(problem)));
  }
  if (got != sizeof header) broken(path, "truncated: shorter than its header");
  check_header(header, path);
  return header;
}

std::shared_ptr<const CacheFile> CacheFile::open(const std::filesystem::path& path) {
  std::shared_ptr<CacheFile> file(new CacheFile(path));
  file->check(path);
  return file;
}

CacheFile::CacheFile(const std::filesystem::path& path) : header_(read_header(path)) {
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) throw DataError(fmt::format("{}: {}", path.string(), std::strerror(errno)));
  struct stat info {};
  if (::fstat(file, &info) == 0) size_ = static_cast<uint64_t>(info.st_size);
  if (size_ != header_.file_bytes) {
    ::close(file);
    broken(path, fmt::format("{} bytes, expected {} ({})", size_, header_.file_bytes,
                             size_ < header_.file_bytes ? "truncated" : "something was appended"));
  }
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0);
  ::close(file);
  if (mapped == MAP_FAILED) system_failure(path, "map it into memory");
  bytes_ = static_cast<const uint8_t*>(mapped);
  begins_ = reinterpret_cast<const uint64_t*>(bytes_ + header_.begins_at);
  documents_ = reinterpret_cast<const uint32_t*>(bytes_ + header_.examples_at);
  labels_ = reinterpret_cast<const int32_t*>(bytes_ + header_.labels_at);
}

CacheFile::~CacheFile() {
  if (bytes_) ::munmap(const_cast<uint8_t*>(bytes_), size_);
}

void CacheFile::check(const std::filesystem::path& path) const {
  const std::span<const uint8_t> content(bytes_ + sizeof(CacheHeader),
                                         header_.provenance_at - sizeof(CacheHeader));
  if (content_checksum(content) != header_.content_checksum) {
    broken(path, "corrupted tokens or labels (their checksum differs)");
  }
  if (checksum(as_bytes(provenance())) != header_.provenance_checksum) {
    broken(path, "corrupted provenance (its checksum differs)");
  }
  // The checksums keep accidents out; these keep every later access inside the mapping even for a
  // file that was made on purpose.
  bool sound = begins_[0] == 0 && begins_[header_.documents] == header_.tokens;
  for (uint64_t i = 0; i < header_.documents; ++i) {
    sound &= begins_[i] <= begins_[i + 1] && begins_[i + 1] % header_.token_bytes == 0;
  }
  for (uint64_t i = 0; i < header_.examples * header_.sequences; ++i) {
    sound &= documents_[i] < header_.documents;
  }
  for (uint64_t i = 0; i < header_.examples; ++i) {
    sound &= labels_[i] >= 0 && static_cast<uint32_t>(labels_[i]) < header_.classes;
  }
  if (!sound) broken(path, "inconsistent tables");
}

std::string_view CacheFile::provenance() const {
  return {reinterpret_cast<const char*>(bytes_ + header_.provenance_at),
          header_.file_bytes - header_.provenance_at};
}

std::span<const uint8_t> CacheFile::tokens(int64_t example, int sequence) const {
  const uint32_t document = documents_[example * header_.sequences + sequence];
  const uint64_t begin = begins_[document];
  return {bytes_ + sizeof(CacheHeader) + begin, begins_[document + 1] - begin};
}

// ---- writing -----------------------------------------------------------------------------------

CacheWriter::CacheWriter(const std::filesystem::path& path, int sequences)
    : path_(path), temporary_(path), sequences_(sequences) {
  temporary_ += ".tmp";  // the folder's lock makes the name ours
  file_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file_ < 0) system_failure(temporary_, "create it");
  // Room for the header, which comes last. Nothing is written before the destructor watches: a full
  // disk leaves no file behind.
  ::lseek(file_, sizeof(CacheHeader), SEEK_SET);
  block_.reserve(kBlock);
}

CacheWriter::~CacheWriter() {
  if (file_ >= 0) ::close(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

uint32_t CacheWriter::add_document(std::span<const uint8_t> tokens) {
  const uint64_t number = begins_.size() - 1;
  ENSURE(number < UINT32_MAX, "cache: more than ", UINT32_MAX, " documents");
  append(tokens);
  begins_.push_back(begins_.back() + tokens.size());
  return static_cast<uint32_t>(number);
}

void CacheWriter::add_example(int32_t label, std::span<const uint32_t> documents) {
  ENSURE(static_cast<int>(documents.size()) == sequences_, "cache: example of ", documents.size(),
         " sequences, expected ", sequences_);
  labels_.push_back(label);
  documents_.insert(documents_.end(), documents.begin(), documents.end());
}

void CacheWriter::add(int32_t label, std::span<const uint8_t> tokens) {
  const uint32_t document = add_document(tokens);
  add_example(label, {&document, 1});
}

void CacheWriter::add(int32_t label, std::span<const uint16_t> tokens) {
  add(label, {reinterpret_cast<const uint8_t*>(tokens.data()), tokens.size_bytes()});
}

void CacheWriter::append(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min<size_t>(bytes.size(), kBlock - block_.size()));
    block_.insert(block_.end(), part.begin(), part.end());
    bytes = bytes.subspan(part.size());
    if (block_.size() == kBlock) flush_block();
  }
}

uint64_t CacheWriter::append_aligned(std::span<const uint8_t> bytes) {
  const auto position = [this] {
    return sizeof(CacheHeader) + block_checksums_.size() * kBlock + block_.size();
  };
  const uint8_t zeros[8] = {};
  append({zeros, (8 - position() % 8) % 8});
  const uint64_t at = position();
  append(bytes);
  return at;
}

void CacheWriter::flush_block() {
  block_checksums_.push_back(checksum(block_));
  write_all(block_);
  block_.clear();
}

void CacheWriter::write_all(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) system_failure(temporary_, "write to it");
    bytes = bytes.subspan(written);
  }
}

void CacheWriter::finish_content() {
  header_.tokens = begins_.back();
  header_.documents = begins_.size() - 1;
  header_.examples = labels_.size();
  header_.begins_at = append_aligned(bytes_of(begins_));
  header_.examples_at = append_aligned(bytes_of(documents_));
  header_.labels_at = append_aligned(bytes_of(labels_));
  header_.provenance_at = header_.labels_at + bytes_of(labels_).size();
  if (!block_.empty()) flush_block();
  header_.content_checksum = combine(block_checksums_);
}

void CacheWriter::finish(std::string_view provenance) {
  write_all(as_bytes(provenance));
  std::memcpy(header_.magic, kMagic, sizeof kMagic);
  header_.version = kVersion;
  header_.sequences = static_cast<uint32_t>(sequences_);
  header_.file_bytes = header_.provenance_at + provenance.size();
  header_.provenance_checksum = checksum(as_bytes(provenance));
  header_.header_checksum = header_checksum(header_);
  if (::lseek(file_, 0, SEEK_SET) != 0) system_failure(temporary_, "seek in it");
  write_all({reinterpret_cast<const uint8_t*>(&header_), sizeof header_});
  if (::fsync(file_) != 0) system_failure(temporary_, "write it to the disk");
}

void CacheWriter::publish() {
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) system_failure(path_, "put it in place");
  temporary_.clear();
}

}  // namespace skytape::data
