// BigBird attention (Zaheer et al., NeurIPS 2020): a window, global blocks and random blocks.
//
// The sequence is cut into blocks of b tokens. The first and the last block see everything and are
// seen by all; every other block of queries sees itself, its two neighbours, and r random blocks.
//
//   time     forward 2 (7 + r) b N D multiply-adds per head, backward 2.5 times that
//   memory   saved: queries, keys, values, out; scores are made again, block by block
//
// As the papers' code: the table of random blocks is drawn once and serves all examples and steps,
// a block may be drawn that is listed already and then counts twice (only with random_range =
// official: ours leaves such blocks out), and the output of padded queries is zero. Deviations: the
// table is in the checkpoint, each layer and head has its own, and random blocks come from the
// whole sequence (random_range = official: from its beginning, as the code does at these lengths);
// padded keys have weight zero instead of exp(-1e4 + score); N need not be a multiple of b, and
// with fewer than five blocks attention is dense (in Hugging Face's model up to 5 + 2 r blocks).
// Without any real token the output is zero.
//
// Shapes: B batch, H heads, N tokens, D head width, b rows of a block, Q = ceil(n / b) blocks for n
// nominal tokens, r random blocks.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "attention/blocks/bigbird_lists.hpp"
#include "attention/blocks/block_attention.hpp"
#include "attention/blocks/head_views.hpp"
#include "attention/registry.hpp"
#include "attention/sampling/require_rows.hpp"
#include "autograd/ops.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/kernels/elementwise.hpp"

namespace skytape::attention {
namespace {

struct Config {
  std::int64_t block = 64;             // b; LRA: 64
  std::int64_t random_blocks = 3;      // r; LRA: 3
  std::string random_range = "whole";  // LRA: official

  std::vector<Option> options() {
    return {Option::integer("block", block, 1, 4096, "tokens of a block"),
            Option::integer("random_blocks", random_blocks, 0, 64,
                            "random blocks of keys for each block of queries"),
            Option::choice("random_range", random_range, {"whole", "official"},
                           "where random blocks come from: the whole sequence or its beginning")
                .idle_if(random_blocks == 0, {"random_blocks"})};
  }
};

constexpr std::int64_t kFewestBlocks = 5;  // the window and both ends, all different

/// Blocks that row i (1 … Q - 2) may draw. whole: what its list does not hold yet.
std::vector<std::int32_t> whole_candidates(std::int64_t i, std::int64_t blocks) {
  std::vector<std::int32_t> candidates;
  for (std::int64_t j = 1; j < blocks - 1; ++j) {
    if (std::abs(i - j) > 1) candidates.push_back(static_cast<std::int32_t>(j));
  }
  return candidates;
}

/// official: the sets of the papers' code for blocks of `block` tokens.
std::vector<std::int32_t> official_candidates(std::int64_t i, std::int64_t blocks,
                                              std::int64_t block, std::int64_t random_blocks) {
  const std::int64_t length = blocks * block;
  const bool thousand = length == 1024 || length == 3072 || length == 4096;
  // Blocks 1 … last: of the first 1024 tokens, or of the first (2 r + 5) b but for the last.
  const std::int64_t last = thousand ? std::min(1024 / block - 1, blocks - 2)
                                     : std::min(2 * random_blocks + 3, blocks - 2);
  const bool free = thousand && i >= blocks - 3;  // nothing is left out in these rows
  std::vector<std::int32_t> candidates;
  for (std::int64_t j = 1; j <= last; ++j) {
    const bool window = std::abs(i - j) <= 1;
    const bool ends = !thousand && ((i == 1 && j == last) || (i == last && j == 1));
    if (free || (!window && !ends)) candidates.push_back(static_cast<std::int32_t>(j));
  }
  return candidates;
}

/// Draws the table [H, Q - 2, r] of random blocks: different ones in each row, -1 where a row has
/// fewer candidates.
Initialiser table_init(const Config& config, std::int64_t blocks) {
  return [config, blocks](const Shape& shape, const Random& random) {
    const std::int64_t heads = shape[0], drawn = shape[2];
    const Tensor numbers =  // [H, Q - 2, Q]: one for each candidate
        tensor::uniform({heads, blocks - 2, blocks}, random, DType::f64, Device::cpu);
    const double* uniform = numbers.data<double>();
    std::vector<double> table;
    for (std::int64_t row = 0; row < heads * (blocks - 2); ++row) {
      const std::int64_t i = 1 + row % (blocks - 2);
      std::vector<std::int32_t> left =
          config.random_range == "whole"
              ? whole_candidates(i, blocks)
              : official_candidates(i, blocks, config.block, config.random_blocks);
      std::sort(left.begin(), left.end(), [&](std::int32_t a, std::int32_t b) {
        return uniform[row * blocks + a] < uniform[row * blocks + b];
      });
      left.resize(static_cast<std::size_t>(drawn), -1);
      table.insert(table.end(), left.begin(), left.end());
    }
    return Tensor::from(table, shape, DType::f64, Device::cpu);
  };
}

/// Lists of the blocks that every head sees, with entry -2 - s in place of random block s.
BlockLists::Lists static_lists(std::int64_t blocks, std::int64_t drawn) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(blocks));
  std::iota(all.begin(), all.end(), 0);
  const auto last = static_cast<std::int32_t>(blocks - 1);
  BlockLists::Lists lists;
  for (std::int32_t i = 0; i < blocks; ++i) {
    if (blocks < kFewestBlocks || i == 0 || i == last) {
      lists.push_back(all);
      continue;
    }
    std::vector<std::int32_t> list = {0, i - 1, i, i + 1, last};
    if (i == 1) list = {0, 1, 2, last};
    if (i == last - 1) list = {0, last - 2, last - 1, last};
    for (std::int32_t s = 0; s < drawn; ++s) list.push_back(random_entry(s));
    lists.push_back(list);
  }
  return lists;
}

