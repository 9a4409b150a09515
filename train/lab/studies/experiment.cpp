#include "train/lab/studies/experiment.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "data/files/json.hpp"
#include "data/files/output.hpp"
#include "tensor/core/error.hpp"
#include "train/process/progress.hpp"
#include "train/process/threads.hpp"
#include "train/process/version.hpp"

namespace skytape::train {

namespace fs = std::filesystem;

Estimate estimate(const std::vector<double>& trials) {
  ENSURE(!trials.empty(), "estimate: no trial");
  const auto count = static_cast<double>(trials.size());
  const double mean = std::accumulate(trials.begin(), trials.end(), 0.0) / count;
  double squares = 0;
  for (const double x : trials) squares += (x - mean) * (x - mean);
  return {mean, count > 1 ? std::sqrt(squares / (count - 1) / count) : 0};
}

Experiment::Experiment(std::string name, fs::path folder)
    : name_(std::move(name)), folder_(std::move(folder)) {
  if (folder_.empty()) return;
  for (fs::path missing = folder_; !missing.empty() && !fs::exists(missing);
       missing = missing.parent_path()) {
    made_.push_back(missing);
  }
  data::make_folder(folder_);
}

Experiment::~Experiment() {
  std::error_code left;  // a folder with files stays
  for (const fs::path& folder : made_) fs::remove(folder, left);
}

void Experiment::add(Table table) {
  fmt::print("{}\n", to_text(table));
  std::fflush(stdout);
  tables_.push_back(std::move(table));
}

void Experiment::save(bool has_pictures) const {
  if (folder_.empty()) return;
  const data::Json machine = machine_facts();
  const std::string date = utc_now("%Y-%m-%d");
  data::Json j = {{"experiment", name_},    {"date", date},    {"machine", machine},
                  {"revision", revision()}, {"facts", facts_}, {"tables", nullptr}};
  j["tables"] = data::Json::object();
  std::string text = fmt::format("skytape {}\n\n{}, {}, {}; revision {}; {}.\n", name_,
                                 machine.at("cpu").get<std::string>(),
                                 counted(machine.at("cores").get<int>(), "core"),
                                 counted(thread_count(), "thread"), revision(), date);
  for (const auto& [key, value] : facts_.items()) {
    text += fmt::format("{} {}. ", key,
                        value.is_string() ? value.get<std::string>() : data::json_text(value));
  }
  if (!facts_.empty()) text += "\n";
  for (const Table& table : tables_) {
    j["tables"][table.name] = to_json(table);
    text += "\n" + to_text(table);
  }
  if (!details_.empty()) j["details"] = details_;
  data::write_file(folder_ / (name_ + ".json"), data::json_text(j, {.indent = 1}) + "\n");
  data::write_file(folder_ / (name_ + ".txt"), text);
  if (!has_pictures) return;
  fmt::print(stderr, "wrote {}.json; its pictures: train/report/draw.py {}\n",
             (folder_ / name_).string(), folder_.string());
}

}  // namespace skytape::train
