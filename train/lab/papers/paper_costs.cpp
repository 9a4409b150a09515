#include "train/lab/papers/paper_costs.hpp"

#include <array>
#include <cstddef>
#include <span>

namespace skytape::train {
namespace {

/// Columns of the papers' tables.
constexpr std::array<std::string_view, 5> kTasks = {"text", "listops", "retrieval", "pathfinder",
                                                    "image"};
constexpr std::array<int, 5> kProjected = {128, 256, 512, 1024, 2048};

struct Row {
  std::string_view method;
  std::array<double, 5> first, second;  // by task
};

constexpr Row kSkyformer[] = {
    // hours for 50,000 steps, GB
    {"softmax", {4.30, 2.24, 8.33, 2.57, 4.22}, {10.37, 5.37, 10.77, 5.74, 11.47}},
    {"kernelized", {3.91, 1.99, 7.46, 2.42, 4.05}, {5.73, 5.94, 10.46, 6.38, 6.38}},
    {"nystrom", {0.71, 0.71, 1.29, 1.49, 2.70}, {1.21, 1.37, 2.39, 3.35, 6.71}},
    {"linformer", {0.65, 0.60, 1.13, 1.09, 2.19}, {0.99, 0.99, 1.89, 1.97, 3.94}},
    {"informer", {1.60, 1.19, 2.91, 2.39, 3.90}, {5.12, 4.85, 5.77, 4.75, 9.51}},
    {"performer", {0.77, 0.73, 1.41, 1.40, 2.55}, {1.09, 1.09, 2.16, 2.20, 4.39}},
    {"reformer", {0.94, 0.85, 1.73, 1.70, 3.08}, {1.61, 1.61, 2.98, 3.21, 6.42}},
    {"bigbird", {2.00, 1.88, 3.81, 3.39, 6.53}, {2.83, 2.71, 4.97, 4.97, 9.95}},
    {"skyformer", {1.02, 1.29, 1.86, 2.03, 3.40}, {1.59, 1.75, 3.15, 4.13, 8.26}},
};

constexpr Row kSkeinformer[] = {
    // minutes for 1,000 steps, examples at once
    {"softmax", {50.63, 22.30, 53.27, 13.91, 21.40}, {16, 64, 16, 128, 64}},
    {kWithoutDropout, {39.49, 19.50, 41.88, 11.79, 14.88}, {8, 32, 8, 64, 32}},
    {"vmean", {3.62, 4.14, 3.90, 3.67, 4.44}, {128, 256, 64, 512, 256}},
    {"bigbird", {20.59, 17.28, 21.73, 17.83, 18.84}, {64, 128, 32, 256, 256}},
    {"performer", {2.63, 9.31, 12.50, 10.40, 8.94}, {64, 128, 32, 256, 256}},
    {"nystrom", {12.18, 12.28, 13.35, 19.58, 10.30}, {64, 128, 32, 128, 256}},
    {"reformer", {10.53, 8.28, 11.27, 9.25, 11.88}, {64, 128, 64, 256, 256}},
    {"linformer", {7.91, 6.25, 8.08, 6.90, 6.65}, {64, 128, 64, 256, 256}},
    {"linformer_jlt", {36.87, 21.49, 35.93, 15.17, 22.03}, {8, 32, 4, 128, 128}},
    {"informer", {33.13, 21.89, 36.52, 26.14, 24.92}, {16, 32, 16, 64, 128}},
    {"informer_mask", {25.94, 21.50, 35.95, 15.79, 22.58}, {32, 64, 32, 128, 128}},
    {"skeinformer", {9.60, 9.66, 10.61, 9.25, 11.86}, {64, 128, 64, 256, 256}},
    {"skein_uniform", {7.60, 6.66, 6.70, 7.27, 7.76}, {128, 256, 64, 512, 256}},
    {"skein_nonorm", {25.02, 16.02, 55.72, 11.12, 15.52}, {16, 64, 4, 256, 128}},
    {"skein_simplenorm", {6.80, 8.16, 8.03, 6.84, 11.27}, {128, 256, 64, 512, 256}},
    {"skein_nopilot", {7.15, 7.31, 8.68, 7.09, 10.19}, {128, 256, 64, 512, 256}},
};

struct GainRow {
  int n;
  std::array<double, 5> faster, less_memory;  // by k; 0: no such cell
};
constexpr GainRow kLinformer[] = {
    {512, {1.5, 1.3, 0, 0, 0}, {1.7, 1.5, 0, 0, 0}},
    {1024, {1.7, 1.6, 1.3, 0, 0}, {3.0, 2.9, 1.8, 0, 0}},
    {2048, {2.6, 2.4, 2.1, 1.3, 0}, {6.1, 5.6, 3.6, 2.0, 0}},
    {4096, {3.4, 3.2, 2.8, 2.2, 1.3}, {14, 13, 8.3, 4.3, 2.3}},
    {8192, {5.5, 5.0, 4.4, 3.5, 2.1}, {28, 26, 17, 8.5, 4.5}},
    {16384, {8.6, 7.8, 7.0, 5.6, 3.3}, {56, 48, 32, 16, 8}},
    {32768, {13, 12, 11, 8.8, 5.0}, {56, 48, 36, 18, 16}},
    {65536, {20, 18, 16, 14, 7.9}, {60, 52, 40, 20, 18}},
};

constexpr Row kConvergence[] = {
    // thousands of steps, minutes
    {"softmax", {10.67, 8.53, 19.80, 21.40, 4.33}, {540.00, 190.29, 1054.67, 297.78, 92.73}},
    {kWithoutDropout, {5.67, 5.58, 16.30, 17.58, 4.23}, {223.79, 108.90, 682.72, 207.14, 63.01}},
    {"vmean", {8.00, 9.77, 26.50, 15.60, 7.38}, {28.92, 40.46, 103.41, 57.27, 32.77}},
    {"bigbird", {6.00, 9.07, 14.90, 17.47, 3.20}, {123.52, 156.68, 323.83, 311.40, 60.28}},
    {"performer", {30.33, 9.90, 12.50, 8.83, 5.13}, {79.64, 92.14, 156.22, 91.91, 45.87}},
    {"nystrom", {11.50, 9.87, 17.10, 22.60, 2.92}, {140.02, 121.19, 228.26, 442.59, 30.06}},
    {"reformer", {6.67, 14.20, 26.40, 24.13, 4.78}, {70.17, 117.55, 297.59, 223.28, 56.84}},
    {"linformer", {6.50, 11.43, 23.20, 7.30, 4.25}, {51.38, 71.48, 187.51, 50.35, 28.27}},
    {"linformer_jlt", {6.25, 3.98, 23.85, 12.01, 4.30}, {230.46, 85.43, 856.83, 182.18, 94.75}},
    {"informer", {8.00, 10.13, 24.70, 9.47, 6.72}, {265.06, 221.79, 901.99, 247.50, 167.37}},
    {"informer_mask", {7.00, 4.20, 30.90, 7.02, 5.10}, {181.61, 90.31, 1110.98, 110.83, 115.14}},
    {"skeinformer", {6.17, 7.32, 20.40, 17.89, 5.57}, {59.23, 70.71, 216.36, 165.54, 66.02}},
    {"skein_uniform", {8.00, 3.20, 26.10, 18.72, 7.67}, {60.79, 21.30, 174.96, 136.05, 59.52}},
    {"skein_nonorm", {6.17, 5.90, 13.80, 13.21, 4.50}, {154.31, 94.54, 768.97, 146.88, 69.83}},
    {"skein_simplenorm", {6.67, 6.27, 19.30, 13.62, 5.78}, {45.32, 51.12, 155.07, 93.19, 65.17}},
    {"skein_nopilot", {6.50, 6.25, 22.20, 16.64, 6.23}, {46.47, 45.68, 192.69, 117.99, 63.51}},
};

constexpr Row kInstability[] = {
    {"nystrom", {1.03, 1.01, 0.97, 0.99, 1.02}, {}},
    {"kernelized", {0.83, 0.77, 0.64, 0.74, 0.62}, {}},
    {"skyformer", {0.81, 0.79, 0.64, 0.79, 0.65}, {}},
};

struct Place {
  std::span<const Row> table;
  std::array<double, 5> Row::*figures;
};
/// The places in the papers where the figures are printed, in the order of PaperFigure.
constexpr Place kPlaces[] = {{kSkyformer, &Row::first},   {kSkyformer, &Row::second},
                             {kSkeinformer, &Row::first}, {kSkeinformer, &Row::second},
                             {kConvergence, &Row::first}, {kConvergence, &Row::second},
                             {kInstability, &Row::first}};

}  // namespace

std::string_view paper_row(std::string_view method, double attention_dropout) {
  return method == "softmax" && attention_dropout == 0 ? kWithoutDropout : method;
}

std::optional<double> paper_figure(PaperFigure figure, std::string_view method,
                                   std::string_view task) {
  const Place& place = kPlaces[static_cast<std::size_t>(figure)];
  for (const Row& row : place.table) {
    for (std::size_t c = 0; c < kTasks.size(); ++c) {
      if (row.method == method && kTasks[c] == task) return (row.*place.figures)[c];
    }
  }
  return std::nullopt;
}

std::optional<LinformerGain> linformer_gain(int n, int k) {
  for (const GainRow& row : kLinformer) {
    for (std::size_t c = 0; c < kProjected.size(); ++c) {
      if (row.n != n || kProjected[c] != k || row.faster[c] == 0) continue;
      return LinformerGain{row.faster[c], row.less_memory[c]};
    }
  }
  return std::nullopt;
}

}  // namespace skytape::train
