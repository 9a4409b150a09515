#include "train/step/buckets.hpp"

#include <algorithm>
#include <deque>

namespace skytape::train {

std::vector<Bucket> buckets_of(const ParameterStore& parameters, std::int64_t numbers,
                               std::int64_t size) {
  std::vector<Bucket> buckets;
  std::int64_t end = parameters.trainable_size();
  const std::deque<Parameter>& all = parameters.parameters();
  for (auto p = all.rbegin(); p != all.rend(); ++p) {
    const bool cuts = size > 0 && p->trainable && p->offset > 0 && end - p->offset >= size;
    if (!cuts) continue;
    buckets.push_back({p->offset, end});
    end = p->offset;
  }
  if (buckets.empty()) return {{0, numbers}};
  buckets.push_back({0, end});
  buckets.push_back({parameters.trainable_size(), numbers});
  return buckets;
}

std::vector<int> first_readers(const Tape& tape, std::span<const Bucket> buckets) {
  std::vector<int> first(buckets.size(), tape.size());
  for (int i = 0; i < tape.size(); ++i) {
    const NodeView reader = tape.node(i);
    for (const ValueIndex& input : reader.inputs) {
      const Parameter* const p = input.node < 0 ? nullptr : tape.node(input.node).parameter;
      if (p == nullptr) continue;
      for (std::size_t b = 0; b < buckets.size(); ++b) {
        const bool inside = buckets[b].begin <= p->offset && p->offset < buckets[b].end;
        if (inside) first[b] = std::min(first[b], i);
      }
    }
  }
  first.back() = -1;
  return first;
}

}  // namespace skytape::train
