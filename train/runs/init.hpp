// Starting a run from the weights of another.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "data/task.hpp"
#include "nn/model.hpp"

namespace skytape::train {

/// The checkpoint that `run` stands for: the file itself, or last.safetensors of a run's folder.
/// DataError if there is none.
[[nodiscard]] std::filesystem::path checkpoint_in(const std::filesystem::path& run);

/// Whether the embedding of a checkpoint has a row for hidden tokens of the task, `extra_rows` (CLS)
/// apart.
[[nodiscard]] bool has_mask_token(const std::filesystem::path& file, const data::TaskInfo& task,
                                  std::int64_t extra_rows);

/// Checksum over the weights of a checkpoint: what a run says it started from.
[[nodiscard]] std::string weights_fingerprint(const std::filesystem::path& file);

/// Copies the embeddings, the encoder's layers and its last norm into the model, and returns one
/// line about what was loaded, what starts fresh (the head; what a layer's method has of its own,
/// if the file's has another) and what of the file is not used. DataError naming the tensor if one
/// of the encoder's own is missing or has another shape.
[[nodiscard]] std::string load_init(const std::filesystem::path& file, nn::Model& model);

}  // namespace skytape::train
