// Linformer's Figure 3: perplexity of masked language models, with exact attention and with
// Linformer, against steps and seconds. A grid of pre-trainings (train/lab/lra/lra.hpp), its table
// and its points, which train/report/language_models.py draws.
//
// Notation: n tokens of a sequence, k rows that Linformer projects keys and values to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "train/formats/table.hpp"
#include "train/lab/lra/lra.hpp"

namespace skytape::train {

struct CurvesOptions {
  std::vector<std::int64_t> lengths = {256, 512, 1024};  // n, the shortest first
  std::vector<std::int64_t> shares = {4, 8};             // k = n / share
  std::int64_t batch = 32;                               // sequences of the shortest n in a step
  Choices base;                                          // the rest of every cell
  std::filesystem::path out;  // the cells' folders; the corpus of n is in data/n<n>
};

/// A run of the figure.
struct CurveCell {
  std::int64_t n = 0, k = 0;  // k = 0: exact attention
  std::string sharing;        // of Linformer's projections; empty: exact attention
  GridCell run;
};

/// All cells, each once. UsageError for lengths that do not ascend, a share that does not divide
/// one, a batch that gives no whole number of longer sequences, and as resolve() throws it.
[[nodiscard]] std::vector<CurveCell> curve_cells(const CurvesOptions& options);

/// An evaluation of a cell.
struct CurvePoint {
  std::int64_t step = 0;
  double seconds = 0, perplexity = 0;  // of training; over the held-out documents' hidden tokens
};

/// The points of a cell so far.
struct Curve {
  CurveCell cell;
  std::vector<CurvePoint> points;
  bool finished = false;
  double steps_per_second = 0, tokens_per_second = 0, peak_bytes = 0;  // once it is finished
};

/// Reads the folder of a cell below `out`; one that is not there has no points.
[[nodiscard]] Curve read_curve(const CurveCell& cell, const std::filesystem::path& out);

/// A row for each cell: perplexity, and by how much it is above that of exact attention at its n.
[[nodiscard]] Table curve_table(const std::vector<Curve>& curves);
/// "n,k,sharing,step,seconds,perplexity", a line for each point.
[[nodiscard]] std::string curve_csv(const std::vector<Curve>& curves);

}  // namespace skytape::train
