#include "data/pathfinder/pathfinder_dashes.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

namespace skytape::data {
namespace {

constexpr double kPi = std::numbers::pi;

/// True if at every pixel of a window some offset leads to a pixel of the window. The corners
/// decide: each leaves one quarter of the plane.
bool stays_inside(std::span<const Point> offsets) {
  for (const int y : {-1, 1}) {
    for (const int x : {-1, 1}) {
      const bool stays = std::any_of(offsets.begin(), offsets.end(),
                                     [&](Point o) { return o.y * y >= 0 && o.x * x >= 0; });
      if (!stays) return false;
    }
  }
  return true;
}

PathfinderDash render_dash(const PathfinderParameters& p, int margin, double angle) {
  const int thickness = static_cast<int>(std::ceil(p.dash_thickness));
  const int half = p.dash_length + thickness + margin, fine = p.antialias * half;
  Raster canvas(2 * fine + 1);
  const Point centre{fine, fine};
  draw_line(canvas, centre, move(centre, angle, p.dash_length * p.antialias),
            static_cast<int>(p.dash_thickness * p.antialias), 255);
  const Raster ink = shrink(canvas, 2 * half + 1);
  const Raster mask = shrink(dilate(canvas, disc(margin * p.antialias)), 2 * half + 1);
  PathfinderDash dash;
  dash.half = half;
  const int reach = p.dash_length + margin;
  dash.ink = ink.pixels;
  for (const uint8_t pixel : mask.pixels) dash.mask.push_back(static_cast<float>(pixel) / 255);
  for (int y = -half; y <= half; ++y) {
    for (int x = -half; x <= half; ++x) {
      // The official program renders this mask one pixel off its centre and cuts it to a smaller
      // square.
      const bool kept = std::abs(y + 1) <= reach && std::abs(x + 1) <= reach;
      if (kept && mask.at({y + half, x + half}) == 255) dash.footprint.push_back({y + 1, x + 1});
    }
  }
  // The official program dilates the occupancy with the footprint. Where the whole footprint lies
  // outside the window, its library yields the lowest number there is, and a search that meets a
  // negative number reports no free place. This is why small windows have so few distractors.
  dash.starts_curves = stays_inside(dash.footprint);
  return dash;
}

}  // namespace

double opposite(double angle) { return angle < 0 ? angle + kPi : angle - kPi; }

PathfinderDashes::PathfinderDashes(const PathfinderParameters& p, int margin_)
    : margin(margin_), blur(disc(margin_)) {
  for (int degree = -180; degree < 180; ++degree) {
    first.push_back(render_dash(p, margin, degree * kPi / 180));
  }
  const double radius = p.dash_length + margin, step = 1 / radius;  // an arc of one pixel
  for (int i = 0; i * step < 2 * kPi; ++i) {
    const double y = radius * std::sin(i * step), x = radius * std::cos(i * step);
    const Point offset{static_cast<int>(std::floor(y)), static_cast<int>(std::floor(x))};
    const double angle = std::atan2(offset.y, offset.x);
    heads.push_back({y, x, offset, angle, render_dash(p, margin, opposite(angle))});
  }
  std::stable_sort(
      heads.begin(), heads.end(),
      [](const PathfinderHead& a, const PathfinderHead& b) { return a.offset < b.offset; });
}

}  // namespace skytape::data
