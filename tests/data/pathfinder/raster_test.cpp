#include "data/pathfinder/raster.hpp"

#include <algorithm>
#include <string>

#include "tests/support/doctest.hpp"

template <> struct doctest::StringMaker<skytape::data::Point> {
  static String convert(const skytape::data::Point& p) {
    return String("(") + toString(p.y) + ", " + toString(p.x) + ")";
  }
};

using namespace skytape::data;

namespace {

/// Rows of the raster that hold anything, '#' where a pixel is set, cut to its columns.
std::string picture(const Raster& raster) {
  int top = raster.side, bottom = -1, left = raster.side, right = -1;
  for (int y = 0; y < raster.side; ++y) {
    for (int x = 0; x < raster.side; ++x) {
      if (raster.at({y, x}) == 0) continue;
      top = std::min(top, y);
      bottom = std::max(bottom, y);
      left = std::min(left, x);
      right = std::max(right, x);
    }
  }
  std::string text;
  for (int y = top; y <= bottom; ++y) {
    for (int x = left; x <= right; ++x) text += raster.at({y, x}) != 0 ? '#' : '.';
    text += '\n';
  }
  return text;
}

Raster line(int dy, int dx, int width) {
  Raster canvas(41);
  draw_line(canvas, {20, 20}, {20 + dy, 20 + dx}, width, 255);
  return canvas;
}

std::vector<int> row_of(const Raster& raster, int y) {
  std::vector<int> row;
  for (int x = 0; x < raster.side; ++x) row.push_back(raster.at({y, x}));
  return row;
}

}  // namespace

// The expected pixels below are those of Pillow 13.0 (ImageDraw.line, Image.resize with LANCZOS)
// and OpenCV 5.0 (dilate), which the official generator draws with.

TEST_CASE("lines have the pixels that Pillow gives them") {
  CHECK(picture(line(3, 4, 1)) ==
        "#....\n"
        ".#...\n"
        "..##.\n"
        "....#\n");
  CHECK(picture(line(-2, -9, 3)) ==
        "#.........\n"
        "#####.....\n"
        "##########\n"
        ".....#####\n"
        ".........#\n");
  CHECK(picture(line(4, 10, 3)) ==
        "#..........\n"
        "###........\n"
        "######.....\n"
        "...#####...\n"
        ".....######\n"
        "........###\n"
        "..........#\n");
  CHECK(picture(line(0, 5, 3)) == "######\n######\n######\n");
}

TEST_CASE("a dash of 32x32 images has the ink and the mask of the official one") {
  Raster canvas(17);
  draw_line(canvas, {8, 8}, move({8, 8}, 0, 4), 1, 255);
  const Raster ink = shrink(canvas, 9), mask = shrink(dilate(canvas, disc(2)), 9);
  CHECK(row_of(ink, 4) == std::vector<int>{0, 0, 2, 0, 102, 135, 116, 0, 0});
  CHECK(row_of(ink, 3) == std::vector<int>(9));
  CHECK(row_of(mask, 3) == std::vector<int>{0, 1, 2, 20, 173, 204, 186, 28, 0});
  CHECK(row_of(mask, 4) == std::vector<int>{0, 3, 0, 155, 255, 255, 255, 183, 3});
}

TEST_CASE("shrinking keeps a constant, dilation grows by the disc, moves round up") {
  Raster flat(12);
  std::fill(flat.pixels.begin(), flat.pixels.end(), uint8_t{77});
  for (const uint8_t pixel : shrink(flat, 5).pixels) CHECK(pixel == 77);
  Raster dot(9);
  dot.at({4, 4}) = 200;
  const Raster grown = dilate(dot, disc(2));
  CHECK(std::count(grown.pixels.begin(), grown.pixels.end(), 200) == 13);
  CHECK(move({8, 8}, 0, 4) == Point{8, 12});
  CHECK(move({8, 8}, 0.5, 4) == Point{10, 12});  // 8 + 1.92, 8 + 3.51
  CHECK(move({8, 8}, -2.5, 4) == Point{6, 5});   // 8 - 2.39, 8 - 3.20
}
