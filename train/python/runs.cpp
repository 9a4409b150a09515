// Trained runs: what they predict, their encodings and attention maps; and the matrices that methods
// multiply values with.
//
// Letters: B texts, N tokens of the longest one, E model width, H heads, D head width, C classes.
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/tokenise.hpp"
#include "tensor/core/error.hpp"
#include "train/process/version.hpp"
#include "train/python/arrays.hpp"
#include "train/python/module.hpp"
#include "train/runs/run_folder.hpp"
#include "train/runs/saved_model.hpp"
#include "train/step/class_scores.hpp"
#include "train/step/evaluate.hpp"
#include "train/step/microbatches.hpp"
#include "train/step/step_inputs.hpp"
#include "train/studies/matrix.hpp"

namespace skytape::python {
namespace {

using Matrix = std::vector<std::vector<double>>;

/// The matrices one behind the other: [.., N, N], f64.
Tensor stacked(const std::vector<Matrix>& matrices) {
  std::vector<double> numbers;
  for (const Matrix& matrix : matrices) {
    for (const std::vector<double>& row : matrix) {
      numbers.insert(numbers.end(), row.begin(), row.end());
    }
  }
  const auto count = static_cast<std::int64_t>(matrices.size());
  const auto n = static_cast<std::int64_t>(matrices.empty() ? 0 : matrices[0].size());
  return Tensor::from(numbers, {count, n, n}, DType::f64, Device::cpu);
}

/// A layer's inputs as studies take them.
attention::Inputs wide(const attention::Inputs& in) {
  const auto f64 = [](const Tensor& x) { return x.defined() ? x.to(DType::f64) : x; };
  return {f64(in.q), f64(in.k), f64(in.v), f64(in.mask), in.combined, f64(in.x), f64(in.state)};
}

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
  [[nodiscard]] Tensor probabilities(const std::vector<std::string>& texts, std::int64_t draws) {
    const std::lock_guard turn(mutex_);
    train::EvaluateOptions options;
    options.seed = saved_.config.seed;
    options.draws = draws;
    options.positions = saved_.config.microbatch_limits().positions;
    const auto answers = evaluator_.answers(tokens_of(texts), saved_.config.batches,
                                            saved_.config.microbatch(), options);
    std::vector<double> numbers;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (!answers[i]) {
        throw NonFiniteError(join("text ", i, ": what the model says of it is not finite"));
      }
      for (const double log : answers[i]->log_probabilities) numbers.push_back(std::exp(log));
    }
    const Shape shape{std::ssize(texts), std::ssize(labels_)};
    return Tensor::from(numbers, shape, DType::f64, Device::cpu);
  }

  /// Encodings [B, N, E], zero at padding, and the mask [B, N].
  [[nodiscard]] std::pair<Tensor, Tensor> encode(const std::vector<std::string>& texts) {
    const std::lock_guard turn(mutex_);
    const train::DeviceBatch on_device = batch_of(texts);
    Tape tape(Tape::Mode::eval);
    const nn::StepContext step = nn::answer_context(saved_.config.seed);
    return {saved_.model->encode(tape, on_device.input, 0, step).value(), on_device.input.mask[0]};
  }

  /// The matrices [H, N, N] that each layer's method multiplies the values of a text with.
  [[nodiscard]] std::vector<Tensor> attention_maps(const std::string& text) {
    const std::lock_guard turn(mutex_);
    std::vector<attention::Inputs> seen;
    nn::StepContext step = nn::answer_context(saved_.config.seed);
    step.observe = [&](int, const attention::Inputs& in, const Tensor&) {
      seen.push_back(wide(in));
    };
    Tape tape(Tape::Mode::eval);
    (void)saved_.model->encode(tape, batch_of({text}).input, 0, step);
    std::vector<Tensor> maps;
    for (std::size_t layer = 0; layer < seen.size(); ++layer) {
      train::MatrixText of{"", {}, seen[layer], static_cast<std::int64_t>(layer), nullptr, ""};
      of.own = &saved_.model->layer(static_cast<int>(layer)).method();
      of.own_name = saved_.config.method->name;
      std::vector<Matrix> heads;
      for (std::int64_t head = 0; head < of.in.q.size(1); ++head) {
        train::MatrixOptions options;
        options.head = head;
        options.seed = saved_.config.seed;
        heads.push_back(run_matrix(of, options).matrices.at(0).matrix);
      }
      maps.push_back(stacked(heads));
    }
    return maps;
  }

