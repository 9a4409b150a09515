#include "data/tasks/image.hpp"

#include <cstring>

#include "data/files/digest.hpp"
#include "data/files/source.hpp"
#include "tests/data/real_data.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/data/tasks/official_files.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::data;
using namespace skytape::data::synthetic;

namespace {

std::string reading(const std::string& bytes, bool gray) {
  const auto stream = open_memory(as_bytes(bytes));
  return error_of<DataError>([&] { (void)read_images(*stream, "batch.bin", gray); });
}

}  // namespace

TEST_CASE("gray values are those of the benchmark's conversion") {
  CHECK(gray_value(255, 255, 255) == 255);
  CHECK(gray_value(0, 0, 0) == 0);
  CHECK(gray_value(59, 62, 63) == 61);
  CHECK(gray_value(254, 0, 0) == 76);
}

TEST_CASE("the order of the training images is that of the published index table") {
  const auto order = image_order(50000);
  const std::vector<uint32_t> start(order.begin(), order.begin() + 5);
  const std::vector<uint32_t> dev(order.begin() + 45000, order.begin() + 45005);
  CHECK(start == std::vector<uint32_t>{16399, 1680, 47917, 17307, 27051});
  CHECK(dev == std::vector<uint32_t>{13431, 9237, 17462, 32685, 9518});
  CHECK(order.back() == 32842);
  Sha256 digest;
  digest.update({reinterpret_cast<const uint8_t*>(order.data()), order.size() * 4});
  CHECK(digest.hex() == "3b05e897f13d5849fe98bcd6526837644bbc6e7182310f78763d811f9c1298ec");
}

TEST_CASE("colour and gray records give the same images") {
  const std::string colour = image_records(12, 3);
  std::string gray;
  const auto stream = open_memory(as_bytes(colour));
  const ImageFile images = read_images(*stream, "x", false);
  CHECK(images.labels == std::vector<uint8_t>{3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4});
  CHECK(images.pixels.size() == 12 * kImagePixels);
  CHECK(images.pixels[0] == gray_value(60, 30, 20));
  for (int i = 0; i < 12; ++i) {
    gray += static_cast<char>(images.labels[i]);
    gray.append(reinterpret_cast<const char*>(images.pixels.data()) + i * kImagePixels,
                kImagePixels);
  }
  const auto again = open_memory(as_bytes(gray));
  CHECK(read_images(*again, "x", true).pixels == images.pixels);
}

TEST_CASE("a cut record or a label above 9 is refused with its place") {
  CHECK(reading(image_records(2, 0), false).empty());
  CHECK(reading(image_records(2, 0).substr(0, 4000), false) ==
        "batch.bin: ends inside record 1 (offset 3073): 927 bytes, expected 3073");
  std::string wrong = image_records(2, 0);
  wrong[3073] = 10;
  CHECK(reading(wrong, false) == "batch.bin: record 1 (offset 3073) has label 10, expected 0..9");
}

TEST_CASE("six batches become 90 % train and 10 % dev in the order of their digests, and test") {
  Folder folder;
  for (int i = 1; i <= 5; ++i) {
    folder.write("deep/er/cifar-10-batches-bin/data_batch_" + std::to_string(i) + ".bin",
                 image_records(20, i));
  }
  PrepareOptions options;
  options.from = folder.path();
  const TaskInfo& task = find_task("image");
  CHECK(error_of([&] { prepare(task, folder.path(), options); }).find("test_batch.bin missing") !=
        std::string::npos);
  folder.write("deep/er/cifar-10-batches-bin/test_batch.bin", image_records(7, 0));
  prepare(task, folder.path(), options);
  const Dataset train = open(task, folder.path(), "train"), dev = open(task, folder.path(), "dev");
  CHECK(train.size() == 90);
  CHECK(dev.size() == 10);
  CHECK(open(task, folder.path(), "test").size() == 7);
  const std::string text = to_text(describe(task, folder.path()));
  CAPTURE(text);
  CHECK(text.find("test_batch.bin                        21511 bytes  sha256 ") != text.npos);
  CHECK(text.find(", not the known one\n") != text.npos);
  const auto order = image_order(100);
  for (int64_t i = 0; i < 100; ++i) {
    const int expected = static_cast<int>(order[i] / 20 + 1 + order[i] % 20) % 10;
    CHECK((i < 90 ? train.label(i) : dev.label(i - 90)) == expected);
  }
}

TEST_CASE("the real pictures have the known digests, split and first pixels") {
  const auto data = real_data_or_skip("cifar10");
  if (!data) return;
  Folder folder;
  PrepareOptions options;
  options.from = *data;
  int warnings = 0;
  options.warn = [&](std::string_view) { ++warnings; };
  const TaskInfo& task = find_task("image");
  prepare(task, folder.path(), options);
  CHECK(warnings == 0);
  CHECK(describe(task, folder.path()).splits[1].label_counts ==
        std::vector<int64_t>{470, 492, 478, 474, 503, 497, 495, 500, 544, 547});
  const Dataset test = open(task, folder.path(), "test");
  const std::vector<uint8_t> start = {118, 118, 123, 125, 119, 115, 121, 119};
  CHECK(test.label(0) == 3);
  const auto order = image_order(50000);
  const auto first = std::find(order.begin(), order.end(), 0u) - order.begin();  // in train
  const Dataset train = open(task, folder.path(), "train");
  const std::vector<uint8_t> pixels = {61,  45,  48,  56,  78,  96,  113, 117,
                                       123, 125, 108, 104, 120, 118, 111, 103};
  CHECK(train.label(first) == 6);
  CHECK(std::equal(pixels.begin(), pixels.end(), train.tokens(first).begin()));
  CHECK(std::equal(start.begin(), start.end(), test.tokens(0).begin()));
  const auto colour = open_file(*data / "cifar-10-batches-bin/test_batch.bin.gz");
  const ImageFile images = read_images(*colour, "test_batch.bin", false);
  for (int64_t i = 0; i < test.size(); ++i) {
    REQUIRE(std::memcmp(test.tokens(i).data(), images.pixels.data() + i * kImagePixels,
                        kImagePixels) == 0);
  }
}
