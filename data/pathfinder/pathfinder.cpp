#include "data/pathfinder/pathfinder.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "data/pathfinder/pathfinder_dashes.hpp"
#include "data/pathfinder/raster.hpp"
#include "data/random.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr float kFree = 0.3f;     // occupancy up to this is free
constexpr float kOverlap = 1.8f;  // occupancy plus new mask must stay below
constexpr double kLeastWeight = 1e-4;
constexpr double kLeastFreeShare = 0.01;  // of the window, for the start of a distractor
constexpr int kDashDraws = 3;
constexpr int kDistractorAttempts = 5;

}  // namespace

/// One image in the making.
class PathfinderGenerator::Scene {
 public:
  Scene(const PathfinderParameters& p, const PathfinderDashes& dashes, Stream& stream)
      : p_(p),
        dashes_(dashes),
        stream_(stream),
        side_(p.side),
        ink_(static_cast<size_t>(side_) * side_),
        occupied_(ink_.size()),
        taken_(ink_.size()),
        blocked_(ink_.size()) {}

  struct Curve {
    Point pivot;                           // the next pivot lies dash_length + 2 margin ahead
    double angle = 0;                      // of the last dash
    Point origin, tip;                     // tail of the first dash, head of the last
    const PathfinderDash* last = nullptr;  // drawn, but not yet occupying
    Point last_at;
  };

  /// Both target curves; starts over until they fit.
  void draw_targets(Curve (&curves)[2]) {
    do clear();
    while (!try_targets(curves));
  }

  /// True if a distractor found room; otherwise nothing is changed.
  bool draw_distractor() {
    const std::vector<float> ink = ink_, occupied = occupied_;
    for (int attempt = 0; attempt < kDistractorAttempts; ++attempt) {
      if (try_distractor()) return true;
      ink_ = ink;
      occupied_ = occupied;
    }
    return false;
  }

  /// A dot on the tip of a dash.
  void draw_marker(Point tip) {
    Raster fine(side_ * p_.antialias);
    const double radius = p_.marker_radius * p_.antialias;
    const Point centre{tip.y * p_.antialias, tip.x * p_.antialias};
    for (const Point& offset : disc(static_cast<int>(radius))) {
      const Point at{centre.y + offset.y, centre.x + offset.x};
      if (fine.holds(at)) fine.at(at) = 255;
    }
    const Raster marker = shrink(fine, side_);
    const auto most =
        static_cast<float>(*std::max_element(marker.pixels.begin(), marker.pixels.end()));
    for (size_t i = 0; i < ink_.size(); ++i) {
      ink_[i] = std::max(ink_[i], static_cast<float>(marker.pixels[i]) / most);
    }
  }

  /// Ink stretched to 0..255, rounded half up.
  void write(std::vector<uint8_t>& pixels) const {
    const auto [low, high] = std::minmax_element(ink_.begin(), ink_.end());
    const double floor = *low, scale = 255.0 / (*high - *low);
    pixels.resize(ink_.size());
    for (size_t i = 0; i < ink_.size(); ++i) {
      pixels[i] = static_cast<uint8_t>((ink_[i] - floor) * scale + 0.5);
    }
  }

 private:
  [[nodiscard]] bool inside(Point p) const {
    return p.y >= 0 && p.x >= 0 && p.y < side_ && p.x < side_;
  }
  [[nodiscard]] size_t index(Point p) const { return static_cast<size_t>(p.y) * side_ + p.x; }

  void clear() {
    std::fill(ink_.begin(), ink_.end(), 0.0f);
    for (int y = 0; y < side_; ++y) {
      for (int x = 0; x < side_; ++x)
        occupied_[index({y, x})] = in_border({y, x}, p_.padding) ? 1.0f : 0.0f;
    }
  }

  [[nodiscard]] bool in_border(Point p, int width) const {
    return std::min({p.y, p.x, side_ - 1 - p.y, side_ - 1 - p.x}) < width;
  }

  bool try_targets(Curve (&curves)[2]) {
    const double contrast = p_.dash_contrast * p_.snake_contrast;
    if (!start(curves[0], 2 * p_.seed_distance, 0, contrast)) return false;
    if (!start_beside(curves[1], curves[0].origin, contrast)) return false;
    for (int i = 1; i < p_.contour_length; ++i) {
      if (!extend(curves[0], contrast) || !extend(curves[1], contrast)) return false;
    }
    occupy(curves[1]);  // as the official program: the first curve's last dash stays unprotected
    return true;
  }

  bool try_distractor() {
    Curve curve;
    if (!start(curve, 1, kLeastFreeShare, p_.snake_contrast)) return false;
    for (int i = 1; i < p_.distractor_length; ++i) {
      if (!extend(curve, p_.snake_contrast)) return false;
    }
    occupy(curve);
    return true;
  }

