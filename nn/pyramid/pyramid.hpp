// From the encodings of a picture's pixels to one vector, by convolutions on ever smaller pictures.
//
// A mean over pixels hears nothing of two dots that a curve joins: what tells is where things lie
// to one another, over the whole picture. A stage mixes neighbours and halves both sides, so that
// after a few every place has seen all of it. Its sums are normed over the picture
// (instance_norm.hpp); with norms over channels instead, or in front of the convolutions, such
// stages had not left chance on Pathfinder after 600 to 900 steps, when these had
// (train/results/tasks-cpu.md).
//
// Notation: B batch, N positions of this batch, M places of a halved picture, E width.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autograd/parameter.hpp"
#include "autograd/tape.hpp"

namespace skytape::nn {

/// Pictures of at least this many places along a side are halved once more.
inline constexpr std::int64_t kPyramidTop = 8;

/// Stages until a picture is smaller than kPyramidTop, one at least. A stage is two residual blocks
/// (He et al. 2016, fig. 5 left), y = relu(s(x) + norm(conv(relu(norm(conv(x)))))), with 3 x 3
/// convolutions; in the first one the windows of conv and of s lie two places apart, and s is a
/// normed 1 x 1 convolution, else the identity. Last comes the mean over places.
class Pyramid {
 public:
  /// A picture of `positions` pixels, `columns` in a row; the last row may be short.
  Pyramid(ParameterStore& store, const std::string& name, std::int64_t width,
          std::int64_t positions, std::int64_t columns);
  /// x: [B, N, E], N at most `positions`; what lies behind N is zero -> [B, E].
  [[nodiscard]] Var operator()(Var x) const;

 private:
  struct Convolution {         // followed by an instance norm
    Parameter* weight;         // [E, side² E]
    Parameter *scale, *shift;  // [E]
    std::int64_t side, stride;
  };
  struct Block {
    Convolution first, second;
    std::optional<Convolution> shortcut;  // none: the identity
  };

  [[nodiscard]] Convolution convolution(ParameterStore& store, const std::string& name,
                                        std::int64_t side, std::int64_t stride) const;
  /// x: a picture with `columns` in a row.
  [[nodiscard]] static Var apply(const Convolution& convolution, Var x, std::int64_t columns);

  std::int64_t width_, rows_, columns_;
  std::vector<Block> blocks_;
};

}  // namespace skytape::nn
