#include "attention/blocks/head_views.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "autograd/ops.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/kernels/elementwise.hpp"

namespace skytape::attention {
namespace {

constexpr std::int64_t kLargestBlock = 128;  // rows: scores of a query block stay in cache
constexpr std::int64_t kUsualBlock = 64;

std::vector<std::int32_t> consecutive(std::int64_t n) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

/// [place(0), place(1), … place(n - 1)].
template <class F> std::vector<std::int32_t> places(std::int64_t n, const F& place) {
  std::vector<std::int32_t> all;
  for (std::int64_t t = 0; t < n; ++t) all.push_back(static_cast<std::int32_t>(place(t)));
  return all;
}

/// Smallest and largest of some places.
struct Range {
  std::int32_t low = std::numeric_limits<std::int32_t>::max();
  std::int32_t high = std::numeric_limits<std::int32_t>::min();
  void add(std::int32_t place) {
    low = std::min(low, place);
    high = std::max(high, place);
  }
  [[nodiscard]] bool empty() const { return low > high; }
};

/// Range of the places of each block of `block` slots, those that everybody sees left out.
std::vector<Range> block_ranges(const std::vector<std::int32_t>& order,
                                const std::vector<std::int32_t>& place, std::int64_t block) {
  std::vector<Range> ranges(
      static_cast<std::size_t>(ceil_div(static_cast<std::int64_t>(order.size()), block)));
  for (std::size_t s = 0; s < order.size(); ++s) {
    const std::int32_t at = place[static_cast<std::size_t>(order[s])];
    if (at != kSeenByAll) ranges[s / static_cast<std::size_t>(block)].add(at);
  }
  return ranges;
}

Tensor upload_integers(const std::vector<std::int32_t>& x, const Shape& shape, Device device) {
  return Tensor::from(x, shape, DType::i32, device);
}

}  // namespace

bool HeadView::sees(std::size_t i, std::size_t j) const {
  return key_place[j] == kSeenByAll || std::abs(query_place[i] - key_place[j]) <= reach;
}

HeadView window_view(std::int64_t n, std::int64_t reach, std::int64_t dilation,
                     std::int64_t globals) {
  HeadView view;
  const std::int64_t steps = ceil_div(n, dilation);  // tokens of a residue class
  view.reach = static_cast<std::int32_t>(std::min(reach, steps));
  // Classes lie further apart than any query can see.
  const std::int64_t span = steps + view.reach;
  const auto place = [&](std::int64_t t) { return t % dilation * span + t / dilation; };
  view.query_place = places(n, place);
  view.key_place = places(n, [&](std::int64_t t) { return t < globals ? kSeenByAll : place(t); });
  view.order = consecutive(std::min(globals, n));
  for (std::int64_t residue = 0; residue < dilation; ++residue) {
    for (std::int64_t t = residue; t < n; t += dilation) {
      if (t >= globals) view.order.push_back(static_cast<std::int32_t>(t));
    }
  }
  return view;
}

HeadView group_view(std::int64_t n, std::int64_t size, std::int64_t shift) {
  const std::int64_t groups = ceil_div(n, size);
  HeadView view;
  view.order = consecutive(n);
  view.query_place = places(n, [&](std::int64_t t) { return (t / size + shift) % groups; });
  view.key_place = places(n, [&](std::int64_t t) { return t / size; });
  return view;
}

HeadView summary_view(std::int64_t n, std::int64_t size, std::int64_t summary, bool own_group) {
  const auto summarises = [&](std::int64_t t) { return t % size >= size - summary; };
  HeadView view = group_view(n, size);
  view.reach = own_group ? 0 : -1;
  for (std::int64_t t = 0; t < n; ++t) {
    if (summarises(t)) view.key_place[static_cast<std::size_t>(t)] = kSeenByAll;
  }
  std::stable_partition(view.order.begin(), view.order.end(), summarises);
  return view;
}

std::int64_t block_for(std::int64_t size) {
  if (size <= kLargestBlock) return size;
  return ceil_div(size, ceil_div(size, kUsualBlock));
}

HeadViews::HeadViews(std::vector<HeadView> views, std::int64_t block)
    : views_(std::move(views)), block_(block) {
  for (const HeadView& view : views_) lists_.push_back(lists(view));
}

BlockLists::Lists HeadViews::lists(const HeadView& view) const {
  const std::size_t n = view.order.size(), c = static_cast<std::size_t>(block_);
  const std::size_t blocks = ceil_div(n, c);
  std::vector<char> by_all(blocks);                            // blocks that everybody lists
  std::vector<std::pair<std::int32_t, std::size_t>> by_place;  // place and block of other keys
  for (std::size_t s = 0; s < n; ++s) {
    const std::int32_t place = view.key_place[static_cast<std::size_t>(view.order[s])];
    if (place == kSeenByAll) {
      by_all[s / c] = 1;
    } else {
      by_place.emplace_back(place, s / c);
    }
  }
  std::sort(by_place.begin(), by_place.end());

  BlockLists::Lists lists;
  for (std::size_t i = 0; i < blocks; ++i) {
    std::vector<char> listed = by_all;
    std::vector<std::int32_t> queries;
    for (std::size_t s = i * c; s < std::min((i + 1) * c, n); ++s) {
      queries.push_back(view.query_place[static_cast<std::size_t>(view.order[s])]);
    }
    std::sort(queries.begin(), queries.end());
    std::size_t done = 0;  // keys before it are listed already or too low for what follows
    for (const std::int32_t place : queries) {
      const auto first = std::lower_bound(by_place.begin(), by_place.end(),
                                          std::pair(place - view.reach, std::size_t{0}));
      done = std::max(done, static_cast<std::size_t>(first - by_place.begin()));
      for (; done < by_place.size() && by_place[done].first <= place + view.reach; ++done) {
        listed[by_place[done].second] = 1;
      }
    }
    lists.emplace_back();
    for (std::size_t j = 0; j < blocks; ++j) {
      if (listed[j] != 0) lists.back().push_back(static_cast<std::int32_t>(j));
    }
  }
  return lists;
}

bool HeadViews::sees_whole_blocks(std::size_t view) const {
  const HeadView& v = views_[view];
  const std::vector<Range> queries = block_ranges(v.order, v.query_place, block_);
  const std::vector<Range> keys = block_ranges(v.order, v.key_place, block_);
  for (std::size_t i = 0; i < queries.size(); ++i) {
    for (const std::int32_t j : lists_[view][i]) {
      const Range& key = keys[static_cast<std::size_t>(j)];
      if (key.empty()) continue;  // seen by all
      if (queries[i].high - key.low > v.reach || key.high - queries[i].low > v.reach) return false;
    }
  }
  return true;
}

BlockForward HeadViews::attend(const Inputs& in) const {
  const std::size_t n = views_[0].order.size();
  ENSURE(static_cast<std::size_t>(in.q.size(2)) <= n, "attention: expected at most ", n,
         " tokens, the layer's nominal length, got q ", in.q);
  return block_forward(in.q, in.k, in.v, in.mask, pattern(in.q.device()), score_scale(in.q));
}

BlockBackward HeadViews::attend_backward(const Inputs& in, const BlockForward& saved,
                                         const Tensor& dout) const {
  return block_backward(in.q, in.k, in.v, in.mask, pattern(in.q.device()), score_scale(in.q), saved,
                        dout);
}

const BlockPattern& HeadViews::pattern(Device device) const {
  BlockPattern& pattern = patterns_[device];
  if (!pattern.begin.defined()) pattern = upload(device);
  return pattern;
}

BlockPattern HeadViews::upload(Device device) const {
  const auto count = static_cast<std::int64_t>(views_.size());
  const auto n = static_cast<std::int64_t>(views_[0].order.size());
  BlockPattern pattern;
  pattern.block = block_;

  // Lists of different heads get one length for each query block.
  std::vector<std::int32_t> begin = {0};
  for (std::size_t i = 0; i < lists_[0].size(); ++i) {
    std::size_t longest = 0;
    for (const BlockLists::Lists& lists : lists_) longest = std::max(longest, lists[i].size());
    begin.push_back(begin.back() + static_cast<std::int32_t>(longest));
  }
  set_rows(pattern, begin, device);
  const auto total = static_cast<std::size_t>(begin.back());
  std::vector<std::int32_t> entries, token, query_place, key_place, reach;
  bool in_order = true, whole = true;
  for (std::size_t a = 0; a < views_.size(); ++a) {
    const HeadView& view = views_[a];
    for (std::size_t i = 0; i < lists_[a].size(); ++i) {
      entries.insert(entries.end(), lists_[a][i].begin(), lists_[a][i].end());
      entries.resize(a * total + static_cast<std::size_t>(begin[i + 1]), -1);
    }
    token.insert(token.end(), view.order.begin(), view.order.end());
    token.resize((a + 1) * static_cast<std::size_t>(pattern.row_blocks * block_), -1);
    query_place.insert(query_place.end(), view.query_place.begin(), view.query_place.end());
    key_place.insert(key_place.end(), view.key_place.begin(), view.key_place.end());
    reach.push_back(view.reach);
    in_order = in_order && std::is_sorted(view.order.begin(), view.order.end());
    whole = whole && sees_whole_blocks(a);
  }
  pattern.entries = upload_integers(entries, {count, static_cast<std::int64_t>(total)}, device);
  if (!in_order) {
    pattern.token = upload_integers(token, {1, count, pattern.row_blocks * block_}, device);
  }
  if (!whole) {
    pattern.query_place = upload_integers(query_place, {count, n}, device);
    pattern.key_place = upload_integers(key_place, {count, n}, device);
    pattern.reach = upload_integers(reach, {count}, device);
  }
  return pattern;
}

Tensor HeadViews::pair_counts(std::int64_t n, const Tensor& like) const {
  std::vector<double> counts;
  for (const HeadView& view : views_) {
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        counts.push_back(view.sees(static_cast<std::size_t>(i), static_cast<std::size_t>(j)));
      }
    }
  }
  return Tensor::from(counts, {static_cast<std::int64_t>(views_.size()), n, n}, like.dtype(),
                      like.device());
}