  /// First dash at a random free place outside the border band, in a random direction.
  bool start(Curve& curve, int border, double least_free, double contrast) {
    for (int draw = 0; draw < kDashDraws; ++draw) {
      const int degree = static_cast<int>(stream_.below(360));
      const PathfinderDash& dash = dashes_.first[degree];
      const auto tail = free_place(dash, border, least_free);
      if (!tail) return false;
      if (place_first(curve, *tail, degree, contrast)) return true;
    }
    return false;
  }

  /// First dash of the second target, at a fixed distance from the first one's.
  bool start_beside(Curve& curve, Point origin, double contrast) {
    for (int draw = 0; draw < kDashDraws; ++draw) {
      const double angle = stream_.below(360) * kPi / 180;
      const Point tail{
          static_cast<int>(std::nearbyint(origin.y + p_.seed_distance * std::sin(angle))),
          static_cast<int>(std::nearbyint(origin.x + p_.seed_distance * std::cos(angle)))};
      const int degree = static_cast<int>(stream_.below(360));
      if (place_first(curve, tail, degree, contrast)) return true;
    }
    return false;
  }

  bool place_first(Curve& curve, Point tail, int degree, double contrast) {
    const double angle = (degree - 180) * kPi / 180;
    const Point head = move(tail, angle, p_.dash_length);
    const Point pivot = move(head, opposite(angle), p_.dash_length + dashes_.margin);
    if (!inside(head) || !inside(pivot)) return false;
    curve = {pivot, angle, tail, head, &dashes_.first[degree], tail};
    paint(curve, contrast);
    return true;
  }

  /// A random pixel at which the dash's footprint touches neither the border band nor a taken
  /// pixel; none if too little of the window is free.
  std::optional<Point> free_place(const PathfinderDash& dash, int border, double least_share) {
    if (!dash.starts_curves) return {};
    const auto is_free = [](float occupancy) { return occupancy <= kFree; };
    const auto share =
        static_cast<double>(std::count_if(occupied_.begin(), occupied_.end(), is_free)) /
        static_cast<double>(ink_.size());
    if (share < least_share) return {};
    for (int y = 0; y < side_; ++y) {
      uint8_t* const row = taken_.data() + index({y, 0});
      const float* const occupied = occupied_.data() + index({y, 0});
      const bool in_band = y < border || y >= side_ - border;
      for (int x = 0; x < side_; ++x) row[x] = in_band || !is_free(occupied[x]);
      std::fill(row, row + border, uint8_t{1});
      std::fill(row + side_ - border, row + side_, uint8_t{1});
    }
    // Farther inside the band every footprint touches it.
    const int begin = std::max(0, border - dash.half), end = side_ - begin;
    std::fill(blocked_.begin(), blocked_.end(), uint8_t{0});
    for (const Point& offset : dash.footprint) {  // outside the window nothing is taken
      const int left = std::max(begin, -offset.x), right = std::min(end, side_ - offset.x);
      for (int y = std::max(begin, -offset.y); y < std::min(end, side_ - offset.y); ++y) {
        uint8_t* const to = blocked_.data() + index({y, 0});
        const uint8_t* const from = taken_.data() + index({y + offset.y, 0}) + offset.x;
        for (int x = left; x < right; ++x) to[x] |= from[x];
      }
    }
    uint32_t free = 0;
    for (int y = begin; y < end; ++y) {
      const uint8_t* const row = blocked_.data() + index({y, 0});
      free += static_cast<uint32_t>(std::count(row + begin, row + end, 0));
    }
    if (free == 0) return {};
    uint32_t rank = stream_.below(free);
    for (Point p{begin, begin};; p = p.x + 1 < end ? Point{p.y, p.x + 1} : Point{p.y + 1, begin}) {
      if (blocked_[index(p)] == 0 && rank-- == 0) return p;
    }
  }

  /// Grows a curve by one dash; false if there is no room.
  bool extend(Curve& curve, double contrast) {
    const Point pivot = move(curve.pivot, curve.angle, p_.dash_length + 2 * dashes_.margin);
    cumulated_.clear();
    choices_.clear();
    double sum = 0;
    const PathfinderHead* before = nullptr;
    for (const PathfinderHead& head : dashes_.heads) {
      const double y = pivot.y + head.exact_y, x = pivot.x + head.exact_x;
      if (y < 0 || x < 0 || y >= side_ || x >= side_) continue;
      if (before && before->offset == head.offset) continue;  // two exact places, one pixel
      before = &head;
      const double gap = std::abs(head.angle - curve.angle);
      const double deviation = std::min(gap, 2 * kPi - gap);
      if (p_.continuity * deviation >= kPi / 2) continue;  // weight 0
      const double straight = std::cos(p_.continuity * deviation);
      sum += straight * straight * (1 - nearby({pivot.y + head.offset.y, pivot.x + head.offset.x}));
      choices_.push_back(&head);
      cumulated_.push_back(sum);
    }
    if (sum < kLeastWeight) return false;
    for (int draw = 0; draw < kDashDraws; ++draw) {
      const double u = stream_.uniform() * sum;
      const size_t pick =
          std::upper_bound(cumulated_.begin(), cumulated_.end(), u) - cumulated_.begin();
      const PathfinderHead& head = *choices_[std::min(pick, choices_.size() - 1)];
      const Point at{pivot.y + head.offset.y, pivot.x + head.offset.x};
      if (!fits(head.dash, at)) continue;
      occupy(curve);  // only now: the new dash may touch the one before it
      curve = {pivot, head.angle, curve.origin, at, &head.dash, at};
      paint(curve, contrast);
      return true;
    }
    return false;
  }