class BigBird final : public Method {
 public:
  BigBird(const LayerContext& context, const Config& config) : config_(config) {
    blocks_ = ceil_div(context.nominal_length, config.block);
    if (blocks_ < kFewestBlocks || config.random_blocks == 0) return;
    table_ = &context.store->add(context.prefix + "blocks",
                                 {context.heads, blocks_ - 2, config.random_blocks},
                                 table_init(config, blocks_), false);
  }

  // ---- reference -------------------------------------------------------------------------------
  Var reference(const InputVars& in, const Tensor& mask, const Draws& draws,
                const Call&) const override {
    const std::int64_t h = in.q.size(1), n = mask.size(1);
    const std::vector<double> counts = pair_counts(pattern(in.q.value(), draws), h, n);
    const Tensor times = Tensor::from(counts, {h, n, n}, mask.dtype(), mask.device());
    return mask_rows(counted_attention(in.q, in.k, in.v, times, mask), mask);
  }

  // ---- derivation ------------------------------------------------------------------------------
  // mu is the mask as a column that multiplies rows, G = dout.
  //   J_i = the blocks that the block of query i lists, with repetition       (1)
  //   P_i = softmax of q_i.k_j / sqrt D over the real keys j in J_i           (2)
  //   O_i = mu_i sum_j P_ij v_j                                               (3)
  //   dO = mu G, then as softmax attention; a key that is listed twice gets both parts
  // (2), (3) and their gradients happen block by block (block_attention.cpp).

  struct Saved {
    Inputs in;             // q, k, v: [B, H, N, D], mask: [B, N]
    BlockPattern pattern;  // (1)
    BlockForward result;   // out: [B, H, N, D], lse: [B, H, N]
    double scale;
  };

  Result forward(const Inputs& in, const Draws& draws, const Call&) const override {
    Saved s{in, pattern(in.q, draws), {}, score_scale(in.q)};                 // (1)
    s.result = block_forward(in.q, in.k, in.v, in.mask, s.pattern, s.scale);  // (2)
    s.result.out = tensor::mask_rows(s.result.out, in.mask);                  // (3)
    const Tensor out = s.result.out;
    return {out, [s = std::move(s)](const Tensor& dout) { return backward(s, dout); }};
  }

  static Gradients backward(const Saved& s, const Tensor& dout) {
    const Tensor g = tensor::mask_rows(dout, s.in.mask);  // (3)
    BlockBackward d =
        block_backward(s.in.q, s.in.k, s.in.v, s.in.mask, s.pattern, s.scale, s.result, g);  // (2)
    return {d.dq, d.dk, d.dv, {}};
  }

