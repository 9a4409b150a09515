#include "data/task.hpp"

#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"

namespace skytape::data {

#define TASK(name) TaskInfo name##_task();
#include "data/tasks.def"
#undef TASK

std::span<const TaskInfo> tasks() {
  static const std::vector<TaskInfo> all = {
#define TASK(name) name##_task(),
#include "data/tasks.def"
#undef TASK
  };
  return all;
}

const TaskInfo& find_task(std::string_view name) {
  std::vector<std::string> names;
  for (const TaskInfo& task : tasks()) {
    if (task.name == name) return task;
    names.emplace_back(task.name);
  }
  throw UsageError(unknown_name("task", name, names));
}

}  // namespace skytape::data
