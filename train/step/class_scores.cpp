#include "train/step/class_scores.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "data/files/json.hpp"
#include "data/files/printable.hpp"
#include "data/files/source.hpp"

namespace skytape::train {
namespace {

using data::Json;

std::size_t classes_of(std::span<const std::int64_t> confusion) {
  return static_cast<std::size_t>(std::llround(std::sqrt(static_cast<double>(confusion.size()))));
}

double share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

constexpr std::size_t kWidth = 14;  // terminal columns of a name, at least

std::string blanks(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, data::columns_of(text)), ' ');
}

/// The names as a table shows them, whole and equally wide.
std::vector<std::string> row_names(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  std::size_t width = kWidth;
  for (const std::string& name : names) {
    shown.push_back(data::printable_whole(name));
    width = std::max(width, data::columns_of(shown.back()));
  }
  for (std::string& name : shown) name += blanks(name, width);
  return shown;
}

/// The same to the right, over columns of numbers: cut as far as they can still be told apart.
std::vector<std::string> column_names(const std::vector<std::string>& names) {
  for (std::size_t width = kWidth;; ++width) {
    std::vector<std::string> shown;
    bool whole = true;
    for (const std::string& name : names) {
      shown.push_back(data::printable(name, width));
      whole = whole && shown.back() == data::printable_whole(name);
    }
    if (!whole && std::set(shown.begin(), shown.end()).size() < names.size()) continue;
    for (std::string& name : shown) name.insert(0, blanks(name, width));
    return shown;
  }
}

}  // namespace

std::vector<ClassScore> class_scores(std::span<const std::int64_t> confusion) {
  const std::size_t classes = classes_of(confusion);
  std::vector<ClassScore> scores(classes);
  std::vector<std::int64_t> answered(classes);
  for (std::size_t label = 0; label < classes; ++label) {
    for (std::size_t answer = 0; answer < classes; ++answer) {
      scores[label].examples += confusion[label * classes + answer];
      answered[answer] += confusion[label * classes + answer];
    }
  }
  for (std::size_t c = 0; c < classes; ++c) {
    ClassScore& score = scores[c];
    const std::int64_t right = confusion[c * classes + c];
    score.precision = share(right, answered[c]);
    score.recall = share(right, score.examples);
    score.f1 = share(2 * right, answered[c] + score.examples);
  }
  return scores;
}

ClassScore macro_average(const std::vector<ClassScore>& scores) {
  ClassScore mean;
  double classes = 0;
  for (const ClassScore& score : scores) {
    if (score.examples == 0) continue;
    mean.examples += score.examples;
    mean.precision += score.precision;
    mean.recall += score.recall;
    mean.f1 += score.f1;
    ++classes;
  }
  for (double* sum : {&mean.precision, &mean.recall, &mean.f1}) *sum /= std::max(1.0, classes);
  return mean;
}

double majority_share(std::span<const std::int64_t> confusion) {
  std::int64_t largest = 0, all = 0;
  for (const ClassScore& score : class_scores(confusion)) {
    largest = std::max(largest, score.examples);
    all += score.examples;
  }
  return share(largest, all);
}

Json scores_json(std::span<const std::int64_t> confusion, const std::vector<std::string>& names) {
  const std::vector<ClassScore> scores = class_scores(confusion);
  const ClassScore macro = macro_average(scores);
  Json classes = Json::array(), matrix = Json::array();
  for (std::size_t c = 0; c < scores.size(); ++c) {
    const ClassScore& score = scores[c];
    classes.push_back({{"name", names.at(c)},
                       {"examples", score.examples},
                       {"precision", score.precision},
                       {"recall", score.recall},
                       {"f1", score.f1}});
    const auto row = confusion.subspan(c * scores.size(), scores.size());
    matrix.push_back(Json(std::vector<std::int64_t>(row.begin(), row.end())));
  }
  return {{"majority_share", majority_share(confusion)},
          {"macro_precision", macro.precision},
          {"macro_recall", macro.recall},
          {"macro_f1", macro.f1},
          {"classes", classes},
          {"confusion", matrix}};
}

std::string scores_table(std::span<const std::int64_t> confusion,
                         const std::vector<std::string>& names, bool matrix) {
  const std::vector<ClassScore> scores = class_scores(confusion);
  std::vector<std::string> titles = {"class", "macro average"};
  titles.insert(titles.end(), names.begin(), names.begin() + std::ssize(scores));
  titles = row_names(titles);
  const std::span rows(titles.begin() + 2, titles.end());
  std::string text = fmt::format("{} {:>9} {:>9} {:>9} {:>9}\n", titles[0], "examples", "precision",
                                 "recall", "f1");
  const auto line = [&](const std::string& title, const ClassScore& score) {
    text += fmt::format("{} {:>9} {:>9.4f} {:>9.4f} {:>9.4f}\n", title, score.examples,
                        score.precision, score.recall, score.f1);
  };
  for (std::size_t c = 0; c < scores.size(); ++c) line(rows[c], scores[c]);
  line(titles[1], macro_average(scores));
  if (!matrix) return text;
  const std::vector<std::string> columns = column_names(names);
  text +=
      "\nrows: the label, columns: the answer\n" + std::string(data::columns_of(titles[0]), ' ');
  for (const std::string& column : columns) text += " " + column;
  text += "\n";
  for (std::size_t c = 0; c < scores.size(); ++c) {
    text += rows[c];
    for (std::size_t answer = 0; answer < scores.size(); ++answer) {
      text += fmt::format(" {:>{}}", confusion[c * scores.size() + answer],
                          data::columns_of(columns[answer]));
    }
    text += "\n";
  }
  return text;
}

std::vector<std::string> class_names(const data::TaskInfo& task, const Json& provenance,
                                     std::size_t classes) {
  std::vector<std::string> names(task.labels.begin(), task.labels.end());
  if (provenance.is_object()) names = provenance.value("labels", names);
  if (names.size() == classes) return names;
  names.clear();
  for (std::size_t c = 0; c < classes; ++c) names.push_back(std::to_string(c));
  return names;
}

}  // namespace skytape::train
