// Starting a run from the weights of another.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "data/files/json_fwd.hpp"
#include "data/task.hpp"
#include "nn/model.hpp"

namespace skytape::train {

/// The checkpoint that `run` stands for: the file itself, or last.safetensors of a run's folder; of
/// a run of two phases, before the second has begun, that of the first. Of a pre-trained encoder
/// (train/encoders) its folder, which the functions below take as well. DataError if there is none.
[[nodiscard]] std::filesystem::path checkpoint_in(const std::filesystem::path& run);

/// Returns the number of rows of a checkpoint's embedding; 0 of an encoder, whose vocabulary has
/// the hidden token in any case.
[[nodiscard]] std::int64_t embedding_rows(const std::filesystem::path& file);

/// The settings of the run that saved a checkpoint, as its config.json has them; of an encoder
/// those that make a model like it; null of weights that are not ours.
[[nodiscard]] data::Json init_settings(const std::filesystem::path& file);

/// Returns the metadata of the initial checkpoint for a run's config.json: "init", a checksum over
/// its weights, and, where these were pre-trained, "pretraining", on what, how long and how far.
/// They name no path.
[[nodiscard]] data::Json init_facts(const std::filesystem::path& file);

/// "pre-trained on listops with skyformer, 2,000 steps in 12 min", from the metadata "pretraining".
[[nodiscard]] std::string pretraining_text(const data::Json& facts);

/// Copies the embeddings, the encoder's layers and its last norm into the model, and where both
/// predict hidden tokens the head of that, and returns one line about what was loaded, what starts
/// fresh (the task's head; what a layer's method has of its own, if the file's has another) and
/// what of the file is not used. `config` is the config.json of the run that starts. DataError
/// naming the tensor and both shapes if one of the encoder's own is missing or has another shape,
/// or if its rows stand for other tokens; UsageError if the run reads longer texts than an encoder
/// has positions for.
[[nodiscard]] std::string load_initial_weights(const std::filesystem::path& file, nn::Model& model,
                                               const data::Json& config);

}  // namespace skytape::train
