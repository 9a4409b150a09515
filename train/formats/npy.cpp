// The header is a Python dictionary literal: {'descr': '<f8', 'fortran_order': False, 'shape': (2,
// 3), }
#include "train/formats/npy.hpp"

#include <fmt/format.h>

#include <bit>
#include <cctype>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/core/error.hpp"

namespace skytape {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read without swapping bytes");

constexpr std::size_t kLongestHeader = 1 << 16;  // bytes; NumPy's own limit for literals is 10000
constexpr std::int64_t kMostElements = std::int64_t{1} << 40;

/// Reads the header's dictionary from left to right.
class Header {
 public:
  Header(std::string_view text, const std::filesystem::path& path) : text_(text), path_(path) {}

  [[nodiscard]] std::size_t element_bytes() const { return element_bytes_; }

  void read(NpyArray& array) {
    bool type = false, order = false, shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !type) {
        read_type(array);
        type = true;
      } else if (key == "fortran_order" && !order) {
        if (word() != "False") fail("expected 'fortran_order': False (C order)");
        order = true;
      } else if (key == "shape" && !shape) {
        read_shape(array);
        shape = true;
      } else {
        fail(fmt::format("unexpected or repeated key '{}' in the header", key));
      }
      accept(',');
    }
    if (!type || !order || !shape) fail("the header lacks descr, fortran_order or shape");
    skip_space();
    if (at_ != text_.size()) fail("text after the header's dictionary");
  }

  [[noreturn]] void fail(const std::string& problem) const {
    throw DataError(fmt::format("{}: {}", path_.string(), problem));
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("expected '{}' at byte {} of the header", c, at_));
  }
  std::string_view quoted() {
    expect('\'');
    const std::size_t end = text_.find('\'', at_);
    if (end == std::string_view::npos) fail("a name in the header does not end");
    const std::string_view name = text_.substr(at_, end - at_);
    at_ = end + 1;
    return name;
  }
  std::string_view word() {
    skip_space();
    const std::size_t begin = at_;
    while (at_ < text_.size() && std::isalpha(static_cast<unsigned char>(text_[at_]))) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  void read_type(NpyArray& array) {
    const std::string_view type = quoted();
    if (type != "<f4" && type != "<f8" && type != "<i8") {
      fail(fmt::format("expected dtype '<f4', '<f8' or '<i8', got '{}'", type));
    }
    array.integer = type == "<i8";
    element_bytes_ = type == "<f4" ? 4 : 8;
  }
  void read_shape(NpyArray& array) {
    expect('(');
    while (!accept(')')) {
      skip_space();
      std::int64_t size = -1;
      const char* const end = text_.data() + text_.size();
      const auto [stop, error] = std::from_chars(text_.data() + at_, end, size);
      if (error != std::errc{} || size < 0 || size > kMostElements) {
        fail("an axis of the shape is no size");
      }
      at_ = static_cast<std::size_t>(stop - text_.data());
      if (std::ssize(array.shape) == Shape::kMaxRank) {
        fail(fmt::format("its shape has more than {} axes", Shape::kMaxRank));
      }
      array.shape.push_back(size);
      accept(',');
    }
  }

  std::string_view text_;
  const std::filesystem::path& path_;
  std::size_t at_ = 0;
  std::size_t element_bytes_ = 8;
};

/// Number of elements; nothing if it is absurd.
std::optional<std::int64_t> count_of(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size > 0 && count > kMostElements / size) return std::nullopt;
    count *= size;
  }
  return count;
}

/// Little-endian number of `bytes` bytes.
std::size_t number(const std::string& file, std::size_t at, std::size_t bytes) {
  std::size_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    value |= static_cast<std::size_t>(static_cast<unsigned char>(file[at + i])) << (8 * i);
  }
  return value;
}

std::string whole_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw DataError(fmt::format("{}: cannot be read", path.string()));
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

NpyArray read_npy(const std::filesystem::path& path) {
  const std::string file = whole_file(path);
  const auto fail = [&](const std::string& problem) {
    throw DataError(fmt::format("{}: {}", path.string(), problem));
  };
  if (file.size() < 10 || file.compare(0, 6, "\x93NUMPY") != 0) fail("is no .npy file");
  const int version = static_cast<unsigned char>(file[6]);
  if (version < 1 || version > 3) fail(fmt::format("unknown .npy version {}", version));
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  const std::size_t begin = 8 + length_bytes;
  if (file.size() < begin) fail("the header is cut off");
  const std::size_t length = number(file, 8, length_bytes);
  if (length > kLongestHeader || file.size() - begin < length) {
    fail(fmt::format("the header's length {} does not fit the file of {} bytes", length,
                     file.size()));
  }

  NpyArray array;
  Header header(std::string_view(file).substr(begin, length), path);
  header.read(array);
  const std::optional<std::int64_t> count = count_of(array.shape);
  const std::size_t data = begin + length, bytes = file.size() - data;
  const std::size_t each = header.element_bytes();
  if (!count || static_cast<std::size_t>(*count) != bytes / each || bytes % each != 0) {
    fail(fmt::format("the shape asks for {} elements of {} bytes, the file has {} bytes of data",
                     count.value_or(-1), each, bytes));
  }
  const auto size = static_cast<std::size_t>(*count);
  const auto copy = [&](auto& values) {
    values.resize(size);
    if (bytes > 0) std::memcpy(values.data(), file.data() + data, bytes);
  };
  if (array.integer) {
    copy(array.integers);
  } else if (each == sizeof(double)) {
    copy(array.reals);
  } else {
    std::vector<float> narrow;
    copy(narrow);
    array.reals.assign(narrow.begin(), narrow.end());
  }
  return array;
}

Tensor NpyArray::tensor(DType dtype) const {
  const Shape sizes{std::span<const std::int64_t>(shape)};
  if (!integer) {
    ENSURE(dtype != DType::i32, "npy: expected integers, got real numbers");
    return Tensor::from(reals, sizes, dtype, Device::cpu);
  }
  for (const std::int64_t value : integers) {
    ENSURE(dtype != DType::i32 || (value >= std::numeric_limits<std::int32_t>::min() &&
                                   value <= std::numeric_limits<std::int32_t>::max()),
           "npy: ", value, " does not fit into i32");
  }
  return Tensor::from(integers, sizes, dtype, Device::cpu);
}

}  // namespace skytape
