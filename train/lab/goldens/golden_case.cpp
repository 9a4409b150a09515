#include "train/lab/goldens/golden_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "data/files/json.hpp"

namespace skytape {
namespace {

namespace fs = std::filesystem;
using data::Json;
using Status = GoldenRow::Status;

/// An option's value as a user would type it.
std::string option_text(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  if (value.is_string()) return value.get<std::string>();
  return data::json_text(value);  // numbers, with every digit
}

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

/// Gradients have their own limits, and may be zero in theory.
bool is_gradient(const std::string& array) {
  return array.starts_with("grad.") || array.starts_with("official_d") ||
         (array.starts_with("d") && array != "dout");
}

/// The largest relative error that passes. Iterated inverses and exponentials of random features
/// lose digits in either program, and AdamW divides by gradients that may be small.
double limit_for(const std::string& method, const std::string& array, DType dtype) {
  const bool gradient = is_gradient(array);
  if (array.starts_with("after3.")) return dtype == DType::f64 ? 1e-9 : 5e-5;
  const bool nystrom = method.starts_with("nystrom");
  if (dtype == DType::f64) return nystrom ? 1e-9 : 1e-10;
  if (nystrom || method == "performer") return 1e-4;
  return gradient ? 5e-5 : 1e-5;
}

}  // namespace

const NpyArray& GoldenCase::get(const std::string& name) const {
  const auto found = arrays.find(name);
  if (found == arrays.end()) {
    throw DataError(fmt::format("{}: no array '{}'", (path / "meta.json").string(), name));
  }
  return found->second;
}

GoldenCase read_golden_case(const fs::path& folder) {
  const fs::path file = folder / "meta.json";
  GoldenCase c;
  c.path = folder;
  c.folder = (folder.parent_path().filename() / folder.filename()).string();
  try {
    std::ifstream stream(file);
    if (!stream) throw DataError(fmt::format("{}: cannot be read", file.string()));
    const Json meta = data::parse_json(std::string(std::istreambuf_iterator<char>(stream), {}));
    c.method = meta.at("variant").get<std::string>();
    for (const auto& [key, value] : meta.at("options").items()) {
      if (!value.is_null()) c.options[key] = option_text(value);  // null: the method's own choice
    }
    // The vectors' own word for the official code's start of the inverse.
    const auto start = c.options.find("inverse_start");
    if (start != c.options.end() && start->second == "original") start->second = "official";
    for (const Json& array : meta.at("arrays")) {
      const fs::path name = array.at("file").get<std::string>();
      if (name.has_parent_path()) {
        throw DataError(
            fmt::format("{}: array file {} must be next to it", file.string(), name.string()));
      }
      NpyArray values = read_npy(folder / name);
      if (values.shape != array.at("shape").get<std::vector<std::int64_t>>()) {
        throw DataError(
            fmt::format("{}: shape differs from meta.json's", (folder / name).string()));
      }
      c.arrays[array.at("name").get<std::string>()] = std::move(values);
    }
  } catch (const data::JsonError& error) {
    throw DataError(fmt::format("{}: {}", file.string(), data::problem_of(error)));
  }
  return c;
}

Comparison::Comparison(const GoldenCase& c, DType dtype, std::vector<GoldenRow>& rows)
    : case_(c), dtype_(dtype), rows_(rows) {
  for (const auto& [name, array] : c.arrays) {
    if (is_gradient(name) && !array.integer) {
      largest_gradient_ = std::max(largest_gradient_, norm(array.reals));
    }
  }
}

void Comparison::check(const std::string& name, const Tensor& ours) {
  check(name,
        ours.defined() ? ours.to_vector() : std::vector<double>(case_.get(name).reals.size(), 0.0));
}

void Comparison::check(const std::string& name, std::vector<double> ours) {
  const NpyArray& array = case_.get(name);
  const std::vector<double> golden =
      array.integer ? std::vector<double>(array.integers.begin(), array.integers.end())
                    : array.reals;
  GoldenRow& row = rows_.emplace_back(GoldenRow{case_.folder, name, dtype_});
  row.limit = limit_for(case_.method, name, dtype_);
  if (ours.size() != golden.size()) {
    row.status = Status::failed;
    row.note =
        fmt::format("sizes differ: {} values, the golden has {}", ours.size(), golden.size());
    return;
  }
  const double size = norm(ours);
  for (std::size_t i = 0; i < golden.size(); ++i) ours[i] -= golden[i];
  const double expected = norm(golden);
  // Zero in theory: the stored values are rounding noise, so measure ours against the other
  // gradients.
  const bool zero = is_gradient(name) && expected <= 1e-12 * largest_gradient_;
  row.error = zero ? size / std::max(largest_gradient_, 1e-300)
                   : norm(ours) / (expected > 0 ? expected : 1.0);
  row.status = row.error <= row.limit ? Status::passed : Status::failed;  // NaN fails
}

void Comparison::note(Status status, const std::string& text) {
  rows_.push_back({case_.folder, "", dtype_, 0, 0, status, text});
}

}  // namespace skytape
