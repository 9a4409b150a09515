// Views of heads: what they see, and that the lists of blocks hold that and nothing else.
#include "attention/blocks/head_views.hpp"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>

#include "tests/attention/methods_support.hpp"
#include "tests/support/close.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

using attention::HeadView;
using attention::HeadViews;

/// Returns whether a view sees exactly the pairs that a formula says, of all pairs of n tokens.
bool sees_exactly(const HeadView& view, std::int64_t n,
                  const std::function<bool(std::int64_t, std::int64_t)>& formula) {
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      if (view.sees(static_cast<std::size_t>(i), static_cast<std::size_t>(j)) != formula(i, j)) {
        return false;
      }
    }
  }
  return true;
}

struct Case {
  std::string name;
  std::int64_t n;
  HeadView view;
};

std::vector<Case> cases() {
  return {{"window", 37, attention::window_view(37, 5, 1)},
          {"window of one", 9, attention::window_view(9, 0, 1)},
          {"window over everything", 20, attention::window_view(20, 50, 1)},
          {"dilated", 37, attention::window_view(37, 2, 4)},
          {"dilated with globals", 41, attention::window_view(41, 1, 5, 3)},
          {"stride", 50, attention::window_view(50, 50, 7)},
          {"groups", 37, attention::group_view(37, 8)},
          {"shifted groups", 37, attention::group_view(37, 10, 3)},
          {"summaries", 40, attention::summary_view(40, 8, 2, false)},
          {"groups and summaries", 45, attention::summary_view(45, 8, 3, true)}};
}

}  // namespace

TEST_CASE("a view sees what its formula says, and orders every token once") {
  const std::int64_t n = 41;
  const auto near = [](std::int64_t i, std::int64_t j, std::int64_t reach, std::int64_t dilation) {
    return std::abs(i - j) <= reach * dilation && (i - j) % dilation == 0;
  };
  CHECK(sees_exactly(attention::window_view(n, 6, 1), n,
                     [&](auto i, auto j) { return near(i, j, 6, 1); }));
  CHECK(sees_exactly(attention::window_view(n, 2, 3, 2), n,
                     [&](auto i, auto j) { return j < 2 || near(i, j, 2, 3); }));
  CHECK(sees_exactly(attention::group_view(n, 9, 2), n,
                     [](auto i, auto j) { return j / 9 == (i / 9 + 2) % 5; }));
  CHECK(sees_exactly(attention::summary_view(n, 9, 2, false), n,
                     [](auto, auto j) { return j % 9 >= 7; }));
  CHECK(sees_exactly(attention::summary_view(n, 9, 2, true), n,
                     [](auto i, auto j) { return j % 9 >= 7 || i / 9 == j / 9; }));
  for (const Case& c : cases()) {
    INFO(c.name);
    std::vector<std::int32_t> order = c.view.order;
    std::sort(order.begin(), order.end());
    REQUIRE(static_cast<std::int64_t>(order.size()) == c.n);
    for (std::size_t t = 0; t < order.size(); ++t) CHECK(order[t] == static_cast<std::int32_t>(t));
  }
}

TEST_CASE("a block lists the blocks that hold a key which one of its queries sees, and no others") {
  for (const Case& c : cases()) {
    for (const std::int64_t block : {1, 4, 16, 64}) {
      INFO(c.name, ", blocks of ", block);
      const std::int64_t blocks = (c.n + block - 1) / block;
      std::int64_t expected = 0;
      for (std::int64_t i = 0; i < blocks; ++i) {
        for (std::int64_t j = 0; j < blocks; ++j) {
          bool any = false;
          for (std::int64_t a = i * block; a < std::min((i + 1) * block, c.n); ++a) {
            for (std::int64_t b = j * block; b < std::min((j + 1) * block, c.n); ++b) {
              any = any || c.view.sees(static_cast<std::size_t>(c.view.order[a]),
                                       static_cast<std::size_t>(c.view.order[b]));
            }
          }
          expected += any;
        }
      }
      const HeadViews views({c.view}, block);
      CHECK(views.listed_pairs(0) == static_cast<double>(expected * block * block));
    }
  }
}

TEST_CASE("heads with views of different kinds attend to the pairs that each of them sees") {
  const std::int64_t n = 37, block = 8;
  const HeadViews views({attention::window_view(n, 2, 4, 3), attention::summary_view(n, 9, 2, true),
                         attention::window_view(n, 50, 1), attention::group_view(n, 9, 2),
                         attention::group_view(n, 8)},
                        block);  // the last is in order, and sees whole blocks
  const Sizes sizes{.batch = 3, .heads = 5, .n = n, .width = 6};
  const Problem p = make_problem(attention::find("softmax"), sizes, Padding::mixed);
  Tape tape;
  const Var q = tape.input(p.in.q), k = tape.input(p.in.k), v = tape.input(p.in.v);
  const Var out = attention::counted_attention(q, k, v, views.pair_counts(n, p.in.q), p.in.mask);
  const attention::BlockForward found = views.attend(p.in);
  CHECK(relative_error(found.out, out.value()) < 1e-12);
  tape.backward(out, p.dout);
  const attention::BlockBackward d = views.attend_backward(p.in, found, p.dout);
  CHECK(relative_error(d.dq, tape.grad(q)) < 1e-12);
  CHECK(relative_error(d.dk, tape.grad(k)) < 1e-12);
  CHECK(relative_error(d.dv, tape.grad(v)) < 1e-12);
}

TEST_CASE("the order of slots makes a sparse pattern cost what it sees") {
  const std::int64_t n = 4096;
  // 64 keys for each query, all of them 64 apart: one block each instead of all.
  CHECK(HeadViews({attention::window_view(n, n, 64)}, 64).listed_pairs(0) == 64.0 * n);
  // 2 of 64 tokens are summaries: 128 keys in two blocks.
  CHECK(HeadViews({attention::summary_view(n, 64, 2, false)}, 64).listed_pairs(0) == 128.0 * n);
  // A window of 129 touches three blocks, at the ends two.
  CHECK(HeadViews({attention::window_view(n, 64, 1)}, 64).listed_pairs(0) ==
        (3 * 64 - 2) * 64.0 * 64);
}

}  // namespace skytape::test
