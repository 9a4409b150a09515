#include "train/formats/tensorboard.hpp"

#include <cstring>

#include "tests/support/doctest.hpp"

using namespace skytape::train;

namespace {

template <class T> T read(std::string_view& bytes) {
  REQUIRE(bytes.size() >= sizeof(T));
  T value{};
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return value;
}

std::uint64_t read_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<std::uint8_t>(read<char>(bytes));
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return value;
  }
}

std::string_view read_bytes(std::string_view& bytes) {
  const std::uint64_t size = read_varint(bytes);
  REQUIRE(bytes.size() >= size);
  const std::string_view part = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return part;
}

/// Payload of the first record, whose two checksums must hold.
std::string_view read_record(std::string_view& file) {
  const std::string_view head = file.substr(0, 8);
  const auto length = read<std::uint64_t>(file);
  CHECK(read<std::uint32_t>(file) == masked_crc32c(head));
  REQUIRE(file.size() >= length + 4);
  const std::string_view payload = file.substr(0, length);
  file.remove_prefix(length);
  CHECK(read<std::uint32_t>(file) == masked_crc32c(payload));
  return payload;
}

}  // namespace

TEST_CASE("CRC-32C matches the published check value") {
  // RFC 3720 B.4: 32 bytes of zeros give 8a9136aa; TFRecord rotates by 15 and adds a constant.
  const std::uint32_t crc = 0x8a9136aau;
  const std::uint32_t masked = ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  CHECK(masked_crc32c(std::string(32, '\0')) == masked);
}

TEST_CASE("an event file parses back to its scalars") {
  const std::string written =
      event_file_header(12.5) +
      scalar_event(13.25, 300, {{"train/loss", 2.5f}, {"dev/accuracy", 0.25f}});
  std::string_view file = written;

  std::string_view first = read_record(file);
  CHECK(read_varint(first) == ((1u << 3) | 1u));
  CHECK(read<double>(first) == 12.5);
  CHECK(read_varint(first) == ((3u << 3) | 2u));
  CHECK(read_bytes(first) == "brain.Event:2");
  CHECK(first.empty());

  std::string_view event = read_record(file);
  CHECK(file.empty());
  CHECK(read_varint(event) == ((1u << 3) | 1u));
  CHECK(read<double>(event) == 13.25);
  CHECK(read_varint(event) == (2u << 3));
  CHECK(read_varint(event) == 300);
  CHECK(read_varint(event) == ((5u << 3) | 2u));
  std::string_view summary = read_bytes(event);
  CHECK(event.empty());
  for (const auto& [tag, number] :
       {std::pair("train/loss", 2.5f), std::pair("dev/accuracy", 0.25f)}) {
    CHECK(read_varint(summary) == ((1u << 3) | 2u));
    std::string_view value = read_bytes(summary);
    CHECK(read_varint(value) == ((1u << 3) | 2u));
    CHECK(read_bytes(value) == tag);
    CHECK(read_varint(value) == ((2u << 3) | 5u));
    CHECK(read<float>(value) == number);
    CHECK(value.empty());
  }
  CHECK(summary.empty());
}
