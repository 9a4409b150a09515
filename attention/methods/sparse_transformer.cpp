// Sparse Transformer attention (Child et al. 2019, sec. 4): two sparse patterns that together join
// any two tokens in two steps.
//
//   fixed     (a) the tokens of one's own group of l; (b) the last c tokens of every group, which
//             sum up their groups for all
//   strided   (a) a window of l tokens to each side; (b) every l-th token, counted from one's own
//
// Every head sees both (merged), or the heads take turns (interleaved): even ones have (a), odd
// ones (b), one further in each layer, so that a single head alternates from layer to layer.
//
//   time     forward 2 (l + c N / l) N D multiply-adds per head for fixed merged patterns, backward
//            2.5 times that. Interleaved heads cost the part that they see: l and c N / l keys for
//            each query, or 2 l and N / l
//   memory   saved: queries, keys, values, out, one log-sum-exp per row
//
// Tokens of a stride, and all summaries, stand together in the order in which rows are computed: so
// the cost is what is seen, up to the ends of blocks.
//
// Deviations and choices:
//   - Not causal: each token sees both sides, as an encoder needs. The paper's model looks back
//     only, and so does the arena's code but for a CLS token.
//   - Fixed, merged, l = 128 and c = 32 are what the arena's layer has without arguments; its runs
//     have 50 and 10. There the first token of each group is a summary as well. The paper's own
//     choice is strided for images and fixed for text, with l near sqrt N and c of 8 to 32.
//   - The two strided patterns cannot be merged: no order of the tokens serves both.
//   - A query that meets no real token gives zero. Groups are counted at the nominal length, and a
//     sequence shorter than l is one group.
//
// Shapes: B batch, H heads, N tokens, D head width, l stride, c summary tokens of a group.
#include <algorithm>

#include "attention/blocks/head_views.hpp"
#include "attention/registry.hpp"

namespace skytape::attention {
namespace {

struct Config {
  std::string pattern = "fixed";  // LRA: fixed
  std::string heads = "merged";   // LRA: merged
  std::int64_t stride = 128;      // l; LRA: 50
  std::int64_t summary = 32;      // c; LRA: 10

  std::vector<Option> options() {
    return {Option::choice("pattern", pattern, {"fixed", "strided"},
                           "groups and their summaries, or a window and every stride-th token"),
            Option::choice("heads", heads, {"merged", "interleaved"},
                           "every head sees both parts of the pattern, or they take turns"),
            Option::integer("stride", stride, 1, 1 << 20, "tokens of a group, or of a stride"),
            Option::integer("summary", summary, 1, 1 << 20,
                            "tokens of a group that everybody sees, at most stride")
                .idle_if(pattern == "strided", {"pattern"})
                .idle_if(stride == 1, {"stride"})};
  }
};

constexpr std::int64_t kBlock = 64;  // rows that are computed together

/// Returns the view of head h of a layer: both parts of the pattern, or the first if layer + h is
/// even.
HeadView view_for(const Config& config, std::int64_t turn, std::int64_t n) {
  const std::int64_t stride = std::min(config.stride, n);
  if (config.heads == "merged") return summary_view(n, stride, config.summary, true);
  const bool first = turn % 2 == 0;
  if (config.pattern == "fixed") {
    return first ? group_view(n, stride) : summary_view(n, stride, config.summary, false);
  }
  return first ? window_view(n, stride, 1) : window_view(n, n, stride);
}

// ---- derivation --------------------------------------------------------------------------------
//   fixed     A_i = {j : floor(j / l) = floor(i / l)}     B_i = {j : j mod l >= l - c}
//   strided   A_i = {j : |i - j| <= l}                    B_i = {j : i - j = 0 mod l}
//   J_i = A_i + B_i, or one of them, by head                                            (1)
//   P_i = softmax of q_i.k_j / sqrt D over the real keys j in J_i                       (2)
//   O_i = sum_j P_ij v_j                                                                (3)
// J is constant to the derivative; (2) and (3) have that of softmax attention, block by block:
// ViewAttention (head_views.hpp), forward and backward.
// Saved: q, k, v: [B, H, N, D], mask: [B, N]; out: [B, H, N, D], lse: [B, H, N].

HeadViews views_for(const Config& config, const LayerContext& context) {
  if (config.pattern == "strided" && config.heads == "merged") {
    throw UsageError(
        "sparse_transformer.pattern: strided needs sparse_transformer.heads=interleaved");
  }
  std::vector<HeadView> views;
  for (std::int64_t h = 0; h < (config.heads == "merged" ? 1 : context.heads); ++h) {
    views.push_back(view_for(config, context.layer + h, context.nominal_length));
  }
  return {std::move(views), kBlock};
}

}  // namespace

Spec sparse_transformer_spec() {
  Spec spec;
  spec.name = "sparse_transformer";
  spec.paper = "Sparse Transformer (Child et al. 2019), sec. 4; LRA: fixed, merged";
  spec.idea = "own group and the summaries of all, or a window and a stride";
  spec.cost = "2 (l + c N / l) N D";
  spec.exact = {{"one group", "softmax", {{"stride", "64"}}, {}},
                {"stride 1", "softmax", {{"stride", "1"}}, {}}};
  spec.samples = {{},
                  {{"stride", "8"}, {"summary", "2"}},
                  {{"stride", "8"}, {"summary", "3"}, {"heads", "interleaved"}},
                  {{"stride", "6"}, {"pattern", "strided"}, {"heads", "interleaved"}}};
  return register_views(std::move(spec), views_for);
}

}  // namespace skytape::attention
