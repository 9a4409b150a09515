// Trained runs: what they predict, their encodings and attention maps.
//
// Letters: B texts, N tokens of the longest one, E model width, H heads, D head width, C classes.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <mutex>

#include "data/tokenise.hpp"
#include "tensor/core/error.hpp"
#include "train/lab/studies/attention_inputs.hpp"
#include "train/lab/studies/matrix.hpp"
#include "train/process/version.hpp"
#include "train/python/module.hpp"
#include "train/run/run_folder.hpp"
#include "train/run/saved_model.hpp"
#include "train/step/class_scores.hpp"
#include "train/step/evaluate.hpp"
#include "train/step/microbatches.hpp"
#include "train/step/step_inputs.hpp"

namespace skytape::python {
namespace {

using Matrix = std::vector<std::vector<double>>;  // rows
using Texts = std::vector<std::string>;

/// The model of a run's folder. One question at a time.
class Run {
 public:
  Run(const std::string& folder, const std::string& checkpoint, const std::string& device)
      : saved_(train::load_run(folder, checkpoint, train::parse_device(device))),
        labels_(train::class_names(
            *saved_.config.task,
            train::read_json(std::filesystem::path(folder) / "config.json")["data_provenance"],
            static_cast<std::size_t>(saved_.model->config().classes))),
        evaluator_(*saved_.model) {}

  /// Probabilities [B, C] of texts as `skytape predict` reads them.
  [[nodiscard]] Matrix probabilities(const Texts& texts, std::int64_t draws) {
    const std::lock_guard turn(mutex_);
    train::EvaluateOptions options;
    options.seed = saved_.config.seed;
    options.draws = draws;
    options.positions = saved_.config.microbatch_limits().positions;
    Matrix rows;
    for (const auto& answer : evaluator_.answers(tokens_of(texts), saved_.config.batches,
                                                 saved_.config.microbatch(), options)) {
      if (!answer) throw NonFiniteError(join("text ", rows.size(), ": its scores are not finite"));
      rows.emplace_back();
      for (const double log : answer->log_probabilities) rows.back().push_back(std::exp(log));
    }
    return rows;
  }

  /// Encodings [B, N, E], zero at padding, and the mask [B, N].
  [[nodiscard]] std::pair<Tensor, Tensor> encode(const Texts& texts) {
    const std::lock_guard turn(mutex_);
    return encoded(texts, nn::answer_context(saved_.config.seed));
  }

  /// The matrices [N, N] that each layer's method multiplies the values of a text with, by head.
  [[nodiscard]] std::vector<std::vector<Matrix>> attention_maps(const std::string& text) {
    const std::lock_guard turn(mutex_);
    std::vector<train::LayerInputs> seen;
    nn::StepContext step = nn::answer_context(saved_.config.seed);
    train::keep_in(seen, step);
    (void)encoded({text}, step);
    std::vector<std::vector<Matrix>> maps(seen.size());
    for (int layer = 0; layer < std::ssize(seen); ++layer) {
      train::MatrixText of{"", {}, seen[layer].in, layer, nullptr, saved_.config.method->name};
      of.own = &saved_.model->layer(layer).method();
      train::MatrixOptions options;
      options.seed = saved_.config.seed;
      for (; options.head < of.in.q.size(1); ++options.head) {
        maps[layer].push_back(train::rows_of(run_matrix(of, options).matrices.at(0).matrix));
      }
    }
    return maps;
  }

  [[nodiscard]] const Texts& labels() const { return labels_; }
  [[nodiscard]] std::string describe() const {
    return join("Run of ", saved_.config.task->name, " with ", saved_.config.method->name,
                ", weights of step ", saved_.step);
  }

 private:
  [[nodiscard]] std::vector<data::Tokens> tokens_of(const Texts& texts) const {
    std::vector<data::Tokens> tokens;
    for (const std::string& text : texts) {
      tokens.push_back(data::tokenise(*saved_.config.task, saved_.config.vocabulary.get(), text,
                                      join("text ", tokens.size()), saved_.config.pairs));
    }
    return tokens;
  }
  /// As one batch, no wider than its longest text.
  [[nodiscard]] std::pair<Tensor, Tensor> encoded(const Texts& texts, const nn::StepContext& step) {
    data::BatchOptions options = saved_.config.batches;
    options.trim = true;
    options.round_to = 1;
    const train::DeviceBatch batch = train::upload(data::pad(tokens_of(texts), options),
                                                   saved_.model->parameters().values().device());
    Tape tape(Tape::Mode::eval);
    return {saved_.model->encode(tape, batch.input, 0, step).value(), batch.input.mask[0]};
  }

  train::SavedModel saved_;
  Texts labels_;
  train::Evaluator evaluator_;
  std::mutex mutex_;
};

}  // namespace

void add_runs(nb::module_& m) {
  nb::class_<Run>(m, "Run", "A trained model.")
      .def(nb::init<const std::string&, const std::string&, const std::string&>())
      .def_prop_ro("labels", &Run::labels)
      .def("__repr__", &Run::describe)
      .def("probabilities", &Run::probabilities, Free())
      .def("encode", &Run::encode, nb::arg("texts"), Free(),
           "Encodings [B, N, E], zero at padding, and the mask [B, N].")
      .def("maps", &Run::attention_maps, Free());
}

}  // namespace skytape::python
