#include "train/step/step_graphs.hpp"

#include <algorithm>

#include "tensor/core/error.hpp"

namespace skytape::train {

StepGraphs::StepGraphs(Device device, bool on, std::size_t most)
    : on_(on && device == Device::cuda), most_(most) {
  ENSURE(most > 0, "StepGraphs: at least one layout must be remembered");
}

void StepGraphs::run_directly(const std::function<void()>& work) {
  if (on_) {
    const GraphMemoryScope scope;  // the blocks that a capture of this work will find
    memory_ = scope.memory();
    work();
  } else {
    work();
  }
  ++counts_.direct;
}

void StepGraphs::run(const Layout& layout, const std::function<void()>& work) {
  if (!on_) return run_directly(work);
  const auto known = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.layout == layout; });
  if (known == entries_.end()) {
    run_directly(work);
    entries_.push_front({layout, nullptr});
    if (entries_.size() > most_) entries_.pop_back();
    return;
  }
  entries_.splice(entries_.begin(), entries_, known);
  Entry& entry = entries_.front();
  if (entry.graph == nullptr) {
    entry.graph = std::make_unique<Graph>(work);
    nodes_ = entry.graph->nodes();
    ++counts_.captured;
  }
  entry.graph->replay();
  ++counts_.replayed;
}

}  // namespace skytape::train