 private:
  /// Step (1): a draw "blocks" i32[H, Q - 2, r] replaces the table.
  [[nodiscard]] BlockPattern pattern(const Tensor& q, const Draws& draws) const {
    const Tensor* given = blocks_ < kFewestBlocks ? nullptr : draws.find("blocks");
    if (given != nullptr) {
      ENSURE(given->dtype() == DType::i32 && given->rank() == 3 && given->size(0) == q.size(1) &&
                 given->size(1) == blocks_ - 2,
             "bigbird: expected blocks i32[", q.size(1), ", ", blocks_ - 2, ", r], got ", *given);
      require_rows("bigbird: draws: blocks", *given, -1, blocks_);
    }
    const Tensor* table = given != nullptr ? given : table_ != nullptr ? &table_->value : nullptr;
    const std::int64_t drawn = table != nullptr ? table->size(2) : 0;
    BlockPattern p =
        lists_.pattern(drawn, q.device(), [&] { return static_lists(blocks_, drawn); });
    p.block = std::clamp<std::int64_t>(q.size(2), 1, config_.block);  // N: one block, not filled up
    if (table != nullptr) p.entries = fill_random_blocks(p, *table);
    return p;
  }

  /// Returns how often each query counts each key: [H, N, N].
  static std::vector<double> pair_counts(const BlockPattern& p, std::int64_t heads,
                                         std::int64_t n) {
    const std::vector<double> entries = p.entries.to_vector(), row = p.row.to_vector();
    const std::size_t total = row.size();
    std::vector<double> counts(static_cast<std::size_t>(heads * n * n));
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::size_t list = p.entries.size(0) == 1 ? 0 : static_cast<std::size_t>(h) * total;
      for (std::size_t e = 0; e < total; ++e) {
        if (entries[list + e] < 0) continue;
        const auto i = static_cast<std::int64_t>(row[e]) * p.block;
        const auto j = static_cast<std::int64_t>(entries[list + e]) * p.block;
        for (std::int64_t a = i; a < std::min(i + p.block, n); ++a) {
          for (std::int64_t c = j; c < std::min(j + p.block, n); ++c) {
            counts[static_cast<std::size_t>((h * n + a) * n + c)] += 1;
          }
        }
      }
    }
    return counts;
  }

  Config config_;
  std::int64_t blocks_ = 0;     // Q
  Parameter* table_ = nullptr;  // [H, Q - 2, r], constant; null if nothing is drawn
  BlockLists lists_;            // by the number of random blocks
};

/// Five blocks of which the table completes every list: block 1 misses 3, block 3 misses 1.
Draws complete_lists(const Inputs& in) {
  std::vector<std::int32_t> table;
  for (std::int64_t h = 0; h < in.q.size(1); ++h) table.insert(table.end(), {3, -1, 1});
  Draws draws;
  draws.set("blocks", Tensor::from(table, {in.q.size(1), 3, 1}, DType::i32, in.q.device()));
  return draws;
}

/// Two products for each listed block, five in backward. Rows next to the ends list four blocks
/// and may draw Q - 4 others, the rest five and Q - 5.
Cost cost_at(const CostSizes& s) {
  const Config config;
  const double block = std::min(static_cast<double>(config.block), s.n);
  const auto drawn = static_cast<double>(config.random_blocks);
  const double blocks = std::ceil(s.n / block);
  double listed = blocks * blocks;
  if (blocks >= kFewestBlocks) {
    listed = 2 * blocks + 2 * (4 + std::min(drawn, blocks - 4)) +
             (blocks - 4) * (5 + std::min(drawn, blocks - 5));
  }
  const double one = listed * block * block * s.width;
  return {2 * one, 5 * one};
}

}  // namespace

Spec bigbird_spec() {
  Spec spec;
  spec.name = "bigbird";
  spec.paper = "BigBird (Zaheer et al. 2020), sec. 2";
  spec.idea = "window, global and random blocks";
  spec.cost = "2 (7 + r) b N D";
  spec.cost_at = cost_at;
  spec.paper_cost = [](const CostSizes& s) { return 5 * s.n * s.features * s.width; };
  spec.memory = "N per head (log-sum-exp of rows)";
  spec.exact = {{"five blocks, the table completes each list",
                 "softmax",
                 {{"block", "13"}, {"random_blocks", "1"}},
                 complete_lists},
                {"fewer than five blocks", "softmax", {{"block", "20"}}, {}}};
  spec.samples = {{},
                  {{"block", "5"}},
                  {{"block", "4"}, {"random_blocks", "2"}, {"random_range", "official"}},
                  {{"block", "3"}, {"random_blocks", "0"}}};
  return register_method<BigBird, Config>(std::move(spec));
}

}  // namespace skytape::attention
