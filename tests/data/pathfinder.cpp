#include "data/pathfinder.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "data/digest.hpp"
#include "data/pathfinder_files.hpp"
#include "data/png.hpp"
#include "data/raster.hpp"
#include "tests/data/made_up.hpp"
#include "tests/data/real_data.hpp"

using namespace skytape;
using namespace skytape::data;
using namespace skytape::data::made_up;

namespace {

const TaskInfo& small_pathfinder(const std::filesystem::path& root, int threads,
                                 const char* name = "pathfinder") {
  const TaskInfo& task = find_task(name);
  PrepareOptions options;
  options.limit = 40;
  options.threads = threads;
  prepare(task, root, options);
  return task;
}

std::string prints(const TaskInfo& task, const std::filesystem::path& root) {
  std::string all;
  for (const char* split : {"train", "dev", "test"}) all += open(task, root, split).fingerprint();
  return all;
}

std::string preparing(const TaskInfo& task, const std::filesystem::path& from,
                      const std::filesystem::path& root, int* warnings = nullptr) {
  PrepareOptions options;
  options.from = from;
  options.warn = [&](std::string_view) { warnings ? ++*warnings : 0; };
  return error_of([&] { prepare(task, root, options); });
}

std::string metadata_error(const std::string& bytes) {
  return error_of<DataError>([&] { (void)read_pathfinder_metadata(as_bytes(bytes), "0.npy"); });
}

/// The rows of a text file as NumPy would save them: an array of fixed-width UTF-32 strings.
std::string as_numpy(const std::string& text, int rows) {
  constexpr int kWidth = 16;
  std::string header =
      "{'descr': '<U16', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", 11), }";
  header.resize(117, ' ');
  header += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += {'\1', '\0', static_cast<char>(header.size()), '\0'};
  bytes += header;
  std::string cell;
  for (const char c : text) {
    if (c != ' ' && c != '\n') {
      cell += {c, '\0', '\0', '\0'};
      continue;
    }
    cell.resize(kWidth * 4, '\0');
    bytes += cell;
    cell.clear();
  }
  return bytes;
}

const std::string kRow = "imgs/0 sample_0.png 0 1 1.0 14 4 2 0.5 1 1\n";

}  // namespace

TEST_CASE("a dash of the generator has the pixels of the official one") {
  // A horizontal dash to the right, as in the official images: 0.75 of its ink gives 85 b0 97.
  Raster canvas(17);
  draw_line(canvas, {8, 8}, move({8, 8}, 0, 4), 1, 255);
  const Raster ink = shrink(canvas, 9);
  const int brightest = *std::max_element(ink.pixels.begin(), ink.pixels.end());
  CHECK(brightest > 120);
  CHECK(brightest < 160);
  CHECK(ink.at({4, 4}) > 0);
  CHECK(ink.at({4, 5}) == brightest);
  CHECK(ink.at({2, 4}) == 0);
  CHECK(move({8, 8}, 0, 4) == Point{8, 12});
}

TEST_CASE("shrinking keeps a constant, dilation grows by the disc, stretching fills the range") {
  Raster flat(12);
  std::fill(flat.pixels.begin(), flat.pixels.end(), uint8_t{77});
  for (const uint8_t pixel : shrink(flat, 5).pixels) CHECK(pixel == 77);
  Raster dot(9);
  dot.at({4, 4}) = 200;
  const Raster grown = dilate(dot, disc(2));
  CHECK(std::count(grown.pixels.begin(), grown.pixels.end(), 200) == 13);
  dot.at({0, 0}) = 40;
  stretch(dot);
  CHECK(dot.at({4, 4}) == 255);
  CHECK(dot.at({0, 0}) == 51);
}

TEST_CASE("every image reaches from black to white, has its size, and both labels occur") {
  for (const int side : {32, 128}) {
    for (const int length : {6, 9, 14}) {
      const PathfinderGenerator generator(pathfinder_parameters(side, length));
      PathfinderImage image;
      int ones = 0;
      const int many = side == 32 ? 60 : 6;
      for (int i = 0; i < many; ++i) {
        generator.draw(1, i, image);
        CHECK(image.pixels.size() == static_cast<size_t>(side) * side);
        const auto [low, high] = std::minmax_element(image.pixels.begin(), image.pixels.end());
        CHECK(*low == 0);
        CHECK(*high == 255);
        ones += image.label;
      }
      CHECK(ones > 0);
      CHECK(ones < many);
    }
  }
}

TEST_CASE("labels leave no trace in the first moments of the images") {
  const PathfinderGenerator generator(pathfinder_parameters(32, 14));
  PathfinderImage image;
  std::array<double, 2> sum{}, count{};
  for (int i = 0; i < 1500; ++i) {
    generator.draw(1, i, image);
    double ink = 0;
    for (const uint8_t pixel : image.pixels) ink += pixel;
    sum[image.label] += ink / 1024;
    ++count[image.label];
  }
  CHECK(std::abs(count[0] - count[1]) < 4 * std::sqrt(1500.0));
  // The standard deviation of an image's mean is about 2, that of the difference 0.1.
  CHECK(std::abs(sum[0] / count[0] - sum[1] / count[1]) < 0.4);
}

