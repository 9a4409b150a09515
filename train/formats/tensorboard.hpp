// TensorBoard event files: TFRecord frames around hand-encoded Event protobufs with scalars.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace skytape::train {

/// CRC-32C (Castagnoli, RFC 3720), rotated and shifted as TFRecord wants it.
[[nodiscard]] std::uint32_t masked_crc32c(std::string_view bytes);

/// One TFRecord: u64 length, masked crc of it, payload, masked crc of it; little-endian.
[[nodiscard]] std::string tfrecord(std::string_view payload);

struct Scalar {
  std::string tag;
  float value = 0;
};

/// The record every event file starts with: file_version "brain.Event:2".
[[nodiscard]] std::string event_file_header(double wall_time);

/// One record: scalars of a step at a wall time (seconds since 1970).
[[nodiscard]] std::string scalar_event(double wall_time, std::int64_t step,
                                       const std::vector<Scalar>& scalars);

}  // namespace skytape::train
