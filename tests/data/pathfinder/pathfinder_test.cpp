#include "data/pathfinder/pathfinder.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "data/pathfinder/pathfinder_dashes.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape::data;

namespace {

/// Intensities in 32 bins of 8, and rows of the image.
constexpr int kBins = 32;

/// Figures of images of the official generator (drewlinsley/pathfinder, first commit, with the
/// benchmark's parameters for contour length 14).
struct Official {
  int side, images;
  double zero_share, zero_share_sd, mean, mean_sd, share_128, share_255, pixels_240;
  std::array<double, kBins> histogram;
  std::vector<double> rows;  // mean of each
};

const Official k32 = {
    32,
    2000,
    0.659478,
    0.039166,
    20.087286,
    1.975250,
    0.084750,
    0.002211,
    4.366,
    {0.836839, 0.006245, 0.003109, 0.009399, 0.007335, 0.004052, 0.004860, 0.003049,
     0.004755, 0.002819, 0.005287, 0.006503, 0.006123, 0.002988, 0.004053, 0.007834,
     0.009631, 0.008986, 0.009737, 0.010812, 0.009553, 0.006719, 0.005796, 0.004600,
     0.003000, 0.003432, 0.002267, 0.003565, 0.001119, 0.001271, 0.001178, 0.003086},
    {0.595,  1.864,  32.037, 29.456, 23.569, 21.016, 21.049, 22.314, 23.511, 23.658, 23.640,
     24.175, 24.822, 28.230, 31.588, 31.233, 26.616, 22.867, 21.984, 20.944, 20.637, 21.169,
     20.000, 17.246, 16.630, 16.650, 16.601, 16.207, 18.637, 20.916, 2.750,  0.181}};

const Official k128 = {
    128,
    100,
    0.863415,
    0.006207,
    7.890906,
    0.355346,
    0.030193,
    0.000734,
    42.0,
    {0.936962, 0.003091, 0.003300, 0.002064, 0.002833, 0.003550, 0.003448, 0.003757,
     0.002222, 0.002498, 0.000839, 0.001378, 0.002131, 0.000730, 0.000690, 0.000313,
     0.000152, 0.000297, 0.000826, 0.002080, 0.002552, 0.002962, 0.002614, 0.002689,
     0.002092, 0.001970, 0.000889, 0.001871, 0.006515, 0.000121, 0.000488, 0.002075},
    {}};

/// Mean and standard deviation over images.
struct Moments {
  void add(double x) {
    sum += x;
    squares += x * x;
    ++count;
  }
  [[nodiscard]] double mean() const { return sum / count; }
  [[nodiscard]] double sd() const {
    return std::sqrt(std::max(0.0, squares / count - mean() * mean()));
  }
  double sum = 0, squares = 0, count = 0;
};

struct Sample {
  Moments zero_share, mean, share_128, share_255, pixels_240;
  std::array<Moments, kBins> histogram;
  std::vector<Moments> rows;
  std::array<Moments, 2> zero_share_by_label, mean_by_label;
};

Sample draw(int side, int images) {
  const PathfinderGenerator generator(pathfinder_parameters(side, 14));
  Sample sample;
  sample.rows.resize(side);
  const double pixels = side * side;
  PathfinderImage image;
  for (int i = 0; i < images; ++i) {
    generator.draw(1, i, image);
    std::array<int, 256> count{};
    for (int y = 0; y < side; ++y) {
      double row = 0;
      for (int x = 0; x < side; ++x) {
        const uint8_t pixel = image.pixels[y * side + x];
        row += pixel;
        ++count[pixel];
      }
      sample.rows[y].add(row / side);
    }
    double ink = 0, from_128 = 0, from_240 = 0;
    std::array<double, kBins> bins{};
    for (int value = 0; value < 256; ++value) {
      ink += value * count[value] / pixels;
      from_128 += value >= 128 ? count[value] : 0;
      from_240 += value >= 240 ? count[value] : 0;
      bins[value / 8] += count[value] / pixels;
    }
    for (int bin = 0; bin < kBins; ++bin) sample.histogram[bin].add(bins[bin]);
    sample.zero_share.add(count[0] / pixels);
    sample.mean.add(ink);
    sample.share_128.add(from_128 / pixels);
    sample.share_255.add(count[255] / pixels);
    sample.pixels_240.add(from_240);
    sample.zero_share_by_label[image.label].add(count[0] / pixels);
    sample.mean_by_label[image.label].add(ink);
  }
  return sample;
}

/// Enough images for a test of about a second, drawn once.
const Sample& sample_of(int side) {
  static std::map<int, Sample> samples;
  if (!samples.contains(side)) samples[side] = draw(side, side == 32 ? 1500 : 40);
  return samples[side];
}

constexpr double kDeviations = 4;  // of some 120 comparisons, one in 130 runs would go beyond

/// Both means come from samples of images whose spread is the one seen here; `slack` is for digits
/// that the official figure lacks.
void check_mean(const Moments& ours, double official, int images, double slack) {
  const double error = ours.sd() * std::sqrt(1 / ours.count + 1.0 / images);
  CHECK(std::abs(ours.mean() - official) < kDeviations * error + slack);
}

void check_sd(const Moments& ours, double official, int images) {
  const double error = official * std::sqrt(0.5 / ours.count + 0.5 / images);
  CHECK(std::abs(ours.sd() - official) < kDeviations * error);
}

}  // namespace

