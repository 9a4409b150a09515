#include "train/run/checkpoint.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "data/files/json.hpp"
#include "data/files/printable.hpp"
#include "nn/model.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "train/config/run_config.hpp"
#include "train/formats/json_file.hpp"
#include "train/formats/safetensors.hpp"
#include "train/run/run_folder.hpp"
#include "train/step/trainer.hpp"

namespace skytape::train {
namespace {

using data::Json;

constexpr const char* kFirstMoment = "optimizer.exp_avg.";
constexpr const char* kSecondMoment = "optimizer.exp_avg_sq.";
constexpr const char* kSums = "train.sums";
constexpr const char* kConfig = "skytape.config";
constexpr const char* kState = "skytape.state";

/// The part of a flat buffer that belongs to a parameter, in its shape.
Tensor view(const Tensor& flat, const Parameter& p) {
  return flat.slice(p.offset, p.offset + p.shape.numel()).reshape(p.shape);
}

/// Passes the numbers of a state to `visit`, each with its key.
template <class State, class Visit> void visit_numbers(State& s, const Visit& visit) {
  visit("step", s.step);
  visit("epoch", s.cursor.epoch);
  visit("position", s.cursor.position);
  visit("evaluated", s.evaluated);
  visit("best_metric", s.best_metric);
  visit("best_step", s.best_step);
  visit("stale", s.stale);
  visit("selecting", s.selecting);
  visit("tokens", s.tokens);
  visit("train_seconds", s.train_seconds);
  visit("waited_seconds", s.waited_seconds);
}

Json state_json(const RunState& s, std::int64_t summed_steps) {
  Json j = {{"time_to_accuracy", to_json(s.reached)},
            {"summed_steps", summed_steps},
            {"peak_bytes", s.peak_bytes}};
  visit_numbers(s, [&](const char* key, const auto& number) { j[key] = number; });
  return j;
}

RunState state_from(const Json& j) {
  RunState s;
  visit_numbers(s, [&]<class T>(const char* key, T& number) { number = j.at(key).get<T>(); });
  s.reached = time_to_accuracy_from(data::member(j, "time_to_accuracy"));
  s.peak_bytes = j.value("peak_bytes", std::int64_t{0});  // older checkpoints do not say it
  return s;
}

constexpr JsonPart kStateParts[] = {
    {"step", JsonKind::natural},          {"epoch", JsonKind::natural},
    {"position", JsonKind::natural},      {"evaluated", JsonKind::natural},
    {"best_metric", JsonKind::number},    {"best_step", JsonKind::number},
    {"stale", JsonKind::natural},         {"selecting", JsonKind::flag},
    {"tokens", JsonKind::natural},        {"train_seconds", JsonKind::number},
    {"waited_seconds", JsonKind::number}, {"summed_steps", JsonKind::natural},
    {"peak_bytes", JsonKind::natural},    {"time_to_accuracy", JsonKind::maybe_object}};

/// A setting that is a whole number; a huge one where the configuration does not say it.
std::int64_t whole_setting(const Json& config, const char* key) {
  const Json& value = data::member(config, "settings", key, "value");
  const auto number =
      value.is_string() ? number_in<std::int64_t>(value.get<std::string>()) : std::nullopt;
  return number.value_or(std::numeric_limits<std::int32_t>::max());
}

/// DataError unless the state is one that a run of this configuration can reach.
void check_state(const Json& state, const Json& config, const std::string& file) {
  const std::string place = file + ": skytape.state";
  check_parts(state, kStateParts, place);
  const auto refuse_outside = [&](const char* key, double low, double high) {
    const Json& value = data::member(state, key);
    if (value.is_null() || (value.get<double>() >= low && value.get<double>() <= high)) return;
    refuse_json_part(place, key, fmt::format("a number in {}..{}", low, high), value);
  };
  const std::int64_t steps =
      whole_setting(config, is_pretraining(config) ? "pretrain_steps" : "steps");
  refuse_outside("step", 0, static_cast<double>(steps));
  const double step = state.at("step").get<double>();
  for (const char* key : {"evaluated", "stale", "summed_steps"}) refuse_outside(key, 0, step);
  refuse_outside("best_step", -1, step);
  const Json& examples = data::member(config, "data", "train", "examples");
  if (!examples.is_null() && examples > 0) {
    const double read = step * static_cast<double>(whole_setting(config, "batch"));
    refuse_outside("epoch", 0, std::floor(read / examples.get<double>()));
    refuse_outside("position", 0, examples.get<double>() - 1);
  }
  for (const char* key : {"train_seconds", "waited_seconds"}) {
    const Json& value = data::member(state, key);
    if (!value.is_null() && value < 0) refuse_json_part(place, key, "a number of 0 or more", value);
  }
}

std::string metadata_of(const SafetensorsFile& file, const std::filesystem::path& path,
                        const char* key) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end()) {
    throw DataError(
        fmt::format("{}: not a checkpoint of skytape: no metadata {}", path.string(), key));
  }
  return found->second;
}