TEST_CASE("a generated set does not depend on the thread count and survives export and import") {
  Folder folder;
  const TaskInfo& task = small_pathfinder(folder.path() / "one", 1);
  small_pathfinder(folder.path() / "two", 2);
  CHECK(prints(task, folder.path() / "one") == prints(task, folder.path() / "two"));
  CHECK(open(task, folder.path() / "one", "train").size() == 32);
  CHECK(open(task, folder.path() / "one", "dev").size() == 4);
  export_official(task, folder.path() / "one", folder.path() / "files");
  const auto set = folder.path() / "files/pathfinder32/curv_contour_length_14";
  CHECK(read_file(set / "metadata/0.npy").starts_with("imgs/0 sample_0.png 0 "));
  int warnings = 0;
  for (const auto& from : {folder.path() / "files", folder.path() / "files/pathfinder32", set}) {
    CHECK(preparing(task, from, folder.path() / "again", &warnings).empty());
    CHECK(prints(task, folder.path() / "one") == prints(task, folder.path() / "again"));
  }
  CHECK(warnings == 3);  // 40 images are not the official set
  CHECK(preparing(find_task("pathx"), folder.path() / "files", folder.path() / "x")
            .find("no pathfinder128/curv_contour_length_14") != std::string::npos);
}

TEST_CASE("both metadata encodings say the same") {
  const std::string text = kRow + "imgs/0 sample_1.png 1 0 1.0 14 4 2 0.5 1 1\n";
  const auto a = read_pathfinder_metadata(as_bytes(text), "x");
  const std::string numpy = as_numpy(text, 2);
  const auto b = read_pathfinder_metadata(as_bytes(numpy), "x");
  REQUIRE(a.size() == 2);
  REQUIRE(b.size() == 2);
  for (int i = 0; i < 2; ++i) {
    CHECK(a[i].path == "imgs/0/sample_" + std::to_string(i) + ".png");
    CHECK(a[i].path == b[i].path);
    CHECK(a[i].label == 1 - i);
    CHECK(b[i].label == a[i].label);
  }
}

TEST_CASE("broken metadata is refused with file and row") {
  CHECK(metadata_error("") == "0.npy: no row");
  CHECK(metadata_error("imgs/0 sample_0.png 0 1\n") == "0.npy:1: 4 fields, expected 11");
  CHECK(metadata_error(kRow + "imgs/0 s.png 0 2 1.0 14 4 2 0.5 1 1\n") ==
        "0.npy:2: label '2', expected 0 or 1");
  const std::string numpy = as_numpy(kRow, 1);
  CHECK(metadata_error(numpy).empty());
  for (const size_t size : {6, 9, 50, 127, 200}) {
    CHECK(metadata_error(numpy.substr(0, size)).starts_with("0.npy: "));
  }
  std::string wide = numpy;
  wide.replace(wide.find("<U16"), 4, "<U99");
  CHECK(metadata_error(wide).find("bytes of strings") != std::string::npos);
  std::string floats = numpy;
  floats.replace(floats.find("<U16"), 4, "<f16");
  CHECK(metadata_error(floats).find("NumPy header") != std::string::npos);
}

TEST_CASE("PNG files round-trip, broken ones are refused by name") {
  std::vector<uint8_t> pixels(6 * 4);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(11 * i);
  const std::string good = encode_png(pixels, 6, 4);
  const GrayImage image = decode_png(as_bytes(good), "x.png");
  CHECK(image.height == 6);
  CHECK(image.width == 4);
  CHECK(image.pixels == pixels);
  const auto text_of = [](const std::string& bytes) {
    return error_of<DataError>([&] { (void)decode_png(as_bytes(bytes), "x.png"); });
  };
  CHECK(text_of("") == "x.png: not a PNG file");
  CHECK(text_of("GIF89a, certainly").find("not a PNG") != std::string::npos);
  for (size_t size = 8; size < good.size(); size += 5)
    CHECK_FALSE(text_of(good.substr(0, size)).empty());
}

TEST_CASE("empty images are skipped with a warning, missing, wrong-sized and cut ones refused") {
  Folder folder;
  const TaskInfo& task = small_pathfinder(folder.path() / "made", 1);
  export_official(task, folder.path() / "made", folder.path() / "files");
  const auto from = folder.path() / "files", root = folder.path() / "root";
  const std::string name = "files/pathfinder32/curv_contour_length_14/imgs/0/sample_7.png";
  const std::string good = read_file(folder.path() / name);
  int warnings = 0;
  folder.write(name, "");
  CHECK(preparing(task, from, root, &warnings).empty());
  CHECK(warnings == 2);
  int64_t total = 0;
  for (const char* split : {"train", "dev", "test"}) total += open(task, root, split).size();
  CHECK(total == 39);
  folder.write(name, good.substr(0, good.size() / 2));
  CHECK(preparing(task, from, root).find("sample_7.png: broken PNG") != std::string::npos);
  folder.write(name, encode_png(std::vector<uint8_t>(64), 8, 8));
  CHECK(preparing(task, from, root).find("image of 8x8 pixels, expected 32x32") !=
        std::string::npos);
  std::filesystem::remove(folder.path() / name);
  CHECK(
      preparing(task, from, root).find("1 of the 40 images that its metadata lists are missing") !=
      std::string::npos);
}

TEST_CASE("official images are read with either metadata") {
  const auto data = real_data_or_skip("reference");
  if (!data) return;
  Folder folder;
  const auto set = *data / "pathfinder32/curv_contour_length_14";
  const std::string text = read_file(set / "metadata/0.npy");
  const std::string numpy = read_file(set / "metadata_npsave/0.npy");
  const auto a = read_pathfinder_metadata(as_bytes(text), "text");
  const auto b = read_pathfinder_metadata(as_bytes(numpy), "numpy");
  REQUIRE(a.size() == 200);
  REQUIRE(b.size() == 200);
  for (size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i].path == b[i].path);
    CHECK(a[i].label == b[i].label);
  }
  REQUIRE(preparing(find_task("pathfinder"), *data, folder.path()).empty());
  CHECK(open(find_task("pathfinder"), folder.path(), "train").size() == 160);
}
