// The benchmark that a task is of.
#pragma once

#include <string_view>

#include "data/task.hpp"

namespace skytape::train {

/// Variations of a benchmark's task (easier pictures, substitute data, fewer examples) belong to
/// it.
constexpr std::string_view task_family(std::string_view task) {
  if (task.ends_with(data::kLimited)) task.remove_suffix(data::kLimited.size());
  if (task.starts_with("pathx") || task.starts_with("pathfinder")) return "pathfinder";
  return task.starts_with("retrieval") ? "retrieval" : task;
}

}  // namespace skytape::train
