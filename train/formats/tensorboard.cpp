#include "train/formats/tensorboard.hpp"

#include <array>
#include <bit>

namespace skytape::train {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78u;  // Castagnoli, reflected
constexpr std::uint32_t kMaskDelta = 0xa282ead8u;   // of TFRecord

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? kPolynomial : 0u);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kTable = make_table();

void append_fixed(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// Wire types of protobuf: a field starts with its number and how its value is encoded.
enum class Wire : std::uint32_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void append_field(std::string& out, std::uint32_t field, Wire wire) {
  append_varint(out, (field << 3) | static_cast<std::uint32_t>(wire));
}

void append_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  append_field(out, field, Wire::bytes);
  append_varint(out, bytes.size());
  out += bytes;
}

/// Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
std::string event(double wall_time, std::int64_t step) {
  std::string out;
  append_field(out, 1, Wire::fixed64);
  append_fixed(out, std::bit_cast<std::uint64_t>(wall_time), 8);
  if (step != 0) {
    append_field(out, 2, Wire::varint);
    append_varint(out, static_cast<std::uint64_t>(step));
  }
  return out;
}

}  // namespace

std::uint32_t masked_crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xffffffffu;
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<std::uint8_t>(byte)) & 0xffu];
  }
  return std::rotr(~crc, 15) + kMaskDelta;
}

std::string tfrecord(std::string_view payload) {
  std::string out;
  append_fixed(out, payload.size(), 8);
  append_fixed(out, masked_crc32c(out), 4);
  out += payload;
  append_fixed(out, masked_crc32c(payload), 4);
  return out;
}

std::string event_file_header(double wall_time) {
  std::string out = event(wall_time, 0);
  append_bytes(out, 3, "brain.Event:2");
  return tfrecord(out);
}

std::string scalar_event(double wall_time, std::int64_t step, const std::vector<Scalar>& scalars) {
  // Summary { repeated Value { string tag = 1; float simple_value = 2; } value = 1; }
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    append_bytes(value, 1, scalar.tag);
    append_field(value, 2, Wire::fixed32);
    append_fixed(value, std::bit_cast<std::uint32_t>(scalar.value), 4);
    append_bytes(summary, 1, value);
  }
  std::string out = event(wall_time, step);
  append_bytes(out, 5, summary);
  return tfrecord(out);
}

}  // namespace skytape::train
