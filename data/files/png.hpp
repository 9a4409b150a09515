// Gray PNG images, 8 bits per pixel.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace skytape::data {

struct GrayImage {
  int height = 0, width = 0;
  std::vector<uint8_t> pixels;  // [height, width]
};

/// Decodes a PNG of one 8-bit channel, at most 4096 pixels a side. DataError naming `name`: not a
/// PNG, truncated, another format.
[[nodiscard]] GrayImage decode_png(std::span<const uint8_t> bytes, const std::string& name);

/// Encodes [height, width] pixels.
[[nodiscard]] std::string encode_png(std::span<const uint8_t> pixels, int height, int width);

}  // namespace skytape::data
