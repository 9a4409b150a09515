#include "data/tasks/image.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "data/cache/cache.hpp"
#include "data/files/json.hpp"
#include "data/tasks/build.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

constexpr size_t kOfficialImages = 10000;  // per file

struct KnownFile {
  std::string_view name, sha256;
};

// SHA-256 of the official batches (they have the published MD5 sums) and of their gray form.
constexpr KnownFile kKnown[] = {
    {"data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"},
    {"data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"},
    {"data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"},
    {"data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"},
    {"data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"},
    {"test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"},
    {"data_batch_1.gray.bin", "59cd18fb95e50047f4a5e85f31701c1bace31fa4542a19cd73b1db959897c27a"},
    {"data_batch_2.gray.bin", "c8b2a32939e9c3deef14874aa7b44f9cbe5079b421536d9eee7f729101acdb1c"},
    {"data_batch_3.gray.bin", "5dad024de6af061dc21315330ca8973bc2feed145269b0b750ac69dac3a0c37b"},
    {"data_batch_4.gray.bin", "c96e50b2865e06add0916da891fa26985d5bf91cd106a6fd8cfd283286da8b2d"},
    {"data_batch_5.gray.bin", "03f55a5772278354011879ae1d3a94504372e0ac66c0287ee2c51669efc2bad1"},
    {"test_batch.gray.bin", "364098be105a01440e25a32aa88ff9ec469130fab596c5cd96999a7abf608053"}};

bool is_known(std::string_view name, std::string_view sha256) {
  return std::any_of(std::begin(kKnown), std::end(kKnown), [&](const KnownFile& file) {
    return file.name == name && file.sha256 == sha256;
  });
}

std::vector<std::string> file_names(std::string_view ending) {
  std::vector<std::string> names;
  for (int i = 1; i <= 5; ++i) names.push_back(fmt::format("data_batch_{}{}", i, ending));
  names.push_back(fmt::format("test_batch{}", ending));
  return names;
}

void add_image(CacheWriter& out, const ImageFile& images, size_t i) {
  out.add(images.labels[i], std::span(images.pixels).subspan(i * kImagePixels, kImagePixels));
}

}  // namespace

ImageFile read_images(ByteStream& stream, const std::string& name, bool gray) {
  const size_t record = 1 + (gray ? 1 : 3) * kImagePixels;
  std::vector<uint8_t> bytes(record);
  ImageFile images;
  for (size_t number = 0;; ++number) {
    const size_t fill = read_full(stream, bytes);
    if (fill == 0) return images;
    if (fill < record) {
      throw DataError(fmt::format("{}: ends inside record {} (offset {}): {} bytes, expected {}",
                                  name, number, number * record, fill, record));
    }
    if (bytes[0] > 9) {
      throw DataError(fmt::format("{}: record {} (offset {}) has label {}, expected 0..9", name,
                                  number, number * record, bytes[0]));
    }
    images.labels.push_back(bytes[0]);
    const uint8_t* const plane = bytes.data() + 1;
    for (size_t i = 0; i < kImagePixels; ++i) {
      images.pixels.push_back(
          gray ? plane[i]
               : gray_value(plane[i], plane[kImagePixels + i], plane[2 * kImagePixels + i]));
    }
  }
}

std::vector<uint32_t> image_order(uint32_t count) {
  std::vector<std::array<uint8_t, 16>> key(count);
  for (uint32_t i = 0; i < count; ++i) key[i] = md5(fmt::format("train{}", i));
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key[a] < key[b]; });
  return order;
}

namespace {

/// Reads `data_batch_{1..5}` and `test_batch`, `.bin` or `.gray.bin`, below `options.from`.
void build_image(const TaskInfo& task, const PrepareOptions& options, CacheSet& set) {
  const std::vector<std::vector<std::string>> forms = {file_names(".bin"), file_names(".gray.bin")};
  const std::vector<std::string>& names = find_form(options.from, forms);
  const bool gray = names == forms[1];
  std::array<ImageFile, 6> files;
  auto sources = read_named_files(
      task, options, names, [&](std::string_view name, const SourceFile& file, ByteStream& stream) {
        const size_t number = std::find(names.begin(), names.end(), name) - names.begin();
        files[number] = read_images(stream, file.shown, gray);
      });
  for (auto& source : sources) {
    const auto name = source.at("file").get<std::string>();
    const bool known = is_known(name, source.at("sha256").get<std::string>());
    source["official"] = known;
    if (!known) options.warn(fmt::format("{}: not the official CIFAR-10 file", name));
  }
  ImageFile train;
  for (int i = 0; i < 5; ++i) {
    if (files[i].labels.size() != kOfficialImages) {
      options.warn(fmt::format("{}: {} images, the official file has {}", names[i],
                               files[i].labels.size(), kOfficialImages));
    }
    train.labels.insert(train.labels.end(), files[i].labels.begin(), files[i].labels.end());
    train.pixels.insert(train.pixels.end(), files[i].pixels.begin(), files[i].pixels.end());
  }
  const auto order = image_order(static_cast<uint32_t>(train.labels.size()));
  for (size_t i = 0; i < order.size(); ++i) {
    add_image(set.split(i * 10 < order.size() * 9 ? "train" : "dev"), train, order[i]);
  }
  for (size_t i = 0; i < files[5].labels.size(); ++i) add_image(set.split("test"), files[5], i);
  set.provenance = json_text(
      {{"how", "read"}, {"form", gray ? "gray" : "rgb"}, {"split", "md5"}, {"sources", sources}});
}

}  // namespace

TaskInfo image_task() {
  return {.name = "image",
          .description = "what does a gray 32x32 picture show? (CIFAR-10)",
          .tokens = TokenKind::pixels,
          .classes = 10,
          .labels = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse",
                     "ship", "truck"},
          .vocabulary = 256,
          .max_length = 1024,
          .nominal_length = 1024,
          .benchmark = true,
          .source = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
          .source_sha256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
          .build = build_image};
}

}  // namespace skytape::data
