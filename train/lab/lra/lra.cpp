#include "train/lab/lra/lra.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "attention/registry.hpp"
#include "data/files/json.hpp"
#include "data/files/output.hpp"
#include "data/prepare.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/config/identity.hpp"
#include "train/lab/lra/child_process.hpp"
#include "train/lab/lra/pack.hpp"
#include "train/process/progress.hpp"
#include "train/process/signals.hpp"
#include "train/run/budget.hpp"
#include "train/run/result.hpp"
#include "train/run/run_folder.hpp"
#include "train/run/seeds.hpp"
#include "train/run/splits.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;
using data::Json;
using Clock = std::chrono::steady_clock;

/// The values of an axis; one empty value stands for "as the recipe says".
std::vector<std::string> axis(const std::vector<std::string>& values) {
  return values.empty() ? std::vector<std::string>{""} : values;
}

/// UsageError for features that the user sets in all cells, where a method has none: a flag is for
/// that.
void refuse_features(const GridOptions& options, const std::string& attention) {
  if (attention::find(attention).has_option("features")) return;
  for (const Setting& choice : options.base.settings) {
    if (choice.key != "features") continue;
    throw UsageError(fmt::format(
        "{} features={} has no effect on {}, which has no such option; --features {} sets them for "
        "the methods that have them",
        choice.origin, choice.value, attention, choice.value));
  }
}

/// UsageError for the flag where no method reads it.
void refuse_idle_features(const GridOptions& options) {
  const auto reads = [](const std::string& method) {
    return attention::find(method).has_option("features");
  };
  if (options.features.empty() || std::ranges::any_of(options.attentions, reads)) return;
  throw UsageError(fmt::format("lra: --features has no effect: none of {} has such an option",
                               listed(options.attentions)));
}

GridCell make_cell(const GridOptions& options, const std::string& task,
                   const std::string& attention, const std::string& lr, const std::string& batch,
                   std::uint64_t seed, const std::string& steps) {
  GridCell cell;
  cell.choices = options.base;
  cell.choices.task = task;
  cell.choices.attention = attention;
  cell.choices.seed = seed;
  const auto choose = [&](const char* key, const std::string& value) {
    if (!value.empty()) cell.choices.settings.push_back({key, value, fmt::format("--{}", key)});
  };
  choose("lr", lr);
  choose("batch", batch);
  if (!steps.empty()) cell.choices.settings.push_back({"steps", steps, "--budget"});
  if (attention::find(attention).has_option("features")) choose("features", options.features);
  refuse_features(options, attention);
  cell.recipe = find_recipe(cell.choices.recipe);
  cell.config = resolve(cell.choices, cell.recipe);
  cell.folder = fmt::format("{}-{}-{}{}{}-s{}", task, attention, in_folder_names(cell.recipe.name),
                            lr.empty() ? "" : "-lr" + lr, batch.empty() ? "" : "-b" + batch, seed);
  return cell;
}

/// UsageError where two values of an axis are the same number.
void refuse_equal(const char* flag, const std::vector<std::string>& values) {
  std::map<double, std::string> seen;
  for (const std::string& value : values) {
    const auto number = number_in<double>(value);
    if (!number) continue;  // resolve() names what is wrong with it
    const auto [first, is_new] = seen.emplace(*number, value);
    if (is_new) continue;
    throw UsageError(
        fmt::format("lra: {}: {} and {} are the same number", flag, first->second, value));
  }
}

/// Returns the config.json of the run in a folder; null: there is none, or a broken one, which its
/// own process names when it starts there.
Json run_in(const fs::path& folder) {
  try {
    return data::member(find_config(folder), "config");
  } catch (const DataError&) {
    return {};
  }
}

/// facts() of a task's data; null where they are not prepared, or broken, which the grid says
/// later.
Json data_of(const RunConfig& config) {
  try {
    if (!data::is_prepared(*config.task, config.data_root)) return {};
    Progress progress;
    return facts(open_splits(config, progress));
  } catch (const DataError&) {
    return {};
  }
}

