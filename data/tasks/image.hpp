// Image: CIFAR-10 in gray, 32x32 pixels row by row; the gray value is the token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace skytape::data {

class ByteStream;

inline constexpr size_t kImagePixels = 32 * 32;

/// Images of one file, in order.
struct ImageFile {
  std::vector<uint8_t> labels;  // [count]
  std::vector<uint8_t> pixels;  // [count, 1024] gray
};

/// Gray value as the benchmark computes it, in exact integers: the weights 0.2989, 0.5870, 0.1140
/// of [0, 1] colours, times 255.5, rounded down.
[[nodiscard]] constexpr uint8_t gray_value(uint32_t red, uint32_t green, uint32_t blue) {
  return static_cast<uint8_t>((2989 * red + 5870 * green + 1140 * blue) * 511 / 5100000);
}

/// Reads records of label and pixels: three colour planes (3073 bytes), or one gray plane (1025).
/// DataError naming file and record: a cut record, a label above 9.
[[nodiscard]] ImageFile read_images(ByteStream& stream, const std::string& name, bool gray);

/// Order in which the benchmark's data set stores `count` training images: by MD5 of "train<i>".
/// The first 90 % are train, the rest is dev.
[[nodiscard]] std::vector<uint32_t> image_order(uint32_t count);

}  // namespace skytape::data