  [[nodiscard]] const std::vector<std::string>& labels() const { return labels_; }
  [[nodiscard]] std::string describe() const {
    return join("Run of ", saved_.config.task->name, " with ", saved_.config.method->name,
                ", weights of step ", saved_.step);
  }

 private:
  [[nodiscard]] std::vector<data::Tokens> tokens_of(const std::vector<std::string>& texts) const {
    std::vector<data::Tokens> tokens;
    for (const std::string& text : texts) {
      tokens.push_back(data::tokenise(*saved_.config.task, saved_.config.vocabulary.get(), text,
                                      join("text ", tokens.size()), saved_.config.pairs));
    }
    return tokens;
  }
  /// As one batch, no wider than its longest text.
  [[nodiscard]] train::DeviceBatch batch_of(const std::vector<std::string>& texts) const {
    data::BatchOptions options = saved_.config.batches;
    options.trim = true;
    options.round_to = 1;
    const data::Batch batch = data::pad(tokens_of(texts), options);
    return train::upload(batch, saved_.model->parameters().values().device());
  }

  train::SavedModel saved_;
  std::vector<std::string> labels_;
  train::Evaluator evaluator_;
  std::mutex mutex_;
};

/// The matrix of every method that has one, for a single example's q, k, v [1, H, N, D], x [1, N, E].
nb::dict matrices(nb::handle q, nb::handle k, nb::handle v, nb::handle x,
                  const std::vector<std::string>& methods, std::int64_t features, std::int64_t head,
                  std::uint64_t seed) {
  train::MatrixText text;
  text.in = wide({tensor_of(q, "q"), tensor_of(k, "k"), tensor_of(v, "v"), {}});
  text.in.mask = Tensor::full({1, text.in.v.size(2)}, 1, DType::f64, Device::cpu);
  text.in.x = tensor_of(x, "x").to(DType::f64);
  train::MatrixOptions options;
  options.methods = methods;
  options.features = features;
  options.head = head;
  options.seed = seed;
  train::MatrixStudy study;
  {
    const nb::gil_scoped_release free;
    study = run_matrix(text, options);
  }
  nb::dict found;
  for (const train::MethodMatrix& m : study.matrices) {
    found[m.name.c_str()] =
        nb::make_tuple(numpy_of(stacked({m.matrix})[0]), numpy_of(stacked({m.exact})[0]), m.error);
  }
  return found;
}

}  // namespace

void add_runs(nb::module_& m) {
  nb::class_<Run>(m, "Run", "A trained model.")
      .def(nb::init<const std::string&, const std::string&, const std::string&>())
      .def_prop_ro("labels", &Run::labels)
      .def("__repr__", &Run::describe)
      .def("probabilities",
           [](Run& run, const std::vector<std::string>& texts, std::int64_t draws) {
             Tensor found;
             {
               const nb::gil_scoped_release free;
               found = run.probabilities(texts, draws);
             }
             return numpy_of(found);
           })
      .def(
          "encode",
          [](Run& run, const std::vector<std::string>& texts) {
            std::pair<Tensor, Tensor> found;
            {
              const nb::gil_scoped_release free;
              found = run.encode(texts);
            }
            return nb::make_tuple(numpy_of(found.first), numpy_of(found.second));
          },
          nb::arg("texts"), "Encodings [B, N, E], zero at padding, and the mask [B, N].")
      .def(
          "attention_maps",
          [](Run& run, const std::string& text) {
            std::vector<Tensor> found;
            {
              const nb::gil_scoped_release free;
              found = run.attention_maps(text);
            }
            nb::list maps;
            for (const Tensor& map : found) maps.append(numpy_of(map));
            return maps;
          },
          nb::arg("text"), "The matrix [H, N, N] that each layer multiplies values with.");
  m.def("matrices", &matrices);
}

}  // namespace skytape::python