/// The n-th folder of a cell, from 1.
std::string numbered(const std::string& folder, int n) {
  return n == 1 ? folder : fmt::format("{}-{}", folder, n);
}

/// In what a run and a cell differ; of data only where the cell knows them.
std::string what_differs(Json there, const GridCell& cell) {
  if (cell.data.is_null()) there.erase("data");
  return differences(there, wanted_config(cell));
}

/// The steps that --budget leaves time for: those of the cell's run where there is one already that
/// differs in nothing else, so that the same command continues it.
template <class Make> std::string budgeted_steps(const GridOptions& options, const Make& make) {
  const double seconds = parse_duration(options.budget);
  const GridCell cell = make("");
  const auto fits = [&](const Json& there, const std::string& steps) {
    try {
      return what_differs(there, make(steps)).empty();
    } catch (const UsageError&) {
      return false;  // so many steps contradict the settings now
    }
  };
  for (int n = 1;; ++n) {
    const Json there = run_in(options.out / numbered(cell.folder, n));
    if (there.is_null()) break;
    const Json& steps = data::member(there, "settings", "steps", "value");
    if (steps.is_string() && fits(there, steps.get<std::string>())) return steps.get<std::string>();
  }
  if (options.table_only) return {};
  try {
    return std::to_string(steps_within(seconds, cell.choices).steps);
  } catch (const DataError&) {
    return {};  // run_grid() names the task whose data are missing
  }
}

