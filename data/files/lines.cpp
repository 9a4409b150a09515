// Reads a stream: all of it, its front, or line by line.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "data/files/source.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {

std::vector<uint8_t> read_all(ByteStream& stream, const std::string& name, size_t limit) {
  std::vector<uint8_t> bytes;
  for (size_t fill = 0;;) {
    bytes.resize(std::max<size_t>(fill + 4096, fill * 2));
    const size_t got = stream.read(std::span(bytes).subspan(fill));
    fill += got;
    if (fill > limit) throw DataError(fmt::format("{}: larger than {} bytes", name, limit));
    if (got == 0) return bytes.resize(fill), bytes;
  }
}

size_t read_full(ByteStream& stream, std::span<uint8_t> buffer) {
  size_t fill = 0;
  for (size_t got; fill < buffer.size(); fill += got) {
    got = stream.read(buffer.subspan(fill));
    if (got == 0) break;
  }
  return fill;
}

std::string_view Preview::seen() const {
  return {reinterpret_cast<const char*>(front_.data()) + handed_out_, front_.size() - handed_out_};
}

bool Preview::look_on() {
  const size_t filled = front_.size();
  front_.resize(filled + 4096);
  const size_t got = inner_.read(std::span(front_).subspan(filled));
  front_.resize(filled + got);
  return got > 0;
}

std::string_view Preview::front(size_t count) {
  while (seen().size() < count && look_on()) {
  }
  return seen();
}

std::string_view Preview::first_line() {
  constexpr size_t kLongest = 1 << 16;  // bytes that are looked at
  for (bool more = true;; more = look_on()) {
    std::string_view text = seen();
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    const size_t begin = text.find_first_not_of(" \t\r\n");
    const size_t end = begin == text.npos ? text.npos : text.find('\n', begin);
    if (end == text.npos && more && front_.size() <= kLongest) continue;
    if (begin == text.npos) return {};
    std::string_view line = text.substr(begin, std::min(end, text.size()) - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  }
}

size_t Preview::read(std::span<uint8_t> buffer) {
  const size_t part = std::min(buffer.size(), front_.size() - handed_out_);
  if (part == 0) return inner_.read(buffer);
  std::copy_n(front_.begin() + static_cast<std::ptrdiff_t>(handed_out_), part, buffer.begin());
  handed_out_ += part;
  return part;
}

LineReader::LineReader(ByteStream& stream, std::string name, size_t max_line)
    : stream_(stream), name_(std::move(name)), max_line_(max_line), buffer_(1 << 16) {}

bool LineReader::next(std::string_view& line) {
  ++line_number_;
  for (size_t scanned = begin_;;) {
    const auto* found = scanned < end_ ? static_cast<const uint8_t*>(std::memchr(
                                             buffer_.data() + scanned, '\n', end_ - scanned))
                                       : nullptr;
    if (found || exhausted_) {
      const size_t stop = found ? found - buffer_.data() : end_;
      if (!found && begin_ == end_) return --line_number_, false;
      line = {reinterpret_cast<const char*>(buffer_.data()) + begin_, stop - begin_};
      begin_ = found ? stop + 1 : stop;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.size() > max_line_) fail(fmt::format("line of more than {} bytes", max_line_));
      return true;
    }
    scanned = end_ - begin_;
    if (scanned > max_line_ + 1) fail(fmt::format("line of more than {} bytes", max_line_));
    std::memmove(buffer_.data(), buffer_.data() + begin_, scanned);
    begin_ = 0, end_ = scanned;
    if (end_ == buffer_.size()) buffer_.resize(2 * buffer_.size());
    const size_t got = stream_.read(std::span(buffer_).subspan(end_));
    exhausted_ = got == 0;
    end_ += got;
  }
}

void LineReader::fail(const std::string& what) const {
  throw DataError(fmt::format("{}:{}: {}", name_, line_number_, what));
}

}  // namespace skytape::data
