// A golden case on disk, and the comparison of its arrays with ours. Used by the golden runners
// (goldens.cpp, goldens_model.cpp).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "attention/options.hpp"
#include "train/formats/npy.hpp"
#include "train/lab/goldens/goldens.hpp"

namespace skytape {

struct GoldenCase {
  std::filesystem::path path;  // of its folder
  std::string folder;          // last two components, for people
  std::string method;
  attention::OptionValues options;
  std::map<std::string, NpyArray> arrays;

  [[nodiscard]] bool has(const std::string& name) const { return arrays.count(name) > 0; }
  /// DataError naming meta.json if there is no such array.
  [[nodiscard]] const NpyArray& get(const std::string& name) const;
};

/// Reads meta.json and every array it lists; DataError names the file and what is wrong.
[[nodiscard]] GoldenCase read_golden_case(const std::filesystem::path& folder);

/// Collects the rows of one case in one dtype.
class Comparison {
 public:
  Comparison(const GoldenCase& c, DType dtype, std::vector<GoldenRow>& rows);

  /// Compares with array `name`; an undefined tensor means zeros.
  void check(const std::string& name, const Tensor& ours);
  void check(const std::string& name, std::vector<double> ours);

  void note(GoldenRow::Status status, const std::string& text);

 private:
  const GoldenCase& case_;
  DType dtype_;
  std::vector<GoldenRow>& rows_;
  double largest_gradient_ = 0;
};

/// The case method `model`: the papers' whole classifier, its gradients, and three steps of the
/// optimiser.
void run_golden_model(const GoldenCase& c, DType dtype, Device device, Comparison& comparison);

}  // namespace skytape
