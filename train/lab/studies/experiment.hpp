// Results of an experiment: printed as they come, and kept in a folder with the metadata that
// numbers depend on.
//
//   NAME.json   machine, revision, date, facts, all tables, details
//   NAME.txt    facts and tables for readers
//
// train/report/draw.py draws the pictures of a NAME.json.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "data/files/json.hpp"
#include "train/formats/table.hpp"

namespace skytape::train {

/// Mean over trials and its standard error (0 for a single trial).
struct Estimate {
  double mean = 0, error = 0;
};
[[nodiscard]] Estimate estimate(const std::vector<double>& trials);

class Experiment {
 public:
  /// An empty folder name: only print. The folder is made at once, so that hours of work do not
  /// end in an error.
  Experiment(std::string name, std::filesystem::path folder);
  /// A folder that it made and nothing was written to goes again.
  ~Experiment();
  Experiment(const Experiment&) = delete;
  Experiment& operator=(const Experiment&) = delete;

  /// An entry of the experiment's metadata: "seed", "steps", …
  void note(const std::string& key, data::Json value) { facts_[key] = std::move(value); }
  void add(Table table);
  /// Adds a detail that programs may want and readers do not: for the JSON file alone.
  void detail(const std::string& key, data::Json value) { details_[key] = std::move(value); }

  /// Adds all that a study of one source says: its results as JSON, and its tables.
  template <class Results> void add_results(const Results& results, const std::string& source) {
    detail("source", source);
    detail("results", to_json(results));
    for (Table& table : tables(results)) add(std::move(table));
  }

  /// Writes the files, and says on stderr what draws their pictures. Error when one cannot be
  /// written.
  void save(bool has_pictures = true) const;

 private:
  std::string name_;
  std::filesystem::path folder_;
  std::vector<std::filesystem::path> made_;  // folders that were not there, the deepest first
  data::Json facts_ = data::Json::object(), details_ = data::Json::object();
  std::vector<Table> tables_;
};

}  // namespace skytape::train
