#include "train/lab/papers/paper_settings.hpp"

namespace skytape::train {
namespace {

constexpr PaperSettings kRows[] = {
    {"skyformer", "listops", 32, 1e-4, 50000, 128},
    {"skyformer", "text", 16, 1e-4, 50000, 128},
    {"skyformer", "retrieval", 16, 2e-4, 50000, 128},
    {"skyformer", "pathfinder", 128, 2e-4, 50000, 128},
    {"skyformer", "image", 256, 1e-4, 50000, 128},

    {"skeinformer", "listops", 256, 1e-4, 0, 256},
    {"skeinformer", "text", 128, 1e-4, 0, 256},
    {"skeinformer", "retrieval", 64, 1e-4, 0, 256},
    {"skeinformer", "pathfinder", 512, 1e-4, 0, 256},
    {"skeinformer", "image", 256, 1e-4, 0, 256},
};

}  // namespace

std::span<const PaperSettings> paper_settings() { return kRows; }

}  // namespace skytape::train