/// Copies tensor `name` of the file into `target`.
void load_into(const SafetensorsFile& file, const std::filesystem::path& path,
               const std::string& name, Tensor target) {
  const Tensor* source = file.find(name);
  if (const std::string kind = file.foreign_kind(name); !kind.empty()) {
    throw DataError(
        join(path.string(), ": tensor ", name, " is ", kind, ", expected numbers like ", target));
  }
  if (source == nullptr) throw DataError(fmt::format("{}: no tensor {}", path.string(), name));
  const bool numbers_alike = (source->dtype() == DType::i32) == (target.dtype() == DType::i32);
  if (source->shape() != target.shape() || !numbers_alike) {
    throw DataError(join(path.string(), ": tensor ", name, " is ", *source, ", expected ", target));
  }
  target.copy_from(source->to(target.dtype()));
}

}  // namespace

std::string last_good_state(const std::filesystem::path& folder) {
  const std::filesystem::path last = last_file(folder);
  return fmt::format("{} (train --check-finite names the first op that went wrong)",
                     std::filesystem::exists(last) ? last.string() + " keeps the last good state"
                                                   : "no checkpoint was written yet");
}

void save_checkpoint(const std::filesystem::path& path, nn::Model& model, Trainer& trainer,
                     const RunState& state, const Json& config) {
  if (!tensor::all_finite(model.parameters().values()) || !trainer.metrics_finite()) {
    throw NonFiniteError(fmt::format("train: loss or weights are not finite at step {}; {}",
                                     state.step, last_good_state(path.parent_path())));
  }
  std::vector<NamedTensor> tensors;
  for (const Parameter& p : model.parameters().parameters()) tensors.emplace_back(p.name, p.value);
  for (const Parameter& p : model.parameters().parameters()) {
    if (!p.trainable) continue;
    tensors.emplace_back(kFirstMoment + p.name, view(trainer.optimizer().first_moment(), p));
    tensors.emplace_back(kSecondMoment + p.name, view(trainer.optimizer().second_moment(), p));
  }
  tensors.emplace_back(kSums, trainer.sums());
  write_safetensors(path, tensors,
                    {{kConfig, data::json_text(config)}, {kState, state_text(state, trainer)}});
}

CheckpointFacts read_facts(const SafetensorsFile& file, const std::filesystem::path& path) {
  try {
    Json config = data::parse_json(metadata_of(file, path, kConfig));
    check_parts(config, path.string());
    const Json state = data::parse_json(metadata_of(file, path, kState));
    check_state(state, config, path.string());
    return {std::move(config), state_from(state)};
  } catch (const data::JsonError& e) {
    throw DataError(
        fmt::format("{}: not a checkpoint of skytape: {}", path.string(), data::problem_of(e)));
  }
}

bool of_training(const std::string& name) {
  return name.starts_with("optimizer.") || name.starts_with("train.");
}

SafetensorsFile read_weights(const std::filesystem::path& path) {
  return read_safetensors(path, [](const std::string& name) { return !of_training(name); });
}

void load_weights(const SafetensorsFile& file, const std::filesystem::path& path,
                  nn::Model& model) {
  for (Parameter& p : model.parameters().parameters()) load_into(file, path, p.name, p.value);
  for (const auto& [name, tensor] : file.tensors) {
    if (of_training(name)) continue;
    if (model.parameters().find(name) == nullptr) {
      throw DataError(fmt::format("{}: tensor {} is none of this model's", path.string(),
                                  data::printable(name, 200)));
    }
  }
  for (const auto& [name, kind] : file.foreign) {
    throw DataError(fmt::format("{}: tensor {} ({}) is none of this model's", path.string(),
                                data::printable(name, 200), kind));
  }
}

RunState load_training(const SafetensorsFile& file, const std::filesystem::path& path,
                       nn::Model& model, Trainer& trainer) {
  load_weights(file, path, model);
  for (const Parameter& p : model.parameters().parameters()) {
    if (!p.trainable) continue;
    load_into(file, path, kFirstMoment + p.name, view(trainer.optimizer().first_moment(), p));
    load_into(file, path, kSecondMoment + p.name, view(trainer.optimizer().second_moment(), p));
  }
  load_into(file, path, kSums, trainer.sums());
  return resume_state(metadata_of(file, path, kState), trainer);
}

std::string state_text(const RunState& state, const Trainer& trainer) {
  return data::json_text(state_json(state, trainer.summed_steps()));
}

RunState resume_state(const std::string& text, Trainer& trainer) {
  const Json said = data::parse_json(text);
  RunState state = state_from(said);
  trainer.optimizer().resume_at(state.step);
  trainer.resume_sums(said.value("summed_steps", std::int64_t{0}));
  return state;
}

}  // namespace skytape::train
