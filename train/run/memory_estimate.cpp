#include "train/run/memory_estimate.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "attention/registry.hpp"
#include "nn/model.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/free_memory.hpp"

namespace skytape::train {
namespace {

constexpr double kNumberBytes = 4;  // f32

/// Numbers of a layer and position that stay until backward, besides the method's own. Of width E:
/// queries and keys where the method reads them, values, both norms, the method's output, the sum
/// behind attention and that behind the MLP. Of width F: the hidden channels before and after GELU.
std::int64_t kept_of_position(const nn::ModelConfig& model) {
  const attention::Spec& method = attention::find(model.attention);
  const std::int64_t queries_and_keys = method.values_only ? 0 : method.shared_qk ? 1 : 2;
  return (6 + queries_and_keys) * model.width + 2 * model.ff_width;
}

/// Positions of the widest example.
std::int64_t positions_of(const RunConfig& config, std::int64_t longest) {
  const data::BatchOptions& batches = config.batches;
  const std::int64_t most = batches.max_length > 0 ? batches.max_length : batches.nominal_length;
  const std::int64_t width = batches.trim ? std::min(longest, most) : batches.nominal_length;
  return std::max<std::int64_t>(1, width * config.model.sequences);
}

/// Positions of the widest microbatch.
std::int64_t positions_at_once(const RunConfig& config, std::int64_t longest) {
  const std::int64_t example = positions_of(config, longest);
  const MicrobatchLimits limits = config.microbatch_limits();
  const std::int64_t examples =
      limits.positions > 0
          ? std::clamp<std::int64_t>(limits.positions / example, 1, config.microbatch())
          : config.microbatch();
  return examples * example;
}

/// Returns whether the widest batch is computed in parts, whose gradients are added up.
bool has_microbatches(const RunConfig& config, std::int64_t longest) {
  return positions_at_once(config, longest) < config.batches.batch * positions_of(config, longest);
}

std::string megabytes(double bytes) { return fmt::format("{:.1f} MB", 1e-6 * bytes); }

}  // namespace

MemoryEstimate estimate_memory(const RunConfig& config, std::int64_t longest) {
  const nn::ModelConfig& model = config.model;
  // Embedding and layers, which are all of a model but a few rows. They are declared, not
  // allocated.
  ParameterStore store;
  const nn::Embedding embedding(store, "embeddings", model);
  for (int layer = 0; layer < model.layers; ++layer) {
    const nn::EncoderLayer encoder(store, fmt::format("transformer_{}", layer), model, layer);
  }
  double arrays = 0, trained = 0, largest = 0;  // numbers
  for (const Parameter& p : store.parameters()) {
    const auto size = static_cast<double>(p.shape.numel());
    arrays += (p.trainable ? 4 : p.decay > 0 ? 2 : 1) * size;
    if (!p.trainable) continue;
    trained += size;
    // Gradients of these tables are added row by row.
    if (&p != embedding.tokens && &p != embedding.ngrams) largest = std::max(largest, size);
  }
  const double sums = largest + (has_microbatches(config, longest) ? trained : 0);
  const double activations = static_cast<double>(positions_at_once(config, longest)) *
                             static_cast<double>(model.layers * kept_of_position(model));
  return {kNumberBytes * arrays, kNumberBytes * sums, kNumberBytes * activations};
}

std::string memory_text(const RunConfig& config, std::int64_t longest) {
  const MemoryEstimate estimate = estimate_memory(config, longest);
  return fmt::format(
      "memory: at least {} (parameters with gradients and moments {}, gradients being added up {}, "
      "activations of examples of {} tokens {}); {} are free",
      megabytes(estimate.bytes()), megabytes(estimate.parameters), megabytes(estimate.sums),
      positions_of(config, longest), megabytes(estimate.activations),
      megabytes(static_cast<double>(free_bytes(config.device))));
}

void refuse_if_too_large(const RunConfig& config, std::int64_t longest) {
  if (estimate_memory(config, longest).bytes() <= static_cast<double>(free_bytes(config.device))) {
    return;
  }
  throw UsageError(
      fmt::format("{}: a shorter max_length, a smaller width or a smaller batch needs less",
                  memory_text(config, longest)));
}

}  // namespace skytape::train
