// Results of an experiment: printed as they come, and kept in a folder with the facts that numbers
// depend on.
//
//   NAME.json   machine, revision, date, command options, all tables
//   NAME.md     the same for readers
//   figures     as plot.hpp writes them
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/plot.hpp"
#include "train/table.hpp"

namespace skytape::train {

class Experiment {
 public:
  /// An empty folder name: only print. The folder is made at once, so that hours of work do not
  /// end in an error.
  Experiment(std::string name, std::filesystem::path folder);

  /// A fact of the experiment: "seed", "steps", …
  void note(const std::string& key, nlohmann::json value) { facts_[key] = std::move(value); }
  void add(Table table);
  void add(Figure figure) { figures_.push_back(std::move(figure)); }

  /// Writes the files. Error when one cannot be written.
  void save() const;

 private:
  std::string name_;
  std::filesystem::path folder_;
  nlohmann::json facts_ = nlohmann::json::object();
  std::vector<Table> tables_;
  std::vector<Figure> figures_;
};

}  // namespace skytape::train
