#include "train/run/objective.hpp"

#include <fmt/format.h>

#include <cmath>

#include "data/files/json.hpp"
#include "data/masking.hpp"

namespace skytape::train {

bool predicts_masked(const RunConfig& config) {
  return config.model.objective == nn::Objective::predict_masked;
}

data::Loader::Fill training_batches(const RunConfig& config, const data::Dataset& train,
                                    data::Cursor start) {
  return [stream = data::BatchStream(train, config.batches, start),
          masking = config.pretraining.masking,
          masked = predicts_masked(config)](data::Batch& batch) mutable {
    stream.next(batch);
    if (masked) data::hide_tokens(batch, masking);
    return true;
  };
}

std::string objective_text(const RunConfig& config) {
  if (!predicts_masked(config)) return {};
  const data::MaskingOptions& masking = config.pretraining.masking;
  const std::string runs =
      masking.span > 1 ? fmt::format(" in runs of {}", masking.span) : std::string();
  return fmt::format("pre-training: {:.3g} % of the {} of train are hidden{}, and predicted",
                     100 * masking.rate, config.model.pixels ? "pixels" : "tokens", runs);
}

std::string scores_text(const RunConfig& config, double loss, double accuracy) {
  if (!predicts_masked(config)) {
    return fmt::format("loss {:.4f}  accuracy {:.2f} %", loss, 100 * accuracy);
  }
  if (config.model.pixels) {
    return fmt::format("masked error {:.2f} of 255 intensities  masked accuracy {:.2f} %",
                       255 * loss, 100 * accuracy);
  }
  return fmt::format("masked loss {:.4f}  perplexity {:.3f}  masked accuracy {:.2f} %", loss,
                     std::exp(loss), 100 * accuracy);
}

void add_objective(data::Json& metric, const RunConfig& config, double loss) {
  if (!predicts_masked(config)) return;
  metric["phase"] = "pretraining";
  if (!config.model.pixels) metric["perplexity"] = std::exp(loss);
}

}  // namespace skytape::train
