// Small rasters for the Pathfinder generator: lines, discs, dilation, Lanczos shrinking.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace skytape::data {

/// Row and column; y grows downwards.
struct Point {
  int y = 0, x = 0;
  friend bool operator==(const Point&, const Point&) = default;
  friend auto operator<=>(const Point&, const Point&) = default;
};

/// A square of 8-bit pixels, row-major.
struct Raster {
  explicit Raster(int size) : side(size), pixels(static_cast<size_t>(size) * size) {}
  [[nodiscard]] bool holds(Point p) const {
    return p.y >= 0 && p.x >= 0 && p.y < side && p.x < side;
  }
  [[nodiscard]] uint8_t& at(Point p) { return pixels[static_cast<size_t>(p.y) * side + p.x]; }
  [[nodiscard]] uint8_t at(Point p) const { return pixels[static_cast<size_t>(p.y) * side + p.x]; }

  int side;
  std::vector<uint8_t> pixels;  // [side, side]
};

/// (ceil(p.y + distance sin angle), ceil(p.x + distance cos angle)): rounded up on both axes.
[[nodiscard]] Point move(Point p, double angle, double distance);

/// Integer Bresenham line, both ends included; if `width` exceeds 1, a quadrilateral filled row by
/// row, with places half a pixel off rounded inwards.
void draw_line(Raster& raster, Point from, Point to, int width, uint8_t value);

/// Offsets (dy, dx) with dy² + dx² <= radius².
[[nodiscard]] std::vector<Point> disc(int radius);

/// Largest pixel under the shape put on each pixel; outside the raster counts as nothing.
[[nodiscard]] Raster dilate(const Raster& raster, std::span<const Point> shape);

/// Shrinks with the Lanczos kernel of order 3: rows, then columns, each rounded to 8 bits.
[[nodiscard]] Raster shrink(const Raster& raster, int side);

}  // namespace skytape::data