double HeadViews::listed_pairs(std::size_t head) const {
  std::size_t blocks = 0;
  for (const auto& list : lists_[lists_.size() == 1 ? 0 : head]) blocks += list.size();
  return static_cast<double>(blocks) * static_cast<double>(block_ * block_);
}

Var ViewAttention::reference(const InputVars& in, const Tensor& mask, const Draws&,
                             const Call&) const {
  const Tensor times = views_.pair_counts(in.q.size(2), in.q.value());  // [1 or H, N, N]
  return counted_attention(in.q, in.k, in.v, times, mask);
}

Result ViewAttention::forward(const Inputs& in, const Draws&, const Call&) const {
  const BlockForward saved = views_.attend(in);
  return {saved.out, [=, this](const Tensor& dout) -> Gradients {
            const BlockBackward d = views_.attend_backward(in, saved, dout);
            return {d.dq, d.dk, d.dv, {}};
          }};
}

Var counted_attention(Var q, Var k, Var v, const Tensor& times, const Tensor& mask) {
  const std::int64_t b = mask.size(0), n = mask.size(1);
  const Tensor seen = tensor::multiply(times.reshape({1, times.size(0), n, n}),
                                       mask.reshape({b, 1, 1, n}));  // [B, 1 or H, N, N]
  const Var bias = q.tape().constant(tensor::unary(tensor::Unary::log, seen));
  const Var scores = affine(matmul(q, k, Op::none, Op::transpose), score_scale(q.value()));
  return matmul(softmax(scores + bias), v);
}

}  // namespace skytape::attention
