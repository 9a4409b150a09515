#include "train/lab/lra/lra_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "attention/registry.hpp"
#include "data/files/json.hpp"
#include "data/task.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"
#include "train/config/identity.hpp"
#include "train/config/recipes.hpp"
#include "train/process/progress.hpp"
#include "train/run/result.hpp"
#include "train/run/run_folder.hpp"
#include "train/run/time_to_accuracy.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;
using data::Json;

/// The papers' columns, over which averages are taken.
constexpr const char* kPaperTasks[] = {"listops", "text", "retrieval", "pathfinder", "image"};

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Returns the sample's standard deviation; needs at least two values.
double deviation_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

/// A figure of each finished run.
std::vector<double> figures_of(const TableCell& cell, double Score::*figure) {
  std::vector<double> figures;
  for (const auto& [seed, score] : cell.runs) {
    if (score) figures.push_back(*score.*figure);
  }
  return figures;
}

/// Test accuracies of the finished runs.
std::vector<double> tests_of(const TableCell& cell) { return figures_of(cell, &Score::test); }

/// Mean seconds until the papers' best was passed; nothing unless every finished run passed it.
std::optional<double> seconds_to_papers(const TableCell& cell) {
  std::vector<double> seconds;
  for (const auto& [seed, score] : cell.runs) {
    if (!score) continue;
    if (!score->paper_seconds) return {};
    seconds.push_back(*score->paper_seconds);
  }
  if (seconds.empty()) return {};
  return mean_of(seconds);
}

bool contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// ---- putting the table together ----------------------------------------------------------------

class TableMaker {
 public:
  TableMaker(const std::vector<Json>& wanted, FoundRuns found)
      : wanted_(wanted), found_(std::move(found)) {
    table_.skipped = std::move(found_.skipped);
  }