/// The last line that is not empty: a failed program's error.
std::string last_line(const fs::path& log) {
  std::ifstream in(log);
  std::string last;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

/// A grid while it runs.
class Grid {
 public:
  Grid(std::vector<GridCell>& cells, const GridOptions& options)
      : cells_(cells), options_(options) {}

  int go() {
    watch_signals();
    sort_out();
    const int threads = std::max(1, options_.threads / options_.jobs);
    progress_.line(fmt::format(
        "{} cells: {} finished before, {} without data, {} to run, {} at a time with {} each; each "
        "writes to log.txt in its folder below {}",
        cells_.size(), finished_, without_data_.size(), waiting_.size(), options_.jobs,
        counted(threads, "thread"), options_.out.string()));
    to_run_ = waiting_.size();
    while (!running_.empty() || (!waiting_.empty() && signal_received() == 0)) {
      pass_signal_on();
      take_up(threads);
      collect();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return say_end();
  }

 private:
  struct Waiting {
    const GridCell* cell;
    std::size_t number;  // of the cells to run, from 1
  };
  struct Running : Waiting {
    Clock::time_point started;
    std::unique_ptr<ChildProcess> process;
  };

  /// Finds out which cells are finished and which have no data.
  void sort_out() {
    std::map<fs::path, Json> data;        // by root and task
    std::map<fs::path, std::string> why;  // they are not there
    for (GridCell& cell : cells_) {
      const fs::path place = cell.config.data_root / cell.config.task->name;
      if (!data.contains(place) && !why.contains(place)) {
        try {
          data[place] = facts(open_splits(cell.config, progress_));
        } catch (const Error& error) {
          why[place] = error.what();
        }
      }
      if (data.contains(place)) cell.data = data[place];
      if (is_finished(cell)) {
        ++finished_;
      } else if (data.contains(place)) {
        waiting_.push_back({&cell, waiting_.size() + 1});
      } else {
        without_data_.push_back(cell.folder);
        const std::string reason = std::exchange(why[place], "");  // said once
        if (reason.empty()) continue;
        progress_.line(fmt::format("no cell of {} can run: {}", cell.config.task->name, reason));
      }
    }
  }

  /// Returns whether the cell's folder has its result: of its data or, where these are not there,
  /// of those that the run names.
  [[nodiscard]] bool is_finished(const GridCell& cell) const {
    const fs::path folder = options_.out / cell.folder;
    Json wanted = wanted_config(cell);
    if (cell.data.is_null()) wanted["data"] = data::member(run_in(folder), "data");
    return finished_result(folder, wanted).has_value();
  }

  /// Starts cells while there is room for one.
  void take_up(int threads) {
    while (!waiting_.empty() && running_.size() < static_cast<std::size_t>(options_.jobs) &&
           signal_received() == 0) {
      const Waiting next = waiting_.front();
      waiting_.pop_front();
      try {
        start(next, threads);
      } catch (const Error& problem) {
        say_failed(next, problem.what());
      }
    }
  }

  /// The recipe as an argument. A file's is what it was when the grid read it, in a copy next to
  /// the run.
  static std::string recipe_of(const GridCell& cell, const fs::path& folder) {
    if (cell.recipe.file.empty()) return cell.choices.recipe;
    const fs::path copy = folder / "recipe" / cell.recipe.file;
    data::make_folder(copy.parent_path());
    data::write_file(copy, cell.recipe.text);
    return copy.string();
  }

  void start(const Waiting& waiting, int threads) {
    const GridCell& cell = *waiting.cell;
    const fs::path folder = options_.out / cell.folder;
    data::make_folder(folder);
    const Choices& c = cell.choices;
    const char* const command =
        cell.config.model.objective == nn::Objective::predict_masked ? "pretrain" : "train";
    std::vector<std::string> arguments = {command,       "--resume",
                                          "--task",      c.task,
                                          "--attention", c.attention,
                                          "--recipe",    recipe_of(cell, folder),
                                          "--seed",      std::to_string(c.seed),
                                          "--device",    name(c.device),
                                          "--data",      c.data_root.string(),
                                          "--threads",   std::to_string(threads),
                                          "--out",       folder.string()};
    for (const Setting& choice : c.settings) {
      arguments.insert(arguments.end(), {"--set", choice.key + "=" + choice.value});
    }
    running_.push_back(
        {waiting, Clock::now(), std::make_unique<ChildProcess>(arguments, folder / "log.txt")});
    say(waiting, "started");
  }

  void collect() {
    std::erase_if(running_, [this](const Running& run) {
      const std::optional<int> code = run.process->exit_code();
      if (code) say_finished(run, *code);
      return code.has_value();
    });
  }

  void say_finished(const Running& run, int code) {
    const fs::path folder = options_.out / run.cell->folder;
    if (code == 0) {
      say(run, outcome(run, folder / "result.json"));
      pack();
    } else if (signal_received() != 0 && code == 128 + signal_received()) {
      say(run, "stopped, its state is kept");
    } else {
      say_failed(run, fmt::format("exit code {}: {}", code, last_line(folder / "log.txt")));
    }
  }

  /// A disk that is full then ends no cell that runs.
  void pack() {
    if (options_.pack.empty()) return;
    try {
      pack_results(options_.out, options_.pack);
    } catch (const Error& problem) {
      progress_.line(fmt::format("{} is not current: {}", options_.pack.string(), problem.what()));
    }
  }

  /// Returns a text on a cell's accuracy, its time and the memory that it needed.
  static std::string outcome(const Running& run, const fs::path& file) {
    const bool masked = run.cell->config.model.objective == nn::Objective::predict_masked;
    const Json result = masked ? read_pretraining_result(file) : read_result(file);
    const auto figure = [&](const char* key) { return result.at(key).get<double>(); };
    const double seconds = std::chrono::duration<double>(Clock::now() - run.started).count();
    return fmt::format(
        "{}, {}, {:.0f} MB",
        masked ? fmt::format("masked loss {:.4f}, perplexity {:.3f}", figure("masked_loss"),
                             std::exp(figure("masked_loss")))
               : fmt::format("dev {:.2f} %, test {:.2f} %", 100 * figure("dev_accuracy"),
                             100 * figure("test_accuracy")),
        duration_text(seconds), 1e-6 * figure("peak_bytes"));
  }

  void say(const Waiting& cell, const std::string& text) {
    progress_.line(fmt::format("[{}/{}] {}: {}", cell.number, to_run_, cell.cell->folder, text));
  }

  void say_failed(const Waiting& cell, const std::string& why) {
    failed_.push_back(cell.cell->folder);
    say(cell, "FAILED: " + why);
  }

  void pass_signal_on() {
    if (signal_received() == 0 || passed_on_) return;
    passed_on_ = true;
    progress_.line("stopping " + counted(std::ssize(running_), "running cell"));
    for (const Running& run : running_) run.process->signal(signal_received());
  }

  int say_end() {
    const auto say = [&](const std::vector<std::string>& folders, const char* what) {
      if (folders.empty()) return;
      progress_.line(fmt::format("{} of {} cells {}: {}", folders.size(), cells_.size(), what,
                                 listed(folders)));
    };
    say(without_data_, "have no data");
    say(failed_, "failed");
    if (signal_received() != 0) {
      progress_.line("stopped by a signal: the same command continues it");
      return 128 + signal_received();
    }
    return failed_.empty() && without_data_.empty() ? 0 : 1;
  }

  std::vector<GridCell>& cells_;
  const GridOptions& options_;
  Progress progress_;
  std::deque<Waiting> waiting_;
  std::vector<Running> running_;
  std::vector<std::string> without_data_, failed_;
  std::size_t finished_ = 0, to_run_ = 0;
  bool passed_on_ = false;
};

}  // namespace

std::vector<GridCell> grid_cells(const GridOptions& options) {
  refuse_equal("--lr", options.lrs);
  refuse_equal("--batch", options.batches);
  refuse_idle_features(options);
  check_seeds(options.base.seed, options.seeds);
  std::vector<GridCell> cells;
  std::set<std::string> folders;
  for (const std::string& task : options.tasks) {
    for (const std::string& attention : options.attentions) {
      for (const std::string& lr : axis(options.lrs)) {
        for (const std::string& batch : axis(options.batches)) {
          std::string steps;  // where --budget chooses them, those of the first seed
          if (!options.budget.empty()) {
            steps = budgeted_steps(options, [&](const std::string& found) {
              return make_cell(options, task, attention, lr, batch, options.base.seed, found);
            });
          }
          for (std::int64_t i = 0; i < options.seeds; ++i) {
            const std::uint64_t seed = options.base.seed + static_cast<std::uint64_t>(i);
            cells.push_back(make_cell(options, task, attention, lr, batch, seed, steps));
            if (!folders.insert(cells.back().folder).second) {
              throw UsageError(fmt::format("lra: {} is asked for twice", cells.back().folder));
            }
          }
        }
      }
    }
  }
  return cells;
}

Json wanted_config(const GridCell& cell) {
  Json config = to_json(cell.config);
  if (!cell.data.is_null()) config["data"] = cell.data;
  return config;
}

void place_cells(std::vector<GridCell>& cells, const fs::path& out) {
  std::map<fs::path, Json> data;  // by root and task
  for (GridCell& cell : cells) {
    const fs::path place = cell.config.data_root / cell.config.task->name;
    if (!data.contains(place)) data[place] = data_of(cell.config);
    cell.data = data[place];
    const std::string folder = cell.folder;
    for (int n = 1;; ++n) {
      cell.folder = numbered(folder, n);
      const Json there = run_in(out / cell.folder);
      if (there.is_null()) break;
      const std::string found = what_differs(there, cell);
      if (found.empty()) break;
      Progress().line(fmt::format("{} holds another run ({}): this cell's is {}",
                                  (out / cell.folder).string(), found, numbered(folder, n + 1)));
    }
  }
}

int run_grid(std::vector<GridCell>& cells, const GridOptions& options) {
  return Grid(cells, options).go();
}

}  // namespace skytape::train