TEST_CASE("images agree with those of the official generator within the sampling error") {
  for (const Official& official : {k32, k128}) {
    CAPTURE(official.side);
    const Sample& sample = sample_of(official.side);
    const int n = official.images;
    // Some bins of 128x128 images hold the same count in almost all of them, so that the spread of
    // a few says nothing: let four pixels of all official images differ.
    const double slack = 5e-7 + 4.0 / n / (official.side * official.side);
    check_mean(sample.zero_share, official.zero_share, n, slack);
    check_sd(sample.zero_share, official.zero_share_sd, n);
    check_mean(sample.mean, official.mean, n, 5e-7);
    check_sd(sample.mean, official.mean_sd, n);
    check_mean(sample.share_128, official.share_128, n, slack);
    check_mean(sample.share_255, official.share_255, n, slack);
    check_mean(sample.pixels_240, official.pixels_240, n, 5e-4);
    for (int bin = 0; bin < kBins; ++bin) {
      CAPTURE(bin);
      check_mean(sample.histogram[bin], official.histogram[bin], n, slack);
    }
    for (size_t row = 0; row < official.rows.size(); ++row) {
      CAPTURE(row);
      check_mean(sample.rows[row], official.rows[row], n, 5e-4);
    }
  }
}

TEST_CASE("labels are balanced and leave no trace in the first moments of the images") {
  for (const int side : {32, 128}) {
    CAPTURE(side);
    const Sample& sample = sample_of(side);
    const auto& [mean_0, mean_1] = sample.mean_by_label;
    const auto& [zero_0, zero_1] = sample.zero_share_by_label;
    CHECK(std::abs(mean_0.count - mean_1.count) < kDeviations * std::sqrt(sample.mean.count));
    const double error = std::sqrt(1 / mean_0.count + 1 / mean_1.count);
    CHECK(std::abs(mean_0.mean() - mean_1.mean()) < kDeviations * sample.mean.sd() * error);
    CHECK(std::abs(zero_0.mean() - zero_1.mean()) < kDeviations * sample.zero_share.sd() * error);
  }
}

TEST_CASE("curves start in as many directions as OpenCV's dilation leaves the official search") {
  // Counted with OpenCV 5.0 and Pillow 13.0: directions of 360 in which dilating an empty window
  // with the footprint gives no negative number.
  const auto directions = [](int side, int margin) {
    const PathfinderDashes dashes(pathfinder_parameters(side, 14), margin);
    return std::count_if(dashes.first.begin(), dashes.first.end(),
                         [](const PathfinderDash& dash) { return dash.starts_curves; });
  };
  CHECK(directions(32, 1) == 30);
  CHECK(directions(128, 2) == 354);
  CHECK(directions(128, 3) == 360);
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

TEST_CASE("the two dots lie on one curve for label 1, on two curves for label 0") {
  PathfinderParameters p = pathfinder_parameters(128, 14);
  p.contour_length = 1;  // curves of 5 pixels, 28 apart
  p.seed_distance = 28;
  p.distractors = 0;
  const PathfinderGenerator generator(p);
  PathfinderImage image;
  for (int i = 0; i < 40; ++i) {
    generator.draw(1, i, image);
    int top = p.side, bottom = 0, left = p.side, right = 0;
    for (int k = 0; k < p.side * p.side; ++k) {
      if (image.pixels[k] < 240) continue;  // only dots are that bright
      top = std::min(top, k / p.side);
      bottom = std::max(bottom, k / p.side);
      left = std::min(left, k % p.side);
      right = std::max(right, k % p.side);
    }
    const int extent = std::max(bottom - top, right - left);
    if (image.label == 1) CHECK(extent <= 5 + 2 * 3);
    if (image.label == 0) CHECK(extent >= 15);
  }
}
