// Synthetic sources of queries, keys and values for the tests of studies.
#pragma once

#include "tensor/random/random.hpp"
#include "train/lab/studies/attention_inputs.hpp"

namespace skytape::test {

/// Two heads of width 8; normal entries, queries and keys times `spread`; `hidden` positions at the
/// end are masked out. Example number and `seed` decide the numbers.
inline train::InputSource normal_source(double spread = 1, std::int64_t hidden = 0,
                                        std::uint64_t seed = 1) {
  train::InputSource source;
  source.name = "normal numbers";
  source.longest = 1024;
  source.usual_lengths = {64};
  source.layers = 2;
  source.example = [=](std::int64_t n, std::int64_t index) {
    std::vector<train::LayerInputs> layers;
    for (std::uint64_t layer = 0; layer < 2; ++layer) {
      const Random random = Random{seed, {}}.fork(layer).fork(static_cast<std::uint64_t>(index));
      const auto numbers = [&](std::uint64_t which, double scale) {
        const Tensor x = tensor::normal({1, 2, n, 8}, random.fork(which), DType::f64, Device::cpu);
        for (std::int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] *= scale;
        return x;
      };
      Tensor mask = Tensor::full({1, n}, 1, DType::f64, Device::cpu);
      for (std::int64_t i = n - hidden; i < n; ++i) mask.data<double>()[i] = 0;
      const Tensor v = numbers(3, 1);
      layers.push_back({{numbers(1, spread), numbers(2, spread), v, mask}, v, index});
    }
    return layers;
  };
  return source;
}

}  // namespace skytape::test
