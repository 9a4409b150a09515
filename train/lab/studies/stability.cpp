#include "train/lab/studies/stability.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "data/batches.hpp"
#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "train/lab/papers/paper_costs.hpp"
#include "train/lab/studies/experiment.hpp"
#include "train/process/progress.hpp"
#include "train/run/splits.hpp"
#include "train/step/trainer.hpp"

namespace skytape::train {
namespace {

using data::Json;

/// |x|_F^2, in f64 from sums over rows.
double squared_norm(const Tensor& x) {
  const Tensor rows = x.reshape({x.rows(), x.cols()});
  const std::vector<double> sums = tensor::row_dot(rows, rows).to_vector();
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

/// Embeddings of a batch after the encoder, one per sequence: [B, N, E].
std::vector<Tensor> embeddings(const nn::Model& model, const data::Batch& batch,
                               nn::StepContext context, Device device) {
  const DeviceBatch on_device = upload(batch, device);
  context.fewest_tokens = on_device.fewest_tokens;
  std::vector<Tensor> all;
  for (int sequence = 0; sequence < batch.sequences; ++sequence) {
    Tape tape(Tape::Mode::eval);
    all.push_back(model.encode(tape, on_device.input, sequence, context).value());
  }
  return all;
}

/// One kind of score, as tables call it.
struct Kind {
  const char* name;
  std::vector<double> InstabilityScores::*scores;
};
constexpr Kind kKinds[] = {{"the weights alone", &InstabilityScores::weights},
                           {"dropout drawn anew", &InstabilityScores::dropout}};

/// Ratios to softmax, step by step; empty unless both were measured.
std::vector<double> ratios(const StabilityStudy& study, const std::string& task,
                           const std::string& method, const Kind& kind) {
  const auto scores = study.scores.find(task);
  if (scores == study.scores.end()) return {};
  const auto own = scores->second.find(method), softmax = scores->second.find("softmax");
  if (own == scores->second.end() || softmax == scores->second.end()) return {};
  std::vector<double> result = own->second.*kind.scores;
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] /= (softmax->second.*kind.scores)[i];
  }
  return result;
}

/// |x - y|_F^2 over all sequences.
double squared_distance(const std::vector<Tensor>& x, const std::vector<Tensor>& y) {
  double sum = 0;
  for (std::size_t t = 0; t < x.size(); ++t) sum += squared_norm(tensor::subtract(x[t], y[t]));
  return sum;
}

/// The context of a forward pass with the draws of `draw`.
nn::StepContext context_of(const RunConfig& config, bool training, std::int64_t draw) {
  nn::StepContext context;
  context.training = training;
  context.random = {config.seed,
                    Tensor::full({1}, static_cast<double>(draw), DType::i32, config.device)};
  return context;
}

}  // namespace

InstabilityScores instability_scores(const RunConfig& config, const data::Dataset& train,
                                     std::int64_t steps) {
  nn::Model model(model_for(config, train), DType::f32, config.device, config.seed);
  Trainer trainer(model, config.adamw, config.schedule, config.seed, config.microbatch_limits());
  data::BatchStream stream(train, config.batches);
  ParameterStore& store = model.parameters();
  InstabilityScores scores;
  for (std::int64_t i = 0; i < steps; ++i) {
    data::Batch batch;
    stream.next(batch);
    const auto embed = [&](bool training, std::int64_t draw) {
      return embeddings(model, batch, context_of(config, training, draw), config.device);
    };
    const std::vector<Tensor> before = embed(false, i), dropped = embed(true, i);
    const Tensor weights = store.values().slice(0, store.trainable_size()).clone();
    trainer.step(batch);
    const Tensor now = store.values().slice(0, store.trainable_size());
    const double way = squared_norm(tensor::subtract(now, weights));
    scores.weights.push_back(squared_distance(embed(false, i), before) / way);
    scores.dropout.push_back(squared_distance(embed(true, steps + i), dropped) / way);
  }
  return scores;
}

StabilityStudy measure_stability(const StabilityOptions& options) {
  const auto config_of = [&](const std::string& task, const std::string& method) {
    Choices choices = options.base;
    choices.task = task;
    choices.attention = method;
    if (options.batch > 0) {
      choices.settings.push_back({"batch", std::to_string(options.batch), "--batch"});
    }
    return resolve(choices);
  };
  for (const std::string& task : options.tasks) {  // a wrong setting shows before any measurement
    for (const std::string& method : options.methods) (void)config_of(task, method);
  }
  StabilityStudy study{options.methods, options.tasks, {}, {}};
  Progress progress;
  std::int64_t done = 0;
  const auto total = static_cast<std::int64_t>(options.tasks.size() * options.methods.size());
  for (const std::string& task : options.tasks) {
    for (const std::string& method : options.methods) {
      progress.at("stability", done++, total);
      const RunConfig config = config_of(task, method);
      try {
        const Splits splits = open_splits(config, progress);
        study.scores[task][method] =
            instability_scores(config_for(config, splits.train), splits.train, options.steps);
      } catch (const DataError& error) {
        study.missing.push_back(fmt::format("{}: {}", task, error.what()));
        progress.line(fmt::format("{}: no data, left out: {}", task, error.what()));
        done += static_cast<std::int64_t>(options.methods.size()) - 1;
        break;  // no method has them
      }
    }
  }
  if (study.scores.empty()) {
    throw DataError(fmt::format("stability: no task has data: {}", study.missing.front()));
  }
  return study;
}

