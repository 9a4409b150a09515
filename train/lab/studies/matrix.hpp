// The matrix that a method multiplies the values with, for one text: what it would weigh each token
// by, whatever way it computes.
//
// Notation: H heads, N tokens, D head width.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "attention/method.hpp"
#include "data/files/json_fwd.hpp"
#include "train/formats/table.hpp"

namespace skytape::train {

/// A text as one layer of a model sees it.
struct MatrixText {
  std::string model;                // for titles
  std::vector<std::string> tokens;  // [N], as they are drawn
  attention::Inputs in;             // f64; q, k, v: [1, H, N, D]; mask: [1, N]; x: [1, N, E]
  std::int64_t layer = 0;
  /// The model's own method with its weights; null: exact attention.
  const attention::Method* own = nullptr;
  std::string own_name;
  attention::Call own_call = {};  // how the model calls it: its draws are those of its answers
};

struct MatrixOptions {
  std::vector<std::string> methods;
  std::map<std::string, attention::OptionValues> method_options = {};  // by method
  std::int64_t head = 0;
  std::int64_t features = 0;  // of methods that have some; 0: a quarter of the tokens
  std::uint64_t seed = 42;    // of weights that no one trained, and of draws with them
};

struct MethodMatrix {
  std::string name;      // of the method; "… (trained)" for the model's own
  std::string target;    // the exact attention that it stands for
  Tensor matrix, exact;  // f64[N, N], a row for each query
  double error = 0;      // Frobenius norm of the difference, over the exact one's
};

struct MatrixStudy {
  std::vector<MethodMatrix> matrices;
  std::vector<std::string> left_out;  // methods whose output is no matrix times the values
};

/// The rows of a matrix [N, M].
[[nodiscard]] std::vector<std::vector<double>> rows_of(const Tensor& matrix);

/// The effective matrices of every method at one head: column j is the output where the value of
/// token j is one, and of all others zero. Draws that look at the values see the text's own. A
/// method whose output is something else (Luna's memory is made of values, Longformer's global
/// tokens have their own values) has no such matrix, and is left out.
/// UsageError for a head that the model does not have, more features than tokens, bad options, and
/// where no method has a matrix.
[[nodiscard]] MatrixStudy run_matrix(const MatrixText& text, const MatrixOptions& options);

[[nodiscard]] Table table(const MatrixStudy& study, const MatrixText& text);
/// The methods' matrices, a row for each query.
[[nodiscard]] data::Json to_json(const MatrixStudy& study);
/// The exact matrices that they stand for, by name.
[[nodiscard]] data::Json exact_matrices(const MatrixStudy& study);

}  // namespace skytape::train
