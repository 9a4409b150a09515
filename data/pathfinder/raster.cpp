#include "data/pathfinder/raster.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

namespace skytape::data {
namespace {

void put(Raster& raster, Point p, uint8_t value) {
  if (raster.holds(p)) raster.at(p) = value;
}

void thin_line(Raster& raster, Point a, Point b, uint8_t value) {
  const int dx = std::abs(b.x - a.x), dy = -std::abs(b.y - a.y);
  const int step_x = a.x < b.x ? 1 : -1, step_y = a.y < b.y ? 1 : -1;
  for (int error = dx + dy;;) {
    put(raster, a, value);
    if (a == b) return;
    const int twice = 2 * error;
    if (twice >= dy) error += dy, a.x += step_x;
    if (twice <= dx) error += dx, a.y += step_y;
  }
}

/// Corners of a line of that width, moved off the axis by whole pixels.
std::array<Point, 4> corners(Point from, Point to, int width) {
  const double dx = to.x - from.x, dy = to.y - from.y;
  const double ratio = (width - 1) / 2.0 / std::hypot(dx, dy);
  const Point off{static_cast<int>(std::lround(dx * ratio)),
                  static_cast<int>(std::lround(dy * ratio))};
  return {Point{from.y + off.y, from.x - off.x}, Point{to.y + off.y, to.x - off.x},
          Point{to.y - off.y, to.x + off.x}, Point{from.y - off.y, from.x + off.x}};
}

/// Leftmost and rightmost place at which the edges of a convex polygon cross row y; left > right if
/// they do not. Horizontal edges add nothing: their neighbours end where they do.
std::pair<double, double> crossings(std::span<const Point> corner, int y) {
  double left = std::numeric_limits<double>::infinity(), right = -left;
  for (size_t i = 0; i < corner.size(); ++i) {
    const Point a = corner[i], b = corner[(i + 1) % corner.size()];
    if (a.y == b.y || y < std::min(a.y, b.y) || y > std::max(a.y, b.y)) continue;
    const double x = a.x + static_cast<double>(b.x - a.x) * (y - a.y) / (b.y - a.y);
    left = std::min(left, x);
    right = std::max(right, x);
  }
  return {left, right};
}

double lanczos3(double x) {
  if (x == 0) return 1;
  if (std::abs(x) >= 3) return 0;
  const double t = std::numbers::pi * x;
  return 3 * std::sin(t) * std::sin(t / 3) / (t * t);
}

struct Taps {
  int begin = 0;
  std::vector<double> weights;  // sum 1
};

/// For each output pixel, the input pixels under the kernel and their weights.
std::vector<Taps> taps_of(int from, int to) {
  const double scale = static_cast<double>(from) / to;
  const double support = 3 * scale;
  std::vector<Taps> all(to);
  for (int i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * scale;
    const int begin = std::max(0, static_cast<int>(centre - support + 0.5));
    const int end = std::min(from, static_cast<int>(centre + support + 0.5));
    double sum = 0;
    for (int j = begin; j < end; ++j) {
      all[i].weights.push_back(lanczos3((j - centre + 0.5) / scale));
      sum += all[i].weights.back();
    }
    for (double& weight : all[i].weights) weight /= sum;
    all[i].begin = begin;
  }
  return all;
}

uint8_t to_pixel(double value) {
  return static_cast<uint8_t>(std::clamp(std::floor(value + 0.5), 0.0, 255.0));
}

/// Shrinks each row, and turns rows to columns.
std::vector<uint8_t> shrink_rows(const std::vector<uint8_t>& pixels, int rows,
                                 const std::vector<Taps>& taps) {
  const size_t length = pixels.size() / rows;
  std::vector<uint8_t> turned(taps.size() * rows);  // [side, rows]
  for (int y = 0; y < rows; ++y) {
    for (size_t x = 0; x < taps.size(); ++x) {
      const auto& [begin, weights] = taps[x];
      double sum = 0;
      for (size_t j = 0; j < weights.size(); ++j)
        sum += weights[j] * pixels[y * length + begin + j];
      turned[x * rows + y] = to_pixel(sum);
    }
  }
  return turned;
}

}  // namespace

Point move(Point p, double angle, double distance) {
  return {static_cast<int>(std::ceil(p.y + distance * std::sin(angle))),
          static_cast<int>(std::ceil(p.x + distance * std::cos(angle)))};
}

void draw_line(Raster& raster, Point from, Point to, int width, uint8_t value) {
  if (width <= 1 || from == to) return thin_line(raster, from, to, value);
  const auto corner = corners(from, to, width);
  for (int y = 0; y < raster.side; ++y) {
    const auto [left, right] = crossings(corner, y);
    if (left > right) continue;
    const int begin = static_cast<int>(std::floor(left + 0.5));  // halves round inwards
    const int end = static_cast<int>(std::ceil(right - 0.5));
    for (int x = begin; x <= end; ++x) put(raster, {y, x}, value);
  }
}

std::vector<Point> disc(int radius) {
  std::vector<Point> points;
  for (int y = -radius; y <= radius; ++y) {
    for (int x = -radius; x <= radius; ++x) {
      if (y * y + x * x <= radius * radius) points.push_back({y, x});
    }
  }
  return points;
}

Raster dilate(const Raster& raster, std::span<const Point> shape) {
  Raster grown(raster.side);
  for (int y = 0; y < raster.side; ++y) {
    for (int x = 0; x < raster.side; ++x) {
      const uint8_t value = raster.at({y, x});
      if (value == 0) continue;  // most pixels, for a line
      for (const Point& offset : shape) {
        const Point p{y - offset.y, x - offset.x};
        if (grown.holds(p)) grown.at(p) = std::max(grown.at(p), value);
      }
    }
  }
  return grown;
}

Raster shrink(const Raster& raster, int side) {
  const std::vector<Taps> taps = taps_of(raster.side, side);
  const std::vector<uint8_t> columns = shrink_rows(raster.pixels, raster.side, taps);
  Raster small(side);
  small.pixels = shrink_rows(columns, side, taps);
  return small;
}

}  // namespace skytape::data
