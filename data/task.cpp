#include "data/task.hpp"

#include "data/listops.hpp"
#include "tensor/error.hpp"
#include "tensor/suggest.hpp"

namespace skytape::data {
namespace {

constexpr std::string_view kLra = "https://storage.googleapis.com/long-range-arena/lra_release.gz";

constexpr TaskInfo kTasks[] = {
    {.name = "listops",
     .classes = 10,
     .vocabulary = 32,
     .max_length = 2000,
     .nominal_length = 2048,
     .towers = 1,
     .token_offset = 0,
     .mask = MaskRule::length,
     .generable = true,
     .held_out = 0,
     .description = "value of a nested expression of list operations",
     .source = kLra,
     .build = build_listops,
     .export_files = export_listops},
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
