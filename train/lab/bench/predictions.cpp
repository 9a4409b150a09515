#include "train/lab/bench/predictions.hpp"

#include "data/files/output.hpp"
#include "tensor/core/error.hpp"
#include "train/lab/bench/roofline.hpp"
#include "train/process/version.hpp"
#include "train/run/run_folder.hpp"

namespace skytape::train {
namespace {

using data::Json;

/// Returns the key of a count: everything that it depends on.
Json key_of(const BenchCase& c) {
  return {{"attention", c.attention}, {"n", c.n}, {"batch", c.batch}, {"features", c.features}};
}

bool is_of(const Json& step, const Json& key) {
  for (const auto& [name, value] : key.items()) {
    if (!(data::member(step, name) == value)) return false;
  }
  return true;
}

std::string milliseconds_in(const std::string& precision) { return precision + "_ms"; }

}  // namespace

Predictions::Predictions(const std::filesystem::path& path) {
  const Json file = read_json(path);
  const Json& theirs = data::member(file, "revision");
  if (!(theirs == Json(revision()))) {
    throw DataError(join(path.string(), ": counted by revision ", data::json_text(theirs),
                         ", expected \"", revision(), "\", this program's"));
  }
  if (!data::member(file, "steps").is_array())
    throw DataError(join(path.string(), ": no array 'steps'"));
  steps_ = data::member(file, "steps");
}

const Json& Predictions::add(const BenchCase& c) {
  Json step = key_of(c);
  for (const auto& [precision, work] : step_work(c, {})) {
    step[milliseconds_in(precision)] = 1e3 * work.seconds;
    if (work.parts) step[precision + "_parts_ms"] = to_json(*work.parts);
  }
  steps_.push_back(step);
  return steps_.back();
}

std::optional<double> Predictions::ms(const BenchCase& c) const {
  const Json key = key_of(c);
  for (const Json& step : steps_) {
    const Json& value = data::member(step, milliseconds_in(c.precision));
    if (is_of(step, key) && value.is_number()) return value.get<double>();
  }
  return {};
}

void Predictions::write(const std::filesystem::path& path) const {
  const data::Json all = {
      {"revision", revision()}, {"kernels", counted_kernels()}, {"steps", steps_}};
  data::write_file(path, data::json_text(all, {.indent = 2}) + "\n");
}

}  // namespace skytape::train
