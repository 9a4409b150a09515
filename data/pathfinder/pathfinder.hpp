// Pathfinder (Linsley et al. 2018; Kim et al. 2020): do two dots lie on one dashed curve?
//
// A re-implementation of the official generator with the benchmark's parameters. Two target curves
// of dashes grow side by side, shorter distractors fill the rest; every dash keeps its neighbours
// at a distance. It is faithful in geometry and distribution, not bit by bit.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace skytape::data {

struct PathfinderParameters {
  int side = 32;          // window, pixels
  int padding = 1;        // occupied border
  int antialias = 2;      // fine pixels per pixel
  int seed_distance = 7;  // between the first dashes of the two targets
  double marker_radius = 1.5;
  int contour_length = 14;    // dashes per target: 6 easy, 9 intermediate, 14 hard
  int distractor_length = 4;  // contour_length / 3
  int distractors = 5;
  int dash_length = 2;
  double dash_thickness = 0.5;
  std::vector<int> margins = {1};  // gap between dashes; one is drawn per image
  double continuity = 1.0;         // larger: straighter curves
  double snake_contrast = 2;       // ink of distractors
  double dash_contrast = 0.75;     // ink of targets = dash_contrast * snake_contrast
};

/// The benchmark's parameters for windows of 32 or 128 pixels.
[[nodiscard]] PathfinderParameters pathfinder_parameters(int side, int contour_length);

struct PathfinderDashes;

struct PathfinderImage {
  std::vector<uint8_t> pixels;  // [side, side]; reaches from 0 to 255
  int label = 0;                // 1: the two dots lie on one curve
  int margin = 0;
  int distractors = 0;  // how many found room
};

/// Draws images. Building it renders all dashes once; drawing is const and thread-safe.
class PathfinderGenerator {
 public:
  explicit PathfinderGenerator(const PathfinderParameters& parameters);
  ~PathfinderGenerator();

  /// Image number `index` of a seed, independent of all others.
  void draw(uint64_t seed, uint64_t index, PathfinderImage& image) const;

 private:
  class Scene;
  PathfinderParameters parameters_;
  std::vector<std::unique_ptr<const PathfinderDashes>> dashes_;  // one per margin
};

}  // namespace skytape::data
