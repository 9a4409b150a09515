// The cost of a method as formulas: multiply-adds of all scalar products. Exponentials, sums and
// sorting are not counted.
#pragma once

namespace skytape::attention {

/// The sizes that a cost depends on, as numbers that formulas can be evaluated and solved with.
struct CostSizes {
  double n = 0;         // N
  double features = 0;  // of methods with that option
  double width = 0;     // D
};

/// Multiply-adds for one head of one example, with options other than `features` at their defaults.
struct Cost {
  double forward = 0, backward = 0;
  friend Cost operator+(Cost a, Cost b) { return {a.forward + b.forward, a.backward + b.backward}; }
};

/// Multiply-adds of a layer that projects combined rows, for one example.
struct CombinedCost {
  double rows = 0;  // M
  Cost combining;   // C x and C 1
  Cost attention;   // of one head, in place of Spec::cost_at
};

}  // namespace skytape::attention
