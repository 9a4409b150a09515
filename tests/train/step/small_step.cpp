#include "tests/train/step/small_step.hpp"

#include <vector>

#include "attention/registry.hpp"
#include "data/tokenise.hpp"

namespace skytape::test {

nn::ModelConfig small_model(const std::string& attention) {
  nn::ModelConfig config;
  config.attention = attention;
  if (attention::find(attention).has_option("features")) {
    config.attention_options["features"] = "8";
  }
  config.vocabulary = 17;
  config.classes = 2;
  config.nominal_length = 32;
  config.width = 16;
  config.ff_width = 16;
  config.head_width = 8;
  return config;
}

data::Batch seven_examples(int sequences) {
  std::vector<data::Tokens> examples;
  for (const int length : {20, 7, 32, 11, 5, 9, 14}) {
    data::Tokens example;
    for (int t = 0; t < sequences; ++t) {
      std::vector<std::int32_t> ids;
      for (int j = 0; j < length; ++j) ids.push_back(1 + (5 * length + 3 * j + t) % 15);
      example.push_back(ids);
    }
    examples.push_back(example);
  }
  data::BatchOptions options;
  options.nominal_length = 32;
  options.round_to = 8;
  data::Batch batch = pad(examples, options);
  for (std::size_t i = 0; i < 7; ++i) batch.labels[i] = static_cast<int>(i) % 2;
  return batch;
}

}  // namespace skytape::test
