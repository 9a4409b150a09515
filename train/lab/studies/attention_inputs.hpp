// Queries, keys and values for studies of attention: of a fresh model, of a trained run on its own
// data, of a pre-trained encoder on texts, or from a file.
//
// Notation: H heads, N positions, D head width.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attention/method.hpp"
#include "data/files/json.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::nn {
struct StepContext;
}

namespace skytape::train {

/// One layer's attention on one example of exactly N positions, f64 on the CPU: differences of
/// outputs and inverses of kernel matrices would drown in f32's rounding.
struct LayerInputs {
  attention::Inputs in;  // q, k, v: [1, H, N, D]; mask: [1, N], zero where the run's mask rule
                         // hides; x: [1, N, E], undefined where the source is a file
  Tensor out;            // [1, H, N, D]: the output of the model's own attention; files: of softmax
  std::int64_t example = 0;  // its number; the same where a source begins again
};

/// The source of the inputs.
struct InputSource {
  std::string name;                         // for titles: "fresh softmax model"
  data::Json facts;                         // for result files
  std::int64_t longest = 0;                 // positions that an example can have
  std::vector<std::int64_t> usual_lengths;  // when the user names none
  std::int64_t layers = 0;
  bool has_x = true;  // whether examples have the layer's input: files do not
  /// All layers on example number `index`, cut to n positions. Numbers beyond a source's last
  /// example start again at the first. DataError if no example is that long.
  std::function<std::vector<LayerInputs>(std::int64_t n, std::int64_t index)> example;
};

/// Keeps what the attention of every layer sees, as long as `layers` lives. NonFiniteError for what
/// nothing can be said of.
void keep_in(std::vector<LayerInputs>& layers, nn::StepContext& context);

/// Layers are numbered from 0. UsageError, naming the source, unless `layer` is one of so many; -1
/// is the last.
[[nodiscard]] std::int64_t check_layer(std::int64_t layer, std::int64_t layers,
                                       const std::string& source);

/// UsageError unless the source has examples of n positions.
void check_length(const InputSource& source, std::int64_t n);

/// Says that the source begins again within the first `count` examples of n positions; empty if it
/// does not.
[[nodiscard]] std::string repetition(const InputSource& source, std::int64_t n, std::int64_t count);

/// A recipe's model of task text (skyformer: that of the papers) with softmax attention and initial
/// values from `seed`, on uniformly random bytes; at most `longest` positions. UsageError for an
/// unknown recipe.
[[nodiscard]] InputSource fresh_inputs(const std::string& recipe, std::uint64_t seed,
                                       std::int64_t longest);

/// A trained run on the test split of its task, in file order; examples with fewer than n tokens
/// are passed over. `data_root` replaces the saved one unless it is empty. DataError if there is no
/// run, UsageError if its method has no keys of its own.
[[nodiscard]] InputSource run_inputs(const std::filesystem::path& folder,
                                     const std::string& checkpoint,
                                     const std::filesystem::path& data_root);

/// A pre-trained encoder on a file with one text a line, in the file's order; its two ends are
/// among the n tokens, longer texts are cut, shorter ones passed over. With `untrained`, a seed,
/// its size and tokeniser with the initial weights of BERT. DataError if there is no encoder or no
/// file, or where a text is no UTF-8.
[[nodiscard]] InputSource encoder_inputs(const std::filesystem::path& folder,
                                         const std::filesystem::path& texts,
                                         std::optional<std::uint64_t> untrained = {});

/// "FILE.safetensors" with the tensors q, k and v, or "Q.npy,K.npy,V.npy": each [B, H, N, D],
/// [H, N, D] or [N, D], not scaled; example b is batch entry b. DataError names what does not fit.
[[nodiscard]] InputSource file_inputs(const std::string& files);

}  // namespace skytape::train
