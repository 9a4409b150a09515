// The dashes of the Pathfinder generator: ink, mask and footprint in all directions it needs.
#pragma once

#include <cstdint>
#include <vector>

#include "data/pathfinder/pathfinder.hpp"
#include "data/pathfinder/raster.hpp"

namespace skytape::data {

/// The angle plus or minus pi, whichever stays within -pi..pi.
[[nodiscard]] double opposite(double angle);

/// One dash in one direction, rendered around its starting pixel.
struct PathfinderDash {
  int half = 0;                  // the stamp reaches from -half to half
  std::vector<uint8_t> ink;      // [2 half + 1, 2 half + 1], 255: full contrast
  std::vector<float> mask;       // the same, grown by the margin, 0..1: what it occupies
  std::vector<Point> footprint;  // offsets that must be free for a curve to start with it
  bool starts_curves = true;     // some directions never do
};

/// A place where the next dash of a curve may end, relative to the curve's pivot.
struct PathfinderHead {
  double exact_y, exact_x;  // before rounding: must lie inside the window
  Point offset;
  double angle;         // from the pivot to the rounded place
  PathfinderDash dash;  // from there back towards the pivot
};

/// All dashes of one margin: by whole degrees for first dashes, by head for later ones.
struct PathfinderDashes {
  PathfinderDashes(const PathfinderParameters& p, int margin);

  int margin;
  std::vector<Point> blur;            // disc of the margin
  std::vector<PathfinderDash> first;  // [360], degrees -180..179
  std::vector<PathfinderHead> heads;  // sorted by (y, x); neighbours may share an offset
};

}  // namespace skytape::data
