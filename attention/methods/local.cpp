// Local attention, as the Long Range Arena (Tay et al., ICLR 2021) has it for a baseline: the
// sequence is cut into blocks of b tokens, and each token attends within its block.
//
//   time     forward 2 b N D multiply-adds per head, backward 2.5 times that; a window is computed
//            in blocks, which adds up to its half
//   memory   saved: queries, keys, values, out, one log-sum-exp per row
//
// Deviations and choices:
//   - The arena's code reshapes [N] to [b, blocks] where it means [blocks, b]: its blocks are made
//     of tokens that stand `blocks` apart, and its mask is cut the other way. form = official has
//     those blocks, with the right mask; the default has the consecutive ones that the text
//     describes.
//   - The code adds a block of padding even where N is a multiple of b; here there is none, and the
//     last block may be short.
//   - form = sliding: each token sees the b / 2 tokens on either side of it and itself, however the
//     blocks lie. The arena has no such baseline; it is Longformer's without global tokens.
//   - Blocks are cut at the nominal length. A query that meets no real token gives zero; padded
//     queries give what their block's real tokens say.
//
// Shapes: B batch, H heads, N tokens, D head width, b tokens of a block.
#include <algorithm>

#include "attention/blocks/head_views.hpp"
#include "attention/registry.hpp"
#include "tensor/core/tensor.hpp"

namespace skytape::attention {
namespace {

struct Config {
  std::int64_t block = 64;     // b; LRA's code: 20 unless told otherwise
  std::string form = "block";  // LRA: official

  std::vector<Option> options() {
    return {Option::integer("block", block, 1, 1 << 20,
                            "tokens of a block; of a sliding window, half on either side"),
            Option::choice("form", form, {"block", "official", "sliding"},
                           "view of a token: its block, tokens that are as many places apart "
                           "as there are blocks, or a window around it")
                .idle_if(block == 1, {"block"})};
  }
};

// ---- derivation --------------------------------------------------------------------------------
//   J_i = the tokens of i's block, or of its window                         (1)
//   P_i = softmax of q_i.k_j / sqrt D over the real keys j in J_i           (2)
//   O_i = sum_j P_ij v_j                                                    (3)
// J is constant to the derivative; (2) and (3) have that of softmax attention, block by block:
// ViewAttention (head_views.hpp), forward and backward.
// Saved: q, k, v: [B, H, N, D], mask: [B, N]; out: [B, H, N, D], lse: [B, H, N].

/// Returns the view that every head has.
HeadViews views_for(const Config& config, const LayerContext& context) {
  const std::int64_t n = context.nominal_length;
  const std::int64_t block = std::min(config.block, n);
  if (config.form == "sliding") {
    const std::int64_t reach = std::min(config.block / 2, n);
    return {{window_view(n, reach, 1)}, std::clamp<std::int64_t>(reach, 16, 64)};
  }
  if (config.form == "block") return {{group_view(n, block)}, block_for(block)};
  const std::int64_t blocks = ceil_div(n, block);
  return {{window_view(n, n, blocks)}, block_for(block)};
}

}  // namespace

Spec local_spec() {
  Spec spec;
  spec.name = "local";
  spec.paper = "Long Range Arena (Tay et al. 2021), baseline Local Attention";
  spec.idea = "each token attends within its block";
  spec.cost = "2 b N D";
  spec.exact = {
      {"one block", "softmax", {{"block", "64"}}, {}},
      {"a window over everything", "softmax", {{"form", "sliding"}, {"block", "128"}}, {}}};
  spec.samples = {{},
                  {{"block", "7"}},
                  {{"block", "200"}},
                  {{"block", "10"}, {"form", "official"}},
                  {{"block", "9"}, {"form", "sliding"}}};
  return register_views(std::move(spec), views_for);
}

}  // namespace skytape::attention
