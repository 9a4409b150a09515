// gradcheck of a whole model's parameters.
#pragma once

#include <functional>
#include <vector>

#include "autograd/gradcheck.hpp"
#include "nn/model.hpp"

namespace skytape::test {

/// Along two directions of each trainable parameter: coordinates would be too many.
[[nodiscard]] inline GradcheckReport gradcheck_model(nn::Model& model,
                                                     const std::function<Var(Tape&)>& loss) {
  std::vector<Parameter*> parameters;
  for (Parameter& p : model.parameters().parameters()) {
    if (p.trainable) parameters.push_back(&p);
  }
  GradcheckOptions options;
  options.all_coordinates_below = 1;
  options.directions = 2;
  return gradcheck([&](Tape& tape, std::span<const Var>) { return loss(tape); }, {}, options, {},
                   parameters);
}

}  // namespace skytape::test
