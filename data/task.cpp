#include "data/task.hpp"

#include "data/image.hpp"
#include "data/listops.hpp"
#include "data/pathfinder_files.hpp"
#include "data/retrieval.hpp"
#include "data/text.hpp"
#include "tensor/error.hpp"
#include "tensor/suggest.hpp"

namespace skytape::data {
namespace {

constexpr std::string_view kLra = "https://storage.googleapis.com/long-range-arena/lra_release.gz";
constexpr std::string_view kImdb =
    "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz";
constexpr std::string_view kCifar = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz";
// The archive of the Long Range Arena has no published digest.
constexpr std::string_view kImdbSha256 =
    "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe";
constexpr std::string_view kCifarSha256 =
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd";

/// A Pathfinder set: 2 classes of square images, generated at need.
constexpr TaskInfo pathfinder(std::string_view name, int64_t pixels, bool benchmark,
                              std::string_view description) {
  return {.name = name,
          .classes = 2,
          .vocabulary = 512,
          .max_length = pixels,
          .nominal_length = pixels,
          .towers = 1,
          .token_offset = 0,
          .mask = MaskRule::length,
          .generator = kPathfinderGenerator,
          .benchmark = benchmark,
          .held_out = 0,
          .description = description,
          .source = kLra,
          .source_sha256 = {},
          .build = build_pathfinder,
          .export_files = export_pathfinder};
}

/// Pairs of papers; the two names differ in where their caches lie.
constexpr TaskInfo retrieval(std::string_view name, bool benchmark, std::string_view description) {
  return {.name = name,
          .classes = 2,
          .vocabulary = 512,
          .max_length = 4000,
          .nominal_length = 4096,
          .towers = 2,
          .token_offset = 1,
          .mask = MaskRule::length,
          .generator = {},
          .benchmark = benchmark,
          .held_out = 0,
          .description = description,
          .source = kLra,
          .source_sha256 = {},
          .build = build_retrieval,
          .export_files = nullptr};
}

constexpr TaskInfo kTasks[] = {
    {.name = "listops",
     .classes = 10,
     .vocabulary = 32,
     .max_length = 2000,
     .nominal_length = 2048,
     .towers = 1,
     .token_offset = 0,
     .mask = MaskRule::length,
     .generator = kListopsGenerator,
     .benchmark = true,
     .held_out = 0,
     .description = "value of a nested expression of list operations",
     .source = kLra,
     .source_sha256 = {},
     .build = build_listops,
     .export_files = export_listops},
    {.name = "text",
     .classes = 2,
     .vocabulary = 512,
     .max_length = 4000,
     .nominal_length = 4096,
     .towers = 1,
     .token_offset = 1,
     .mask = MaskRule::length,
     .generator = {},
     .benchmark = true,
     .held_out = 0.1,
     .description = "is a movie review positive? byte by byte (IMDb)",
     .source = kImdb,
     .source_sha256 = kImdbSha256,
     .build = build_text,
     .export_files = nullptr},
    retrieval("retrieval", true, "does one paper cite the other? byte by byte (AAN)"),
    pathfinder("pathfinder", 1024, true, "do two dots lie on one dashed curve? 32x32 pixels"),
    pathfinder("pathx", 16384, true, "the same, 128x128 pixels"),
    {.name = "image",
     .classes = 10,
     .vocabulary = 256,
     .max_length = 1024,
     .nominal_length = 1024,
     .towers = 1,
     .token_offset = 0,
     .mask = MaskRule::length,
     .generator = {},
     .benchmark = true,
     .held_out = 0,
     .description = "what does a gray 32x32 picture show? (CIFAR-10)",
     .source = kCifar,
     .source_sha256 = kCifarSha256,
     .build = build_image,
     .export_files = nullptr},
    retrieval("retrieval-substitute", false, "retrieval on papers that are not the official set"),
    pathfinder("pathfinder-easy", 1024, false, "pathfinder with 6 dashes per curve"),
    pathfinder("pathfinder-intermediate", 1024, false, "pathfinder with 9 dashes per curve"),
    pathfinder("pathx-easy", 16384, false, "pathx with 6 dashes per curve"),
    pathfinder("pathx-intermediate", 16384, false, "pathx with 9 dashes per curve"),
    {.name = "tsv",
     .classes = 0,
     .vocabulary = 512,
     .max_length = 2048,
     .nominal_length = 2048,
     .towers = 1,
     .token_offset = 1,
     .mask = MaskRule::length,
     .generator = {},
     .benchmark = false,
     .held_out = 0,
     .description = "your own lines label<TAB>text, byte by byte",
     .source = {},
     .source_sha256 = {},
     .build = build_tsv,
     .export_files = nullptr},
};

}  // namespace

std::string_view to_string(MaskRule rule) {
  return rule == MaskRule::length ? "length" : "nonzero";
}

MaskRule parse_mask_rule(std::string_view name) {
  if (name == "length") return MaskRule::length;
  if (name == "nonzero") return MaskRule::nonzero;
  throw UsageError(unknown_name("mask rule", name, {"length", "nonzero"}));
}

std::span<const TaskInfo> tasks() { return kTasks; }

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const TaskInfo& task : kTasks) names.emplace_back(task.name);
  return names;
}

const TaskInfo& find_task(std::string_view name) {
  for (const TaskInfo& task : kTasks) {
    if (task.name == name) return task;
  }
  throw UsageError(unknown_name("task", name, task_names()));
}

}  // namespace skytape::data
