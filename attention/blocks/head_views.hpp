// The view of each head: a rule about places, and the lists of blocks that follow from it.
//
// A view gives each token a place as a query and one as a key; query i sees key j where the two
// places are within reach of one another, or where everybody sees j. Windows, groups and strides
// are all of this kind. The order of the slots only decides the cost: tokens that see the same keys
// should stand in the same blocks.
//
// Notation: B batch, H heads, N tokens, n nominal tokens, D head width, c rows of a block.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "attention/blocks/block_attention.hpp"
#include "attention/registry.hpp"

namespace skytape::attention {

struct HeadView {
  std::vector<std::int32_t> order;        // token of each slot: 0 … n - 1 in some order
  std::vector<std::int32_t> query_place;  // [n]
  std::vector<std::int32_t> key_place;    // [n], kSeenByAll for keys that every query sees
  std::int32_t reach = 0;                 // -1: nothing but those

  [[nodiscard]] bool sees(std::size_t i, std::size_t j) const;
};

/// Query i sees j where |i - j| is at most reach times `dilation`, and a multiple of the latter;
/// and everybody sees the first `globals` tokens.
[[nodiscard]] HeadView window_view(std::int64_t n, std::int64_t reach, std::int64_t dilation,
                                   std::int64_t globals = 0);
/// Consecutive groups of `size` tokens; those of group g see the group that lies `shift` further,
/// in a circle.
[[nodiscard]] HeadView group_view(std::int64_t n, std::int64_t size, std::int64_t shift = 0);
/// Everybody sees the last `summary` tokens of each `size`, and with `own_group` those of its own
/// group of `size` tokens.
[[nodiscard]] HeadView summary_view(std::int64_t n, std::int64_t size, std::int64_t summary,
                                    bool own_group);

/// Returns a block's number of rows for groups of `size` tokens, chosen so that few groups or none
/// straddle two blocks.
[[nodiscard]] std::int64_t block_for(std::int64_t size);

/// The views of all heads as a BlockPattern, computed once and uploaded at their first use: a step
/// that is repeated copies nothing to the device. Not for several threads at a time.
class HeadViews {
 public:
  /// One view for all heads, or one for each; all of n tokens.
  HeadViews(std::vector<HeadView> views, std::int64_t block);

  /// Softmax attention over the pairs that are seen, with scores q.k / sqrt D. A query that sees no
  /// real token gives zero. q, k, v: [B, H, N, D], mask: [B, N], N <= n.
  [[nodiscard]] BlockForward attend(const Inputs& in) const;
  [[nodiscard]] BlockBackward attend_backward(const Inputs& in, const BlockForward& saved,
                                              const Tensor& dout) const;

  /// Returns how often (0 or 1) each of the first N queries counts each key: [1 or H, N, N] as
  /// `like`.
  [[nodiscard]] Tensor pair_counts(std::int64_t n, const Tensor& like) const;
  /// Pairs of slots in the listed blocks of a head: what is computed, padding and all.
  [[nodiscard]] double listed_pairs(std::size_t head) const;

 private:
  /// Ascending key blocks of each query block of a view.
  [[nodiscard]] BlockLists::Lists lists(const HeadView& view) const;
  /// Returns whether each query of a block sees every key of the blocks that it lists.
  [[nodiscard]] bool sees_whole_blocks(std::size_t view) const;
  [[nodiscard]] const BlockPattern& pattern(Device device) const;
  [[nodiscard]] BlockPattern upload(Device device) const;

  std::vector<HeadView> views_;
  std::int64_t block_;
  std::vector<BlockLists::Lists> lists_;  // of each view
  mutable std::map<Device, BlockPattern> patterns_;
};

/// A method that is softmax attention over the pairs that its heads' views join.
class ViewAttention final : public Method {
 public:
  explicit ViewAttention(HeadViews views) : views_(std::move(views)) {}

  Var reference(const InputVars& in, const Tensor& mask, const Draws&, const Call&) const override;
  Result forward(const Inputs& in, const Draws&, const Call&) const override;

 private:
  HeadViews views_;
};

/// The row of such a method, whose layers have the views that `views_for` gives. The cost is that
/// of a head under the default settings.
template <class Config>
[[nodiscard]] Spec register_views(Spec spec,
                                  HeadViews (*views_for)(const Config&, const LayerContext&)) {
  spec.memory = "N per head (log-sum-exp of rows)";
  spec.cost_at = [views_for](const CostSizes& s) {
    LayerContext head;
    head.heads = 1;
    head.nominal_length = static_cast<std::int64_t>(s.n);
    const double pairs = views_for({}, head).listed_pairs(0);
    return Cost{2 * pairs * s.width, 5 * pairs * s.width};
  };
  return register_method(std::move(spec), Config{},
                         [views_for](const LayerContext& context, const Config& config) {
                           return std::make_unique<ViewAttention>(views_for(config, context));
                         });
}

/// The slow reference of block attention: softmax of q.k / sqrt D over real keys, each counted as
/// often as times says. q, k, v: [B, H, N, D], times: [1 or H, N, N], mask: [B, N].
[[nodiscard]] Var counted_attention(Var q, Var k, Var v, const Tensor& times, const Tensor& mask);

}  // namespace skytape::attention