  AccuracyTable make() {
    name_rows();
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      const Json& config = wanted_[i];
      const Json& set =
          data::member(config, "data", "name");  // as results of these data are called
      const auto task = (set.is_string() ? set : config.at("task")).get<std::string>();
      add_task(task);
      TableCell& cell = row(config.at("attention").get<std::string>(), names_[i]).cells[task];
      cell.runs.try_emplace(config.at("seed").get<std::uint64_t>());
      cell.added = added_to_papers(config);
      cell.data = data::member(config, "data");
    }
    for (const data::TaskInfo& task : data::tasks()) {  // columns in the tasks' order
      for (const std::string& name :
           {std::string(task.name), fmt::format("{}{}", task.name, data::kLimited)}) {
        for (const FinishedRun& run : found_.runs) {
          if (run.task == name) add_task(run.task);
        }
      }
    }
    for (const FinishedRun& run : found_.runs) add(run);
    for (const std::string& task : table_.tasks) add_baseline(task);
    order_rows();
    add_notes();
    return std::move(table_);
  }

 private:
  /// A name for every run, wanted or found. Of two that compute the same, one by a value that was
  /// set to what the recipe says anyway, the wanted one says the name.
  void name_rows() {
    std::vector<Json> configs = wanted_;
    for (const FinishedRun& run : found_.runs) configs.push_back(run.config);
    names_ = distinct_names(configs);
    for (std::size_t i = 0; i < found_.runs.size(); ++i) {
      found_.runs[i].settings = names_[wanted_.size() + i];
    }
  }

  void add_task(const std::string& task) {
    if (!contains(table_.tasks, task)) table_.tasks.push_back(task);
  }

  void add_baseline(const std::string& task) {
    double share = trivial_baseline(task).accuracy;
    for (const FinishedRun& run : found_.runs) {
      if (run.task == task) share = std::max(share, run.trivial);
    }
    if (share >= 0) table_.trivial[task] = share;
  }

  TableRow& row(const std::string& attention, const std::string& source) {
    for (TableRow& r : table_.rows) {
      if (r.attention == attention && r.source == source) return r;
    }
    return table_.rows.emplace_back(TableRow{attention, source, {}, nullptr});
  }

  void add(const FinishedRun& run) {
    // Runs of one cell share everything but the seed, the data above all.
    TableCell& cell = row(run.attention, run.settings).cells[run.task];
    std::vector<const FinishedRun*>& members = members_[{run.task, run.attention, run.settings}];
    const auto skip = [&](const std::string& why) {
      table_.skipped.push_back(fmt::format("{}: {}", run.folder, why));
    };
    const Json& data = data::member(run.config, "data");
    if (!cell.data.is_null() &&
        !differences(Json{{"data", cell.data}}, Json{{"data", data}}).empty()) {
      return skip(members.empty() ? "other data than there are now"
                                  : "other data than " + members.front()->folder);
    }
    for (const FinishedRun* other : members) {
      if (other->seed == run.seed) return skip("the same run as " + other->folder);
    }
    members.push_back(&run);
    Score score{100 * run.dev,
                100 * run.test,
                run.train_seconds,
                run.step_seconds,
                static_cast<double>(run.peak_bytes),
                {}};
    if (run.times.paper) score.paper_seconds = run.times.paper->seconds;
    cell.runs[run.seed] = score;
    cell.added = added_to_papers(run.config);
    cell.data = data;
  }

  /// Methods in the registry's order; unknown ones, of an older program, last. Below each the
  /// papers that have a figure for one of the tasks.
  void order_rows() {
    std::vector<std::string> methods;
    for (const attention::Spec& spec : attention::registry()) methods.push_back(spec.name);
    for (const TableRow& r : table_.rows) {
      if (!contains(methods, r.attention)) methods.push_back(r.attention);
    }
    std::vector<TableRow> ordered;
    for (const std::string& method : methods) {
      const std::size_t before = ordered.size();
      for (TableRow& r : table_.rows) {
        if (r.attention == method) ordered.push_back(std::move(r));
      }
      if (ordered.size() == before) continue;
      for (const PaperRow& paper : paper_results()) {
        const auto has = [&](const std::string& task) {
          return paper_accuracy(paper, task).has_value();
        };
        if (paper.method == method && std::ranges::any_of(table_.tasks, has)) {
          ordered.push_back({method, std::string(paper.paper), {}, &paper});
        }
      }
    }
    table_.rows = std::move(ordered);
  }

  void add_notes() {
    const auto note = [&](const char* task, const char* text) {
      const bool there = std::any_of(found_.runs.begin(), found_.runs.end(),
                                     [&](const FinishedRun& run) { return run.task == task; });
      if (there) table_.notes.emplace_back(text);
    };
    note("listops",
         "listops: the papers' numbers are on input without `]` (`drop_close=1`); recipe `skytape` "
         "keeps it.");
    const bool arena = std::any_of(table_.rows.begin(), table_.rows.end(), [](const TableRow& r) {
      return r.paper != nullptr && r.paper->paper == "Long Range Arena paper";
    });
    if (arena) {
      table_.notes.emplace_back(
          "Long Range Arena paper: larger models with separate schedules for each task (recipe "
          "`lra`); its Retrieval trains 5,000 steps and is known to be low.");
    }
    note("text",
         "text: the papers select the weights on the test set (`text.dev=test`); recipe `skytape` "
         "holds out a tenth of train.");
    note("pathfinder",
         "pathfinder: the papers hide black pixels from attention (`mask=nonzero`); recipe "
         "`skytape` does not.");
    note("retrieval-substitute",
         "retrieval-substitute: other papers and pairs than the official set; no number of the "
         "papers' Retrieval column is comparable with it.");
    for (const std::string& task : table_.tasks) {
      if (!task.ends_with(data::kLimited)) continue;
      table_.notes.push_back(fmt::format(
          "{}: another number of examples than the benchmark's, by `--limit`; no number "
          "of the papers is comparable with it.",
          task));
    }
    std::map<std::string, std::string> parts;  // by task
    for (const FinishedRun& run : found_.runs) {
      const Json& test = data::member(run.config.at("data"), "test");
      const auto all = test.is_object() ? test.value("examples", std::int64_t{0}) : 0;
      if (run.test_examples == 0 || run.test_examples >= all) continue;
      parts[run.task] =
          fmt::format("{}: with `final_examples`, test accuracies of the first {} of {} examples.",
                      run.task, grouped(run.test_examples), grouped(all));
    }
    for (const auto& [task, text] : parts) table_.notes.push_back(text);
    std::vector<std::string> generated;
    for (const FinishedRun& run : found_.runs) {
      const bool is_generated = data::member(run.config, "data_provenance", "how") == "generated";
      if (is_generated && !contains(generated, run.task)) generated.push_back(run.task);
    }
    if (!generated.empty()) {
      table_.notes.push_back(
          fmt::format("{}: generated by the official algorithm, not the papers' files (same "
                      "distribution, other "
                      "examples).",
                      listed(generated)));
    }
  }

  const std::vector<Json>& wanted_;
  FoundRuns found_;
  std::vector<std::string> names_;  // of the wanted, then of the found runs
  AccuracyTable table_;
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<const FinishedRun*>>
      members_;  // of a cell: task, attention, settings
};

