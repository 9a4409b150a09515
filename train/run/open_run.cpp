#include "train/run/open_run.hpp"

#include <fmt/format.h>

#include <string>

#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "train/formats/safetensors.hpp"
#include "train/process/progress.hpp"
#include "train/process/version.hpp"
#include "train/run/checkpoint.hpp"
#include "train/run/earlier.hpp"
#include "train/run/init.hpp"
#include "train/run/memory_estimate.hpp"
#include "train/run/rank_share.hpp"
#include "train/run/result.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;
using data::Json;

/// The configuration, and with what the run started: what checkpoints keep. It names no place.
Json full_config(const RunConfig& config, const Splits& splits, const TrainOptions& options) {
  Json j = to_json(config);
  const fs::path saved = config_file(options.out);
  Json origin = Json::object();
  if (!options.init.empty()) {
    origin = init_facts(checkpoint_in(options.init));
  } else if (options.resumes() && fs::exists(saved)) {
    origin = read_config(options.out);  // its checkpoint holds what the weights became
  }
  for (const char* key : {"init", "pretraining"}) {
    if (origin.contains(key)) j[key] = data::member(origin, key);
  }
  j["data"] = facts(splits);
  j["model"] = model_facts(config, splits.train);
  j["data_provenance"] = data::try_parse_json(splits.train.provenance());
  j["revision"] = revision();
  j["machine"] = machine_facts();
  return j;
}

/// Returns the provenance of the data that a run which continues was trained on, on all ranks; null
/// where there is none.
Json saved_provenance(const TrainOptions& options) {
  return data::parse_json(options.ranks->first([&] {
    const bool goes_on = options.resumes() && fs::exists(config_file(options.out));
    return data::json_text(goes_on ? data::member(read_config(options.out), "data_provenance")
                                   : Json());
  }));
}

/// Makes sure that all ranks mean the same run, and that there is work for each.
void check_ranks(const OpenRun& run) {
  const TrainOptions& options = run.options;
  agree(run.config, run.splits,
        {{"--stop-after", options.stop_after},
         {"--log-every", options.log_every},
         {"--check-finite", options.check_finite},
         {"--reduce", name(run.ranks().reduce_on(run.config.device))}},
        run.ranks());
  together(run.ranks(),
           [&] { refuse_idle_ranks(run.config, run.splits.train.longest(), run.ranks()); });
}

/// Keeps what the run's config.json says of its data, once it says the same by the same numbers as
/// the data there are now: where they were prepared from may be another place.
void keep_provenance(OpenRun& run) {
  const fs::path file = config_file(run.options.out);
  if (!fs::exists(file)) return;
  const Json saved = read_config(run.options.out);
  const Json& there = data::member(saved, "data_provenance");
  const fs::path place = run.config.data_root / run.config.task->name;
  refuse_other_meaning(there, file.string(), run.json["data_provenance"],
                       "the data in " + place.string(), false);
  if (there.is_object()) run.json["data_provenance"] = there;
}

/// Reads what an earlier process left in the folder; on rank 0. Returns whether it finished the
/// run.
bool check_folder(OpenRun& run, Progress& progress) {
  const TrainOptions& options = run.options;
  refuse_odd_files(options.out);
  run.json = full_config(run.config, run.splits, options);
  if (!options.resumes()) return false;
  refuse_other_run(options.out, run.json);
  keep_provenance(run);
  run.result = finished_result(options.out, run.json);
  if (!run.result && !fs::exists(last_file(options.out))) {
    refuse_lost_run(options.out, run.json, !options.init.empty());
    progress.line(fmt::format("{}: nothing to resume, starting at step 1", options.out.string()));
  }
  return run.result.has_value();
}

