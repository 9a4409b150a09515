#include "data/cache/dataset.hpp"

#include <algorithm>

#include "data/cache/cache.hpp"
#include "data/files/digest.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {

Dataset::Dataset(std::shared_ptr<const CacheFile> file)
    : file_(std::move(file)), count_(static_cast<int64_t>(file_->header().examples)) {}

int64_t Dataset::classes() const { return file_->header().classes; }
int Dataset::sequences() const { return static_cast<int>(file_->header().sequences); }
int Dataset::token_offset() const { return static_cast<int>(file_->header().token_offset); }
int Dataset::token_bytes() const { return static_cast<int>(file_->header().token_bytes); }
std::string_view Dataset::name() const { return file_->header().name; }
std::string_view Dataset::provenance() const { return file_->provenance(); }
std::string Dataset::fingerprint() const { return to_hex(file_->header().content_checksum); }

int32_t Dataset::label(int64_t i) const {
  ENSURE(i >= 0 && i < count_, "Dataset: example ", i, " of ", count_);
  return file_->label(begin_ + i);
}

std::span<const uint8_t> Dataset::bytes(int64_t i, int sequence) const {
  ENSURE(i >= 0 && i < count_, "Dataset: example ", i, " of ", count_);
  ENSURE(sequence >= 0 && sequence < sequences(), "Dataset: sequence ", sequence, " of ",
         sequences());
  return file_->tokens(begin_ + i, sequence);
}

std::span<const uint8_t> Dataset::tokens(int64_t i, int sequence) const {
  ENSURE(token_bytes() == 1, "Dataset: a token takes ", token_bytes(), " bytes, expected 1");
  return bytes(i, sequence);
}

std::span<const uint16_t> Dataset::wide_tokens(int64_t i, int sequence) const {
  ENSURE(token_bytes() == 2, "Dataset: a token takes ", token_bytes(), " bytes, expected 2");
  const std::span<const uint8_t> stored = bytes(i, sequence);  // begins at a multiple of two
  return {reinterpret_cast<const uint16_t*>(stored.data()), stored.size() / 2};
}

int64_t Dataset::length(int64_t i, int sequence) const {
  return static_cast<int64_t>(bytes(i, sequence).size()) / token_bytes();
}

int64_t Dataset::longest() const {
  int64_t most = 0;
  for (int64_t i = 0; i < count_; ++i) {
    for (int sequence = 0; sequence < sequences(); ++sequence) {
      most = std::max(most, length(i, sequence));
    }
  }
  return most;
}

int64_t Dataset::longer_than(int64_t most) const {
  int64_t count = 0;
  for (int64_t i = 0; i < count_; ++i) {
    for (int sequence = 0; sequence < sequences(); ++sequence) count += length(i, sequence) > most;
  }
  return count;
}

Dataset Dataset::slice(int64_t begin, int64_t count) const {
  ENSURE(begin >= 0 && count >= 0 && begin + count <= count_, "Dataset: slice ", begin, " + ",
         count, " of ", count_, " examples");
  Dataset part = *this;
  part.begin_ += begin;
  part.count_ = count;
  return part;
}

}  // namespace skytape::data
