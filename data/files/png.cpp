#include "data/files/png.hpp"

#include <fmt/format.h>

#include <cstring>

#include "tensor/core/error.hpp"

#ifdef SKYTAPE_HAVE_PNG
#include <png.h>
#endif

namespace skytape::data {

#ifdef SKYTAPE_HAVE_PNG

namespace {

constexpr uint32_t kLargestSide = 4096;

/// libpng's state for one image; errors come back as exceptions through `fail`.
struct Reader {
  explicit Reader(std::span<const uint8_t> bytes, const std::string& file)
      : rest(bytes), name(file) {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, fail, ignore);
    if (png) info = png_create_info_struct(png);
    if (!info) throw Error(name + ": out of memory");
    png_set_read_fn(png, this, take);
  }
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // libpng is C, but built with unwind tables: the exception passes through its frames, which hold
  // nothing that our destructor does not free.
  [[noreturn]] static void fail(png_structp png, png_const_charp text) {
    const auto* reader = static_cast<const Reader*>(png_get_error_ptr(png));
    throw DataError(fmt::format("{}: broken PNG: {}", reader->name, text));
  }
  static void ignore(png_structp, png_const_charp) {}
  static void take(png_structp png, png_bytep to, size_t count) {
    auto* reader = static_cast<Reader*>(png_get_io_ptr(png));
    if (count > reader->rest.size()) png_error(png, "truncated");
    std::memcpy(to, reader->rest.data(), count);
    reader->rest = reader->rest.subspan(count);
  }

  std::span<const uint8_t> rest;
  const std::string& name;
  png_structp png = nullptr;
  png_infop info = nullptr;
};

}  // namespace

GrayImage decode_png(std::span<const uint8_t> bytes, const std::string& name) {
  if (bytes.size() < 8 || png_sig_cmp(bytes.data(), 0, 8) != 0) {
    throw DataError(name + ": not a PNG file");
  }
  Reader reader(bytes, name);
  png_set_user_limits(reader.png, kLargestSide, kLargestSide);
  png_read_info(reader.png, reader.info);
  const int depth = png_get_bit_depth(reader.png, reader.info);
  const int colour = png_get_color_type(reader.png, reader.info);
  if (depth != 8 || colour != PNG_COLOR_TYPE_GRAY) {
    throw DataError(fmt::format("{}: PNG of {} bits and colour type {}, expected 8-bit gray", name,
                                depth, colour));
  }
  const int passes = png_set_interlace_handling(reader.png);
  GrayImage image;
  image.height = static_cast<int>(png_get_image_height(reader.png, reader.info));
  image.width = static_cast<int>(png_get_image_width(reader.png, reader.info));
  image.pixels.resize(static_cast<size_t>(image.height) * image.width);
  for (int pass = 0; pass < passes; ++pass) {
    for (int y = 0; y < image.height; ++y) {
      png_read_row(reader.png, image.pixels.data() + static_cast<size_t>(y) * image.width, nullptr);
    }
  }
  png_read_end(reader.png, nullptr);
  return image;
}

std::string encode_png(std::span<const uint8_t> pixels, int height, int width) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(height);
  image.width = static_cast<png_uint_32>(width);
  image.format = PNG_FORMAT_GRAY;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string bytes(size, '\0');
  ENSURE(png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data(), width, nullptr),
         "encode_png: ", image.message);
  bytes.resize(size);
  return bytes;
}

#else

GrayImage decode_png(std::span<const uint8_t>, const std::string& name) {
  throw Error(name + ": built without libpng (package libpng-dev)");
}

std::string encode_png(std::span<const uint8_t>, int, int) {
  throw Error("encode_png: built without libpng (package libpng-dev)");
}

#endif

}  // namespace skytape::data
