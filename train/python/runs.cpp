// Trained runs: what they predict, their encodings and attention maps.
//
// Notation: B texts, N tokens of the longest one, E model width, H heads, D head width, C classes.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <mutex>

#include "data/tokenise.hpp"
#include "tensor/core/error.hpp"
#include "train/cli/cli.hpp"
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

using Texts = std::vector<std::string>;

/// The model of a run's folder. One question at a time.
class Run {
 public:
  Run(const std::string& folder, const std::string& checkpoint, const std::string& device)
      : saved_(load(folder, checkpoint, train::parse_device(device))),
        labels_(train::class_names(
            *saved_.config.task,
            train::read_json(std::filesystem::path(folder) / "config.json")["data_provenance"],
            static_cast<std::size_t>(saved_.model->config().classes))),
        evaluator_(*saved_.model, kGraphs) {}

  /// Probabilities f64[B, C] of texts as `skytape predict` reads them.
  [[nodiscard]] Tensor probabilities(const Texts& texts, std::int64_t draws) {
    if (draws < 1 || draws > train::kMostDraws) {
      throw UsageError(join("predict: draws: expected 1..", train::kMostDraws, ", got ", draws));
    }
    const std::lock_guard turn(mutex_);
    const auto gpu = turn_on(device());
    train::EvaluateOptions options;
    options.seed = saved_.config.seed;
    options.draws = draws;
    options.positions = saved_.config.microbatch_limits().positions;
    std::vector<double> all;
    std::int64_t row = 0;
    for (const auto& answer : evaluator_.answers(tokens_of(texts), saved_.config.batches,
                                                 saved_.config.microbatch(), options)) {
      if (!answer) throw NonFiniteError(join("predict: text ", row, ": its scores are not finite"));
      for (const double log : answer->log_probabilities) all.push_back(std::exp(log));
      ++row;
    }
    return Tensor::from(all, {row, std::ssize(labels_)}, DType::f64, Device::cpu);
  }

  /// Encodings [B, N, E], zero at padding, and the mask [B, N].
  [[nodiscard]] std::pair<Tensor, Tensor> encode(const Texts& texts) {
    if (texts.empty()) {
      const Tensor none = Tensor::zeros({0, 0, saved_.model->config().width}, DType::f32,
                                        Device::cpu);  // [0, 0, E]
      return {none, Tensor::zeros({0, 0}, DType::f32, Device::cpu)};
    }
    const std::lock_guard turn(mutex_);
    const auto gpu = turn_on(device());
    return encoded(texts, nn::answer_context(saved_.config.seed));
  }

  /// The matrices f64[H, N, N] that each layer's method multiplies the values of a text with.
  [[nodiscard]] std::vector<Tensor> attention_maps(const std::string& text) {
    const std::lock_guard turn(mutex_);
    const auto gpu = turn_on(device());
    std::vector<train::LayerInputs> seen;
    nn::StepContext step = nn::answer_context(saved_.config.seed);
    train::keep_in(seen, step);
    (void)encoded({text}, step);
    std::vector<Tensor> maps;
    for (int layer = 0; layer < std::ssize(seen); ++layer) {
      train::MatrixText of{"", {}, seen[layer].in, layer, nullptr, saved_.config.method->name};
      of.own = &saved_.model->layer(layer).method();
      of.own_call = nn::attention_call(step, 0, layer);
      train::MatrixOptions options;
      const std::int64_t heads = of.in.q.size(1), n = of.in.q.size(2);
      const Tensor map = Tensor::empty({heads, n, n}, DType::f64, Device::cpu);
      for (; options.head < heads; ++options.head) {
        map[options.head].copy_from(run_matrix(of, options).matrices.at(0).matrix);
      }
      maps.push_back(map);
    }
    return maps;
  }

  [[nodiscard]] const Texts& labels() const { return labels_; }
  [[nodiscard]] std::string describe() const {
    return join("Run of ", saved_.config.task->name, " with ", saved_.config.method->name,
                ", weights of step ", saved_.step);
  }

 private:
  // A graph that is captured would take in what another thread submits to the stream meanwhile.
  static constexpr bool kGraphs = false;

  [[nodiscard]] static train::SavedModel load(const std::string& folder,
                                              const std::string& checkpoint, Device device) {
    const auto gpu = turn_on(device);
    return train::load_run(folder, checkpoint, device);
  }
  [[nodiscard]] Device device() const { return saved_.model->parameters().values().device(); }
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
    const train::DeviceBatch batch = train::upload(data::pad(tokens_of(texts), options), device());
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
      .def(nb::init<const std::string&, const std::string&, const std::string&>(), Free())
      .def_prop_ro("labels", &Run::labels)
      .def("__repr__", &Run::describe)
      .def("probabilities", &Run::probabilities, Free())
      .def("encodings", &Run::encode, Free())
      .def("maps", &Run::attention_maps, Free());
}

}  // namespace skytape::python