// ---- text --------------------------------------------------------------------------------------

/// In percent; nothing where it is not known.
std::optional<double> baseline_of(const AccuracyTable& table, const std::string& task) {
  const auto known = table.trivial.find(task);
  if (known == table.trivial.end()) return {};
  return 100 * known->second;
}

bool at_or_below(const std::optional<double>& baseline, double percent) {
  return baseline && percent <= *baseline;
}

std::string to_text(const TableCell& cell, const std::optional<double>& baseline) {
  const std::vector<double> tests = tests_of(cell);
  if (tests.empty()) return "–";
  const double mean = mean_of(tests);
  std::string text = fmt::format("{:.2f}", mean);
  if (tests.size() > 1) text += fmt::format(" ± {:.2f}", deviation_of(tests));
  if (at_or_below(baseline, mean)) text += " ↓";
  if (cell.runs.size() == 1) return text;
  const auto [least, most] = std::minmax_element(tests.begin(), tests.end());
  return text + fmt::format(
                    " ({:.2f}–{:.2f}, {}{} seeds)", *least, *most, tests.size(),
                    cell.runs.size() > tests.size() ? fmt::format(" of {}", cell.runs.size()) : "");
}

/// Returns the additions of a row's tasks: "–" for none, one text where all have the same, else
/// task by task.
std::string added_text(const TableRow& row) {
  std::vector<std::string> texts, parts;
  for (const auto& [task, cell] : row.cells) {
    if (!contains(texts, cell.added)) texts.push_back(cell.added);
    if (!cell.added.empty()) parts.push_back(fmt::format("{}: {}", task, cell.added));
  }
  if (parts.empty()) return "–";
  return texts.size() == 1 ? texts[0] : listed(parts, "; ");
}

/// Mean over the papers' five tasks; nothing unless all are there.
std::optional<double> average(const TableRow& row) {
  if (row.paper) return row.paper->average;
  double sum = 0;
  for (const char* task : kPaperTasks) {
    const auto cell = row.cells.find(task);
    const auto tests = cell == row.cells.end() ? std::vector<double>() : tests_of(cell->second);
    if (tests.empty()) return {};
    sum += mean_of(tests);
  }
  return sum / static_cast<double>(std::size(kPaperTasks));
}

/// A figure, or `none`.
std::string shown(const std::optional<double>& value, const char* none,
                  const char* format = "{:.2f}") {
  return value ? fmt::format(fmt::runtime(format), *value) : none;
}

std::string quoted(const std::string& text) {
  return text.find(',') == text.npos ? text : "\"" + text + "\"";
}

}  // namespace

AccuracyTable make_table(const std::vector<Json>& wanted, FoundRuns found) {
  return TableMaker(wanted, std::move(found)).make();
}

