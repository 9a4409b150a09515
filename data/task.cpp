#include "data/task.hpp"

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
  return find_named("task", name, tasks(), &TaskInfo::name);
}

}  // namespace skytape::data