Table stability_table(const StabilityStudy& study) {
  Table table;
  table.name = "stability";
  table.title = "Instability score over softmax's, mean of the first steps; below 1: more stable";
  table.columns = {{"method"}, {"from"}};
  for (const std::string& task : study.tasks) table.columns.push_back({task, "{:.2f}"});
  for (const std::string& method : study.methods) {
    for (const Kind& kind : kKinds) {
      std::vector<Cell> ours = {method, kind.name};
      for (const std::string& task : study.tasks) {
        const std::vector<double> r = ratios(study, task, method, kind);
        ours.push_back(r.empty() ? Cell() : Cell(estimate(r).mean));
      }
      table.add(std::move(ours));
    }
    std::vector<Cell> paper = {method, "Skyformer, Table 3"};
    bool in_paper = false;
    for (const std::string& task : study.tasks) {
      const auto printed = paper_figure(PaperFigure::instability, method, task);
      paper.push_back(printed);
      in_paper = in_paper || printed.has_value();
    }
    if (in_paper) table.add(std::move(paper));
  }
  for (const std::string& why : study.missing) table.notes.push_back("missing: " + why);
  return table;
}

Table score_table(const StabilityStudy& study) {
  Table table;
  table.name = "scores";
  table.title = "Instability scores";
  table.columns = {{"task"},
                   {"method"},
                   {"from"},
                   {"mean score", "{:.4g}"},
                   {"of softmax", "{:.3f}"},
                   {"standard error", "{:.3f}"},
                   {"steps", "{:.0f}"}};
  for (const std::string& task : study.tasks) {
    const auto found = study.scores.find(task);
    if (found == study.scores.end()) continue;
    for (const std::string& method : study.methods) {
      for (const Kind& kind : kKinds) {
        const std::vector<double>& scores = found->second.at(method).*kind.scores;
        const std::vector<double> r = ratios(study, task, method, kind);
        table.add({task, method, kind.name, estimate(scores).mean,
                   r.empty() ? Cell() : Cell(estimate(r).mean),
                   r.size() < 2 ? Cell() : Cell(estimate(r).error), scores.size()});
      }
    }
  }
  return table;
}

GradientTrace trace_gradients(const RunConfig& config, const data::Dataset& train) {
  nn::Model model(model_for(config, train), DType::f32, config.device, config.seed);
  Trainer trainer(model, config.adamw, config.schedule, config.seed, config.microbatch_limits());
  data::BatchStream stream(train, config.batches);
  GradientTrace trace;
  trace.method = config.method->name;
  Progress progress;
  for (std::int64_t step = 1; step <= config.steps(); ++step) {
    progress.at(trace.method, step, config.steps());
    data::Batch batch;
    stream.next(batch);
    trainer.step(batch);
    const double norm = std::sqrt(squared_norm(model.parameters().gradients()));
    const double loss = trainer.take_metrics().loss;
    if (!std::isfinite(norm) || !std::isfinite(loss)) {
      trace.failed_at = step;
      break;
    }
    trace.norm.push_back(norm);
    trace.loss.push_back(loss);
  }
  return trace;
}

Table gradient_table(const std::vector<GradientTrace>& traces) {
  Table table;
  table.name = "gradients";
  table.title = "Gradient norms before clipping, and the loss";
  table.columns = {{"method"},
                   {"steps", "{:.0f}"},
                   {"median norm", "{:.3g}"},
                   {"largest norm", "{:.3g}"},
                   {"at step", "{:.0f}"},
                   {"first loss", "{:.4f}"},
                   {"last loss", "{:.4f}"},
                   {"not finite at", "{:.0f}"}};
  for (const GradientTrace& t : traces) {
    const Cell failed = t.failed_at > 0 ? Cell(t.failed_at) : Cell();
    if (t.norm.empty()) {
      table.add({t.method, 0, {}, {}, {}, {}, {}, failed});
      continue;
    }
    std::vector<double> sorted = t.norm;
    std::sort(sorted.begin(), sorted.end());
    const auto largest = std::max_element(t.norm.begin(), t.norm.end());
    const std::size_t upper = sorted.size() / 2, lower = (sorted.size() - 1) / 2;
    table.add({t.method, t.norm.size(), (sorted[lower] + sorted[upper]) / 2, *largest,
               largest - t.norm.begin() + 1, t.loss.front(), t.loss.back(), failed});
  }
  return table;
}

Json to_json(const std::vector<GradientTrace>& traces) {
  Json all = Json::array();
  for (const GradientTrace& t : traces) {
    all.push_back(
        {{"attention", t.method}, {"norm", t.norm}, {"loss", t.loss}, {"failed_at", t.failed_at}});
  }
  return all;
}

}  // namespace skytape::train