Table to_table(const AccuracyTable& table) {
  const bool averages = std::all_of(std::begin(kPaperTasks), std::end(kPaperTasks),
                                    [&](const char* task) { return contains(table.tasks, task); });
  Table out{"accuracy", "Test accuracy in percent.", {{"attention"}, {"source"}}, {}, {}};
  std::vector<Cell> baselines = {"–", "trivial baseline"};
  for (const std::string& task : table.tasks) {
    out.columns.push_back({task});
    baselines.emplace_back(shown(baseline_of(table, task), "–", "{:.1f}"));
  }
  if (averages) {
    out.columns.push_back({"average"});
    baselines.emplace_back("–");
  }
  out.columns.push_back({"added"});
  baselines.emplace_back("–");
  out.add(std::move(baselines));
  for (const TableRow& row : table.rows) {
    std::vector<Cell> cells = {row.attention, row.source};
    for (const std::string& task : table.tasks) {
      if (row.paper) {
        const std::optional<double> value = paper_accuracy(*row.paper, task);
        cells.emplace_back(shown(value, "–") +
                           (value && at_or_below(baseline_of(table, task), *value) ? " ↓" : ""));
      } else {
        const auto cell = row.cells.find(task);
        cells.emplace_back(
            cell == row.cells.end() ? "–" : to_text(cell->second, baseline_of(table, task)));
      }
    }
    if (averages) cells.emplace_back(shown(average(row), "–"));
    cells.emplace_back(added_text(row));
    out.add(std::move(cells));
  }
  out.notes.emplace_back(
      "Over several seeds: mean ± standard deviation (lowest–highest). –: no finished run. ↓: "
      "not above the trivial baseline. Added: to the papers' model, apart from the attention "
      "method.");
  out.notes.insert(out.notes.end(), table.notes.begin(), table.notes.end());
  return out;
}

Table method_table(const AccuracyTable& table) {
  Table out{"methods",
            "Methods: test accuracy in percent, and what training cost.",
            {{"attention"}, {"settings"}},
            {},
            {}};
  for (const std::string& task : table.tasks) out.columns.push_back({task, "{:.2f}"});
  out.columns.insert(out.columns.end(), {{"average", "{:.2f}"},
                                         {"ms a step", "{:.1f}"},
                                         {"peak MB", "{:.0f}"},
                                         {"above the papers' best"}});
  for (const TableRow& row : table.rows) {
    std::vector<double> steps, peaks, until;
    std::size_t comparable = 0;
    std::vector<Cell> cells = {row.attention, row.source};
    for (const std::string& task : table.tasks) {
      const auto found = row.cells.find(task);
      const auto tests = found == row.cells.end() ? std::vector<double>() : tests_of(found->second);
      cells.push_back(tests.empty() ? Cell() : Cell(mean_of(tests)));
      if (tests.empty()) continue;
      steps.push_back(1e3 * mean_of(figures_of(found->second, &Score::step_seconds)));
      peaks.push_back(1e-6 * mean_of(figures_of(found->second, &Score::peak_bytes)));
      comparable += best_paper_accuracy(task).has_value();
      if (const auto seconds = seconds_to_papers(found->second)) until.push_back(*seconds);
    }
    if (steps.empty()) continue;
    const std::optional<double> mean = average(row);
    cells.push_back(mean ? Cell(*mean) : Cell());
    cells.emplace_back(mean_of(steps));
    cells.emplace_back(*std::max_element(peaks.begin(), peaks.end()));
    const double all = std::accumulate(until.begin(), until.end(), 0.0);
    cells.emplace_back(comparable == 0 ? std::string("–")
                       : until.empty() ? fmt::format("0 of {}", comparable)
                                       : fmt::format("{} of {}, {}", until.size(), comparable,
                                                     duration_text(all)));
    out.add(std::move(cells));
  }
  out.notes = {
      "Means over seeds. ms a step: mean over the tasks of the row; peak MB: of the task that "
      "needs most. Above the papers' best: on how many tasks every seed's dev accuracy came above "
      "it, and the sum of the seconds until then."};
  return out;
}

