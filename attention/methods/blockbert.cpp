// BlockBERT (Qiu et al., Findings of EMNLP 2020, sec. 3): the sequence is cut into m blocks, and in
// each head every block of queries sees one block of keys, by a permutation of the head's own.
//
// The permutations are shifts: head by head, block i sees block i, i + 1, i + 2 … in a circle. With
// every shift in some head, one layer lets each token see all others.
//
//   time     forward 2 N^2 D / m multiply-adds per head, backward 2.5 times that
//   memory   saved: queries, keys, values, out, one log-sum-exp per row; scores are made in tiles
//
// Deviations and choices:
//   - The paper gives most heads the identity (of 12 heads 10 : 2 with m = 2, 8 : 2 : 2 with m =
//     3); head_counts = 10:2 says so. The default deals the shifts out in turn, which for few heads
//     is all that can be done.
//   - m need not divide N: blocks have ceil(n / m) of the n nominal tokens, the last one fewer.
//     Where fewer than m such blocks hold all tokens (6 tokens, m = 4: three of two), these are
//     all, and shifts go round them.
//   - A query whose block of keys is all padding gives zero. A shifted head of a short sequence in
//     a long batch therefore gives mostly zeros, as the paper's additive mask would give means of
//     padding.
//
// Shapes: B batch, H heads, N tokens, D head width, m blocks.
#include <numeric>

#include "attention/blocks/head_views.hpp"
#include "attention/registry.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::attention {
namespace {

struct Config {
  std::int64_t blocks = 2;  // m; the paper: 2 and 3
  std::string head_counts;  // the paper: 10:2 and 8:2:2, of 12 heads

  std::vector<Option> options() {
    return {
        Option::integer("blocks", blocks, 1, 4096, "blocks that the sequence is cut into, at most"),
        Option::list("head_counts", head_counts,
                     "how many heads shift by 0, by 1, …, all heads together; empty: in turn")
            .idle_if(blocks == 1, {"blocks"})};
  }
};

/// The shift of each head.
std::vector<std::int64_t> shifts(const Config& config, std::int64_t heads) {
  std::vector<std::int64_t> shifts;
  if (config.head_counts.empty()) {
    for (std::int64_t h = 0; h < heads; ++h) shifts.push_back(h % config.blocks);
    return shifts;
  }
  const auto counts = parse_list("blockbert.head_counts", config.head_counts);
  for (std::size_t shift = 0; shift < counts.size(); ++shift) {
    if (static_cast<std::int64_t>(shifts.size()) + counts[shift] > heads) break;
    shifts.insert(shifts.end(), static_cast<std::size_t>(counts[shift]),
                  static_cast<std::int64_t>(shift));
  }
  if (static_cast<std::int64_t>(counts.size()) > config.blocks ||
      std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) != heads) {
    throw UsageError(join("blockbert.head_counts: expected at most ", config.blocks,
                          " counts that add up to the ", heads, " heads, got ",
                          config.head_counts));
  }
  return shifts;
}

// ---- derivation --------------------------------------------------------------------------------
// pi_h(g) = (g + shift of head h) mod m, g(i) the block of token i, m the blocks that have tokens.
//   P_i = softmax of q_i.k_j / sqrt D over the real keys j with g(j) = pi_h(g(i))     (1)
//   O_i = sum_j P_ij v_j                                                              (2)
// The permutations are constants; (1) and (2) have the derivative of softmax attention, block by
// block: ViewAttention (head_views.hpp), forward and backward.
// Saved: q, k, v: [B, H, N, D], mask: [B, N]; out: [B, H, N, D], lse: [B, H, N].

HeadViews views_for(const Config& config, const LayerContext& context) {
  const std::int64_t n = context.nominal_length;
  const std::int64_t size = ceil_div(n, config.blocks);  // tokens of a block
  std::vector<HeadView> views;
  for (const std::int64_t shift : shifts(config, context.heads)) {
    views.push_back(group_view(n, size, shift));
  }
  return {std::move(views), block_for(size)};
}

}  // namespace

Spec blockbert_spec() {
  Spec spec;
  spec.name = "blockbert";
  spec.paper = "BlockBERT (Qiu et al. 2020), sec. 3";
  spec.idea = "each head's blocks of queries see blocks of keys by a permutation";
  spec.cost = "2 N^2 D / m";
  spec.exact = {{"one block", "softmax", {{"blocks", "1"}}, {}}};
  spec.samples = {{}, {{"blocks", "5"}}, {{"blocks", "3"}, {"head_counts", "1:1"}}};
  return register_views(std::move(spec), views_for);
}

}  // namespace skytape::attention
