// Copies between two strided layouts.
#include "tensor/movement/layout.hpp"

#include "tensor/launch/narrow_rows.hpp"
#include "tensor/launch/strided.hpp"

namespace skytape::tensor {
namespace {

template <class Word> struct CopyTask {
  StridedLoop loop;
  const Word* from;
  Word* to;
  template <class Team> HD void operator()(std::int64_t task, const Team& team) const {
    loop.each_run(task, [&](std::int64_t at, std::int64_t bt, std::int64_t, std::int64_t count) {
      const Word* const source = from + at;
      Word* const target = to + bt;
      const std::int64_t step_a = loop.row.a, step_b = loop.row.b;
      if (step_a == 1 && step_b == 1) {
        assign(
            team, count, target, [](Word value) { return value; }, source);
      } else if (step_a == 0 && step_b == 1) {
        const Word value = *source;
        assign(team, count, target, [=]() { return value; });
      } else {
        team.each(count, [=](std::int64_t i) { target[i * step_b] = source[i * step_a]; });
      }
    });
  }
};

template <class Word> void copy(const StridedLoop& loop, const void* from, void* to) {
  narrow_rows(loop.tasks, loop.task_entries,
              CopyTask<Word>{loop, static_cast<const Word*>(from), static_cast<Word*>(to)});
}

}  // namespace

void copy_strided_on(Backend, const StridedLoop& loop, std::size_t size, const void* from,
                     void* to) {
  size == 8 ? copy<std::uint64_t>(loop, from, to) : copy<std::uint32_t>(loop, from, to);
}

}  // namespace skytape::tensor