/// Loads the last checkpoint.
void load_checkpoint(OpenRun& run, Progress& progress) {
  const fs::path& folder = run.options.out;
  const SafetensorsFile file = read_safetensors(last_file(folder));
  const CheckpointFacts saved = facts_of_this_run(file, last_file(folder), run.json);
  if (run.config.select != Select::last && saved.state.best_step >= 0) {
    load_best(best_file(folder), run.json, saved.state, *run.model);  // its absence costs hours
  }
  run.state = load_training(file, last_file(folder), *run.model, *run.trainer);
  for (const std::string& warning : reproducibility_warnings(saved.config, run.json)) {
    progress.line(warning);
  }
  progress.line(fmt::format("resuming {} at step {}", folder.string(), run.state.step));
}

void write_checkpoint(const OpenRun& run, const fs::path& file) {
  save_checkpoint(file, *run.model, *run.trainer, run.state, run.json);
}

/// Takes the folder, and loads what the run starts from: its last checkpoint, the weights that
/// --init names, or the model's own. On rank 0.
void load(OpenRun& run, Progress& progress) {
  const TrainOptions& options = run.options;
  const bool going_on = options.resumes() && fs::exists(last_file(options.out));
  std::string loaded;  // a line about the weights of --init
  if (!going_on && !options.init.empty()) {
    loaded = load_initial_weights(checkpoint_in(options.init), *run.model, run.json);
  }
  if (!options.part_of.empty()) {
    run.whole = std::make_unique<RunFolder>(options.part_of, options.existing);
  }
  run.folder = std::make_unique<RunFolder>(options.out, options.existing);
  if (going_on) load_checkpoint(run, progress);
  if (!loaded.empty()) progress.line(loaded);
  if (const fs::path file = config_file(options.out); !fs::exists(file)) {
    // It stays where it is: it alone also says where the data are, from any folder.
    Json own = run.json;
    own["data_root"] = fs::absolute(run.config.data_root).lexically_normal().string();
    run.folder->write_json(file, own);
  }
  if (!going_on) write_checkpoint(run, last_file(options.out));  // metrics are never without one
  run.folder->start_metrics(run.state);
}

/// Copies state, weights, moments and sums of rank 0, which loaded them, to all ranks.
void broadcast(OpenRun& run) {
  const Ranks& ranks = run.ranks();
  Trainer& trainer = *run.trainer;
  const std::string state = ranks.first([&] { return state_text(run.state, trainer); });
  if (!ranks.first()) run.state = resume_state(state, trainer);
  for (Tensor* const tensor :
       {&run.model->parameters().values(), &trainer.optimizer().first_moment(),
        &trainer.optimizer().second_moment(), &trainer.sums()}) {
    ranks.broadcast(*tensor);
  }
}

}  // namespace

OpenRun open_run(const RunConfig& config, const TrainOptions& options, Progress& progress) {
  const Ranks& ranks = *options.ranks;
  const Splits splits = open_splits(config, saved_provenance(options), progress, ranks);
  const RunConfig own = config_for(config, splits.train);
  const std::int64_t longest = splits.train.longest();
  OpenRun run{.options = options,
              .config = own,
              .splits = splits,
              .limits = microbatch_limits(own, ranks),
              .who_trains = who_trains(own, longest, ranks)};
  check_ranks(run);
  run.finished = ranks.first([&] { return check_folder(run, progress); });
  if (run.finished) return run;
  together(ranks, [&] { refuse_if_too_large(run.config, longest); });

  const RunConfig& c = run.config;
  run.model = std::make_unique<nn::Model>(model_for(c, splits.train), DType::f32, c.device, c.seed);
  run.gradient_sum = std::make_unique<GradientSum>(ranks, run.model->parameters());
  run.trainer = std::make_unique<Trainer>(*run.model, c.adamw, c.schedule, c.seed, run.limits,
                                          options.graphs, run.gradient_sum->share());
  run.trainer->check_finite(options.check_finite);
  run.evaluator = std::make_unique<Evaluator>(*run.model, options.graphs);

  ranks.patient().first([&] { load(run, progress); });
  broadcast(run);
  run.started_at = run.state.step;
  return run;
}

void save(const OpenRun& run, const fs::path& file) {
  run.ranks().patient().first([&] { write_checkpoint(run, file); });
}

}  // namespace skytape::train