  /// Occupancy dilated by the margin, at one pixel.
  [[nodiscard]] float nearby(Point p) const {
    float most = 0;
    for (const Point& offset : dashes_.blur) {
      const Point at{p.y + offset.y, p.x + offset.x};
      if (inside(at)) most = std::max(most, occupied_[index(at)]);
    }
    return most;
  }

  /// Calls f(index in the window, index in the stamp) where the stamp lies inside the window.
  template <class F> void over(const PathfinderDash& dash, Point at, F&& f) const {
    const int width = 2 * dash.half + 1;
    for (int y = std::max(0, at.y - dash.half); y <= std::min(side_ - 1, at.y + dash.half); ++y) {
      const size_t row = static_cast<size_t>(y - at.y + dash.half) * width;
      for (int x = std::max(0, at.x - dash.half); x <= std::min(side_ - 1, at.x + dash.half); ++x) {
        f(index({y, x}), row + (x - at.x + dash.half));
      }
    }
  }

  [[nodiscard]] bool fits(const PathfinderDash& dash, Point at) const {
    float most = 0;
    over(dash, at, [&](size_t i, size_t j) { most = std::max(most, occupied_[i] + dash.mask[j]); });
    return most < kOverlap;
  }

  void paint(const Curve& curve, double contrast) {
    over(*curve.last, curve.last_at, [&](size_t i, size_t j) {
      ink_[i] = std::max(ink_[i], static_cast<float>(curve.last->ink[j] / 255.0 * contrast));
    });
  }

  void occupy(const Curve& curve) {
    over(*curve.last, curve.last_at,
         [&](size_t i, size_t j) { occupied_[i] = std::max(occupied_[i], curve.last->mask[j]); });
  }

  const PathfinderParameters& p_;
  const PathfinderDashes& dashes_;
  Stream& stream_;
  int side_;
  std::vector<float> ink_;        // [side, side]
  std::vector<float> occupied_;   // [side, side], 0 free .. 1 taken
  std::vector<uint8_t> taken_;    // [side, side], scratch of free_place
  std::vector<uint8_t> blocked_;  // [side, side], likewise
  std::vector<const PathfinderHead*> choices_;
  std::vector<double> cumulated_;
};

PathfinderParameters pathfinder_parameters(int side, int contour_length) {
  ENSURE(side == 32 || side == 128, "pathfinder: side is ", side, ", expected 32 or 128");
  ENSURE(contour_length == 6 || contour_length == 9 || contour_length == 14,
         "pathfinder: contour length is ", contour_length, ", expected 6, 9 or 14");
  PathfinderParameters p;
  p.contour_length = contour_length;
  p.distractor_length = contour_length / 3;
  if (side == 128) {
    p.side = 128;
    p.seed_distance = 20;
    p.marker_radius = 3;
    p.dash_length = 5;
    p.dash_thickness = 1.5;
    p.margins = {2, 3};
    p.continuity = 1.8;
    p.snake_contrast = 0.9;
    p.dash_contrast = 1;
  }
  p.distractors = (side == 128 ? 35 : 20) / p.distractor_length;
  return p;
}

PathfinderGenerator::PathfinderGenerator(const PathfinderParameters& parameters)
    : parameters_(parameters) {
  for (const int margin : parameters_.margins) {
    dashes_.push_back(std::make_unique<const PathfinderDashes>(parameters_, margin));
  }
}

PathfinderGenerator::~PathfinderGenerator() = default;

void PathfinderGenerator::draw(uint64_t seed, uint64_t index, PathfinderImage& image) const {
  const PathfinderParameters& p = parameters_;
  const uint64_t set = static_cast<uint64_t>(p.side) << 48 | static_cast<uint64_t>(p.contour_length)
                                                                 << 40;
  Stream stream(seed, Purpose::pathfinder, set | index);
  image.label = static_cast<int>(stream.below(2));
  const PathfinderDashes& dashes = *dashes_[stream.below(static_cast<uint32_t>(dashes_.size()))];
  image.margin = dashes.margin;
  Scene scene(p, dashes, stream);
  Scene::Curve curves[2];
  scene.draw_targets(curves);
  image.distractors = 0;
  for (int i = 0; i < p.distractors; ++i) image.distractors += scene.draw_distractor();
  const int first = static_cast<int>(stream.below(2));
  scene.draw_marker(curves[first].origin);
  scene.draw_marker(curves[image.label ? first : 1 - first].tip);
  scene.write(image.pixels);
}

}  // namespace skytape::data