std::vector<ArenaPoint> arena_points(const AccuracyTable& table, const std::string& task) {
  std::vector<ArenaPoint> points;
  for (const TableRow& row : table.rows) {
    const auto found = row.cells.find(task);
    if (found == row.cells.end()) continue;
    const std::vector<double> tests = tests_of(found->second);
    if (tests.empty()) continue;
    const auto same = std::ranges::count_if(table.rows, [&](const TableRow& other) {
      return other.attention == row.attention && other.cells.contains(task);
    });
    const auto [low, high] = std::ranges::minmax(tests);
    points.push_back({same == 1 ? row.attention : row.attention + ", " + row.source,
                      mean_of(figures_of(found->second, &Score::seconds)), mean_of(tests), low,
                      high});
  }
  return points;
}

Table arena_table(const AccuracyTable& table) {
  Table out{"arena",
            "Test accuracy in percent, task by task, and what was added to the papers' model.",
            {{"task"},
             {"attention"},
             {"settings"},
             {"trivial"},
             {"papers' best"},
             {"ours"},
             {"added"},
             {"training"}},
            {},
            {}};
  for (const std::string& task : table.tasks) {
    for (const TableRow& row : table.rows) {
      const auto found = row.cells.find(task);
      if (found == row.cells.end()) continue;
      const TableCell& cell = found->second;
      double seconds = 0, finished = 0;
      for (const auto& [seed, score] : cell.runs) {
        if (!score) continue;
        seconds += score->seconds;
        ++finished;
      }
      const std::optional<double> baseline = baseline_of(table, task);
      out.add({task, row.attention, row.source, shown(baseline, "–", "{:.1f}"),
               shown(best_paper_accuracy(task), "–"), to_text(cell, baseline),
               cell.added.empty() ? "–" : cell.added,
               finished > 0 ? duration_text(seconds / finished) : "–"});
    }
  }
  return out;
}

std::string to_text(const AccuracyTable& table) {
  std::string text = to_text(to_table(table));
  if (!table.skipped.empty()) text += "\nNot in the table:\n\n";
  for (const std::string& line : table.skipped) text += "- " + line + "\n";
  return text;
}

std::string to_csv(const AccuracyTable& table) {
  std::string text =
      "attention,source,task,seed,test,dev,trivial_floor,at_or_below_floor,added,seconds,step_ms,"
      "peak_mb,papers_best_seconds\n";
  for (const TableRow& row : table.rows) {
    for (const std::string& task : table.tasks) {
      const std::optional<double> baseline = baseline_of(table, task);
      const auto line = [&](const auto& seed, std::optional<double> test, std::optional<double> dev,
                            const std::string& added, const std::string& cost) {
        std::string below;
        if (test && baseline) below = at_or_below(baseline, *test) ? "1" : "0";
        text += fmt::format("{},{},{},{},{},{},{},{},{},{}\n", row.attention, quoted(row.source),
                            task, seed, shown(test, "", "{:.4f}"), shown(dev, "", "{:.4f}"),
                            shown(baseline, "", "{:.1f}"), below, quoted(added), cost);
      };
      constexpr const char* kNoCost = ",,,";
      if (row.paper) {
        const std::optional<double> test = paper_accuracy(*row.paper, task);
        if (test) line("", test, {}, "", kNoCost);
      } else if (const auto cell = row.cells.find(task); cell != row.cells.end()) {
        const std::string& added = cell->second.added;
        for (const auto& [seed, score] : cell->second.runs) {
          if (!score) {
            line(seed, {}, {}, added, kNoCost);
            continue;
          }
          line(seed, score->test, score->dev, added,
               fmt::format("{:.1f},{:.3f},{:.1f},{}", score->seconds, 1e3 * score->step_seconds,
                           1e-6 * score->peak_bytes, shown(score->paper_seconds, "", "{:.1f}")));
        }
      }
    }
  }
  return text;
}

}  // namespace skytape::train
