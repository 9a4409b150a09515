#include "train/lab/papers/paper_results.hpp"

namespace skytape::train {
namespace {

constexpr std::string_view kSky = "Skyformer paper";
constexpr std::string_view kSkein = "Skeinformer paper";
constexpr std::string_view kDropout = "Skeinformer paper, dropout 0.1";
constexpr std::string_view kNoDropout = "Skeinformer paper, no attention dropout";
constexpr std::string_view kArena = "Long Range Arena paper";

constexpr PaperRow kRows[] = {
    // method, paper                T      L      R      P      I      average
    {"softmax", kSky, 61.95, 38.37, 80.69, 65.26, 40.57, 57.37},
    {"kernelized", kSky, 60.22, 38.78, 81.77, 70.73, 41.29, 58.56},
    {"nystrom", kSky, 64.83, 38.51, 80.52, 69.48, 41.30, 58.93},
    {"linformer", kSky, 58.93, 37.45, 78.19, 60.93, 37.96, 54.69},
    {"informer", kSky, 62.64, 32.53, 77.57, 57.83, 38.10, 53.73},
    {"performer", kSky, 64.19, 38.02, 80.04, 66.30, 41.43, 58.00},
    {"reformer", kSky, 62.93, 37.68, 78.99, 66.49, 48.87, 58.99},
    {"bigbird", kSky, 63.86, 39.25, 80.28, 68.72, 43.16, 59.05},
    {"skyformer", kSky, 64.70, 38.69, 82.06, 70.73, 40.77, 59.39},

    {"softmax", kDropout, 57.69, 38.15, 80.10, 73.59, 37.97, 57.50},
    {"softmax", kNoDropout, 59.44, 38.17, 79.35, 72.35, 37.58, 57.38},
    {"vmean", kSkein, 65.29, 28.78, 80.49, 61.01, 34.33, 53.98},
    {"bigbird", kSkein, 61.91, 38.86, 79.73, 71.75, 35.00, 57.45},
    {"performer", kSkein, 57.67, 37.70, 75.69, 56.50, 37.40, 52.99},
    {"nystrom", kSkein, 60.91, 37.76, 79.87, 72.53, 31.93, 56.60},
    {"reformer", kSkein, 62.69, 37.94, 78.85, 69.21, 36.42, 57.02},
    {"linformer", kSkein, 58.52, 37.97, 77.40, 55.57, 37.48, 53.39},
    {"linformer_jlt", kSkein, 59.12, 37.48, 79.39, 68.45, 35.96, 56.08},
    {"informer", kSkein, 61.55, 38.43, 80.88, 59.34, 36.55, 55.35},
    {"informer_mask", kSkein, 60.98, 37.26, 79.92, 62.51, 37.19, 55.57},
    {"skeinformer", kSkein, 62.47, 38.73, 80.42, 71.51, 37.27, 58.08},
    {"skein_uniform", kSkein, 64.48, 30.02, 80.57, 64.35, 36.97, 55.28},
    {"skein_nonorm", kSkein, 60.67, 37.69, 78.67, 66.35, 37.06, 56.09},
    {"skein_simplenorm", kSkein, 60.26, 38.35, 78.97, 65.41, 39.72, 56.54},
    {"skein_nopilot", kSkein, 62.39, 38.12, 79.88, 71.53, 37.20, 57.83},  // cells give 57.82

    {"softmax", kArena, 64.27, 36.37, 57.46, 71.40, 42.44, 54.39},
    {"local", kArena, 52.98, 15.82, 53.39, 66.63, 41.46, 46.06},
    {"sparse_transformer", kArena, 63.58, 17.07, 59.59, 71.71, 44.24, 51.24},
    {"longformer", kArena, 62.85, 35.63, 56.89, 69.71, 42.22, 53.46},
    {"linformer", kArena, 53.94, 35.70, 52.27, 76.34, 38.56, 51.36},
    {"reformer", kArena, 56.10, 37.27, 53.40, 68.50, 38.07, 50.67},
    {"sinkhorn", kArena, 61.20, 33.67, 53.83, 67.45, 41.23, 51.39},  // cells give 51.48
    {"synthesizer", kArena, 61.68, 36.99, 54.67, 69.45, 41.61, 52.88},
    {"bigbird", kArena, 64.02, 36.05, 59.29, 74.87, 40.83, 55.01},
    {"linear_attention", kArena, 65.90, 16.13, 53.09, 75.30, 42.34, 50.55},
    {"performer", kArena, 65.40, 18.01, 53.82, 77.05, 42.77, 51.41},
};

}  // namespace

std::span<const PaperRow> paper_results() { return kRows; }

std::optional<double> paper_accuracy(const PaperRow& row, std::string_view task) {
  if (task == "text") return row.text;
  if (task == "listops") return row.listops;
  if (task == "retrieval") return row.retrieval;
  if (task == "pathfinder") return row.pathfinder;
  if (task == "image") return row.image;
  return {};
}

}  // namespace skytape::train
