#include "train/runs/init.hpp"

#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "data/files/digest.hpp"
#include "data/masking.hpp"
#include "tensor/core/error.hpp"
#include "train/formats/safetensors.hpp"

namespace skytape::train {
namespace {

/// The encoder's own tensors are the same under every method; a method's are named ".attn.".
bool of_method(const std::string& name) { return name.find(".mha.attn.") != name.npos; }
bool of_encoder(const std::string& name) { return name.starts_with("model."); }
/// Tables that the settings say alone: nothing in them was learned.
bool computed(const std::string& name) {
  return name == "model.rotary_angles" || name == "model.embeddings.position_waves";
}
/// Positions are told in several ways, and not every method takes each: another way starts fresh.
bool of_positions(const std::string& name) {
  return name == "model.embeddings.position_embeddings.weight" ||
         name == "model.embeddings.end_position_embeddings.weight";
}
bool of_training(const std::string& name) {
  return name.starts_with("optimizer.") || name.starts_with("train.");
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 4;
  if (names.empty()) return "nothing";
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

}  // namespace

std::filesystem::path checkpoint_in(const std::filesystem::path& run) {
  const std::filesystem::path file =
      std::filesystem::is_directory(run) ? run / "last.safetensors" : run;
  if (!std::filesystem::exists(file)) {
    throw DataError(
        fmt::format("--init {}: no checkpoint there ({} is missing)", run.string(), file.string()));
  }
  return file;
}

bool has_mask_token(const std::filesystem::path& file, const data::TaskInfo& task,
                    std::int64_t extra_rows) {
  const SafetensorsFile weights = read_safetensors(file);
  const Tensor* const table = weights.find("model.embeddings.word_embeddings.weight");
  const std::int64_t needed = data::mask_id(task) + 1;
  return table != nullptr && table->rank() == 2 && needed > task.vocabulary &&
         table->size(0) == needed + extra_rows;
}

std::string weights_fingerprint(const std::filesystem::path& file) {
  const SafetensorsFile weights = read_safetensors(file);
  std::uint64_t sum = 0;
  for (const auto& [name, tensor] : weights.tensors) {
    if (of_training(name)) continue;
    const auto* const bytes = static_cast<const std::uint8_t*>(tensor.raw());
    sum = data::checksum(data::as_bytes(name), sum);
    sum = data::checksum({bytes, tensor.bytes()}, sum);
  }
  return data::to_hex(sum);
}

std::string load_init(const std::filesystem::path& file, nn::Model& model) {
  const SafetensorsFile weights = read_safetensors(file);
  std::vector<std::string> fresh, unused;
  std::size_t loaded = 0;
  for (Parameter& p : model.parameters().parameters()) {
    if (computed(p.name)) continue;
    const Tensor* const source = of_encoder(p.name) ? weights.find(p.name) : nullptr;
    const bool optional = !of_encoder(p.name) || of_method(p.name) || !p.trainable ||
                          of_positions(p.name) || p.name.starts_with("model.pooling.");
    if (source == nullptr || (source->shape() != p.shape && of_method(p.name))) {
      if (!optional) {
        throw DataError(fmt::format("--init {}: no tensor {}", file.string(), p.name));
      }
      fresh.push_back(p.name);
      continue;
    }
    if (source->shape() != p.shape) {
      throw DataError(join("--init ", file.string(), ": tensor ", p.name, " is ", *source,
                           ", this run's is ", p.value));
    }
    p.value.copy_from(source->to(p.value.dtype()).to(p.value.device()));
    ++loaded;
  }
  for (const auto& [name, tensor] : weights.tensors) {
    if (of_training(name) || computed(name)) continue;
    if (!of_encoder(name) || model.parameters().find(name) == nullptr) unused.push_back(name);
  }
  return fmt::format("started from {}: {} tensors loaded; fresh: {}; not used of it: {}",
                     file.string(), loaded, listed(fresh), listed(unused));
}

}  // namespace skytape::train
