// Checkpoints: everything that a run needs to continue bit for bit, in one safetensors file.
//
// Tensors: the parameters and constant buffers under the papers' names; "optimizer.exp_avg.<name>"
// and "optimizer.exp_avg_sq.<name>"; "train.sums". Metadata: "skytape.config" and "skytape.state",
// JSON text.
#pragma once

#include <filesystem>
#include <string>

#include "data/files/json.hpp"
#include "train/run/run_state.hpp"

namespace skytape::nn {
class Model;
}

namespace skytape::train {

class Trainer;
struct SafetensorsFile;

/// Returns the advice for a run in `folder` that meets NaN or infinity: the file with its last good
/// state, if there is one, and how to find the cause.
[[nodiscard]] std::string last_good_state(const std::filesystem::path& folder);

/// Writes the run as it stands. Error if a weight is not finite (NonFiniteError) or the disk full;
/// the file of that name stays whole either way.
void save_checkpoint(const std::filesystem::path& path, nn::Model& model, Trainer& trainer,
                     const RunState& state, const data::Json& config);

/// The metadata of a checkpoint. DataError naming `path` for a file that is none of ours.
struct CheckpointFacts {
  data::Json config;
  RunState state;
};
[[nodiscard]] CheckpointFacts read_facts(const SafetensorsFile& file,
                                         const std::filesystem::path& path);

/// Returns whether a tensor of that name is state of training, which no model reads.
[[nodiscard]] bool of_training(const std::string& name);

/// Reads the weights and the metadata of a checkpoint, without the state of training.
[[nodiscard]] SafetensorsFile read_weights(const std::filesystem::path& path);

/// Sets every parameter and constant buffer of the model from the file. DataError naming `path` and
/// the first tensor that is missing, unknown or of another shape.
void load_weights(const SafetensorsFile& file, const std::filesystem::path& path, nn::Model& model);

/// Loads weights, moments, sums and step of a resumed run. Returns its state.
RunState load_training(const SafetensorsFile& file, const std::filesystem::path& path,
                       nn::Model& model, Trainer& trainer);

/// Returns the state of a run as a checkpoint's metadata has it, JSON text.
[[nodiscard]] std::string state_text(const RunState& state, const Trainer& trainer);

/// Sets the trainer's step and sums to what state_text() says, and returns the state.
RunState resume_state(const std::string& text, Trainer& trainer);

}  // namespace skytape::train
