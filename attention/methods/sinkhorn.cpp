// Sparse Sinkhorn attention (Tay et al., ICML 2020): each block of b tokens attends to itself and
// to one other block, which a learned, soft permutation of the blocks puts in its place.
//
// A sorting network scores for each block which block it wants; Sinkhorn normalisation makes of the
// scores a matrix whose rows and columns sum to one, a permutation as its temperature falls. Keys
// and values of the blocks are mixed by it, and attention is local.
//
//   time     forward 4 b N D + 2 (N / b) N D multiply-adds per head, backward about twice that
//   memory   saved: keys and values next to the mixed ones, outputs, (N / b)^2 numbers for the
//            matrix and K potentials of length N / b; scores of tokens are made again, block by
//            block
//
// Deviations and choices:
//   - The paper scores a block by the sum of its embeddings; here by the mean of its keys, head by
//     head, as the arena's code does (with a sum): W_h can take up the factor.
//   - The arena's code mixes nothing: its einsum sums over the permutation's index by itself, so
//     that every block gets the sum of all blocks' keys, and its blocks are tokens that stand apart
//     (see local.cpp). Its runs have a softmax in place of the normalisation, which is an option
//     there, and its map of scores has a bias. It attends to either block by a softmax of its own
//     and adds the two outputs. None of this is here: one step (LRA below) is the nearest.
//   - One softmax goes over both blocks, as in the published package for PyTorch. That has 7 steps
//     and our temperature, of the logarithm of relu(L), with noise in evaluation, too; but unless
//     told to (non_permutative=False) it does not normalise: each block takes the one whose mean
//     key has the largest product with its mean query.
//   - Gumbel noise is added in training only, one number for each example, head and pair of blocks;
//     they are draws. gumbel = 0 leaves it out.
//   - Padding: a padded token is zero in the mix. A place in the mixed block counts if any block
//     has a real token at that place. Blocks without real tokens take no part in the permutation.
//   - The paper's SortCut, which keeps the first sorted blocks for all, is another method.
//   - W has a column for each block of the nominal length. A batch of N tokens has the first Q of
//     these blocks, the last one filled up: later ones would have no real token. Backward goes
//     through all steps of the normalisation.
//
// Shapes: B batch, H heads, N tokens, D head width, b tokens of a block, Q = ceil(N / b) blocks,
// P = Q b, n nominal tokens, Q_n their blocks, K steps of the normalisation. The reference has
// Q_n blocks for every batch.
#include <algorithm>
#include <cmath>

#include "attention/blocks/block_attention.hpp"
#include "attention/registry.hpp"
#include "attention/sequence/sequence.hpp"
#include "attention/sinkhorn/sinkhorn.hpp"
#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {
namespace {

struct Config {
  std::int64_t block = 64;    // b; LRA: 50
  std::int64_t steps = 8;     // K; LRA's code: a softmax, or 1
  double temperature = 0.75;  // LRA's code: 1
  bool gumbel = true;         // LRA's code: 0

  std::vector<Option> options() {
    return {Option::integer("block", block, 1, 4096, "tokens of a block"),
            Option::integer("steps", steps, 1, 1000, "steps of the Sinkhorn normalisation"),
            Option::real("temperature", temperature, 1e-3, 1e3,
                         "what scores of blocks are divided by: small, nearly a permutation"),
            Option::flag("gumbel", gumbel, "Gumbel noise on the scores of blocks in training")};
  }
};

/// Zeros are added to an axis up to `size`.
Tensor pad(const Tensor& x, int axis, std::int64_t size) {
  return x.size(axis) == size ? x : tensor::narrow_backward(x, axis, 0, size);
}

/// The first `size` entries of an axis.
Tensor first(const Tensor& x, int axis, std::int64_t size) {
  return x.size(axis) == size ? x : tensor::narrow(x, axis, 0, size);
}

/// Block i lists itself and the mixed block that follows all blocks; mixed ones ask for nothing.
BlockLists::Lists own_and_mixed(std::int64_t blocks) {
  BlockLists::Lists lists(static_cast<std::size_t>(2 * blocks));
  for (std::int64_t i = 0; i < blocks; ++i) {
    lists[static_cast<std::size_t>(i)] = {static_cast<std::int32_t>(i),
                                          static_cast<std::int32_t>(blocks + i)};
  }
  return lists;
}

/// The masks of blocks and of the tokens that queries may see.
struct Presence {
  Tensor blocks;  // [B, Q]: 1 where a block has a real token
  Tensor keys;    // [B, 2 P]: real tokens, then places of mixed blocks that count
};

class Sinkhorn final : public Method {
 public:
  Sinkhorn(const LayerContext& context, const Config& config)
      : config_(config), blocks_(ceil_div(context.nominal_length, config.block)) {
    weight_ =
        &context.store->add(context.prefix + "sort", {context.heads, context.head_width, blocks_},
                            normal_init(1 / std::sqrt(static_cast<double>(context.head_width))));
  }

  [[nodiscard]] std::vector<Parameter*> parameters() const override { return {weight_}; }

  Draws draw(const Inputs& in, const Call& call) const override {
    Draws draws;
    if (!config_.gumbel || !call.training) return draws;
    const Shape shape{in.q.size(0), in.q.size(1), blocks_, blocks_};
    ENSURE(!call.alone, "sinkhorn: noise is training's, where no example is alone");
    const std::int64_t first = call.first_example * shape[1] * blocks_ * blocks_;
    const Tensor uniform =
        tensor::uniform(shape, call.random, in.q.dtype(), in.q.device(), first);  // in (0, 1]
    const auto minus_log = [](const Tensor& x) {
      return tensor::affine(tensor::unary(tensor::Unary::log, x), -1);
    };
    draws.set("gumbel", minus_log(minus_log(tensor::affine(uniform, 1 - 1e-6, 5e-7))));
    return draws;
  }

  // ---- reference -------------------------------------------------------------------------------
  Var reference(const InputVars& in, const Tensor& mask, const Draws& draws,
                const Call&) const override {
    const Var q = in.q;
    const std::int64_t b = q.size(0), h = q.size(1), n = q.size(2), d = q.size(3);
    const std::int64_t c = config_.block, rows = blocks_ * c;
    Tape& tape = q.tape();
    const DType dtype = q.value().dtype();
    const Device device = q.value().device();
    const auto filled = [&](Var x) {  // [B, H, P, D]
      return concat({x, tape.constant(zeros_like(q.value(), {b, h, rows - n, d}))}, 2);
    };
    const Var keys = filled(mask_rows(in.k, mask)), values = filled(mask_rows(in.v, mask));
    const Var means = mean(reshape(keys, {b, h * blocks_, c, d}), 2);  // [B, H Q, D]
    const Var weight = expand(tape.parameter(*weight_), {b, h, d, blocks_});
    Var scores = matmul(reshape(means, {b, h, blocks_, d}), weight);  // [B, H, Q, Q]
    if (const Tensor* noise = draws.find("gumbel")) scores = scores + tape.constant(*noise);

    const Presence present = presence(mask, blocks_, c);
    std::vector<double> both, alone;  // [B, 1, Q, Q]: two blocks that are there; one that is not
    const std::vector<double> there = present.blocks.to_vector();
    for (std::int64_t e = 0; e < b * blocks_ * blocks_; ++e) {
      const std::int64_t i = e / blocks_, j = i / blocks_ * blocks_ + e % blocks_;
      both.push_back(there[static_cast<std::size_t>(i)] * there[static_cast<std::size_t>(j)]);
      alone.push_back(both.back() != 0 || (i == j && there[static_cast<std::size_t>(i)] == 0)
                          ? 0
                          : -std::numeric_limits<double>::infinity());
    }
    const auto constant = [&](const std::vector<double>& x) {
      return tape.constant(Tensor::from(x, {b, 1, blocks_, blocks_}, dtype, device));
    };
    scores = affine(scores, 1 / config_.temperature) * constant(both) + constant(alone);
    const auto normalised = [&](Var x) { return x - reshape(logsumexp(x), {b, h, blocks_, 1}); };
    for (std::int64_t step = 0; step < config_.steps; ++step) {
      scores = transpose(normalised(transpose(normalised(scores))));
    }
    const Var matrix = exp(scores);

    const Shape blocks{b, h * blocks_, c, d};
    const auto with_mixed = [&](Var x) {  // [B, H Q, 2 c, D]
      const Var mixed = matmul(matrix, reshape(x, {b, h, blocks_, c * d}));
      return concat({reshape(x, blocks), reshape(mixed, blocks)}, 2);
    };
    const auto seen = [&](std::int64_t first) {
      return tensor::narrow(present.keys, 1, first, first + rows).reshape({b, 1, blocks_, c});
    };
    const Tensor bias = tensor::unary(
        tensor::Unary::log,
        tensor::expand(tensor::concat({seen(0), seen(rows)}, 3), {b, h, blocks_, 2 * c}));
    const Var logits =
        affine(matmul(reshape(filled(q), blocks), with_mixed(keys), Op::none, Op::transpose),
               score_scale(q.value())) +
        tape.constant(bias.reshape({b, h * blocks_, 1, 2 * c}));
    return narrow(reshape(matmul(softmax(logits), with_mixed(values)), {b, h, rows, d}), 2, 0, n);
  }

  // ---- derivation ------------------------------------------------------------------------------
  // mu is the mask as a column that multiplies rows; k and v are [Q, b D] where R multiplies them.
  //   k = mu K,  v = mu V,  m_i = sum of the keys of block i / b                  (1)
  //   L_ij = m_i W_j,  S = (L + noise) / temperature among the blocks with tokens    (2)
  //   R = K steps of Sinkhorn normalisation of S                                  (3)
  //   k' = R k,  v' = R v                                                         (4)
  //   O_i = softmax attention of the queries of block i to [k_i; k'_i], [v_i; v'_i]  (5)
  //
  //   (5)  dQ, dk, dk', dv, dv'                                      block_attention.cpp
  //   (4)  dR = dk' k^T + dv' v^T    dk += R^T dk'    dv += R^T dv'
  //   (3)  dS from dR, through all steps                             sinkhorn.cpp
  //   (2)  dL = dS / temperature    dm_i = sum_j dL_ij W_j    dW_j = sum_i dL_ij m_i
  //   (1)  dk += dm of its block / b    dK = mu dk,  dV = mu dv

  struct Saved {
    Tensor q, mask;           // [B, H, N, D], [B, N]
    Tensor key_mask;          // [B, 2 P]
    Tensor keys, values;      // [k; k'], [v; v']: [B, H, 2 P, D]
    Tensor means, scores;     // m: [B, H, Q, D], S: [B, H, Q, Q]
    SinkhornForward sorting;  // R and its potentials
    BlockForward result;      // out: [B, H, 2 P, D], lse: [B, H, 2 P]; nothing in the second half
  };

  Result forward(const Inputs& in, const Draws& draws, const Call&) const override {
    const std::int64_t n = in.q.size(2), block = block_of(n);  // N, b
    const std::int64_t blocks = ceil_div(n, block);            // Q
    const std::int64_t rows = blocks * block;                  // P
    const Presence present = presence(in.mask, blocks, block);
    Saved s{in.q, in.mask, present.keys, {}, {}, {}, {}, {}, {}};
    const SegmentMeans of_k = segment_means(in.k, in.mask, 1, blocks, rows);  // (1)
    const Tensor k = pad(of_k.rows, 2, rows);                                 // [B, H, P, D]
    const Tensor v = pad(tensor::mask_rows(in.v, in.mask), 2, rows);
    s.means = of_k.means;
    Tensor noise;  // [B, H, Q, Q]; undefined: none
    if (const Tensor* all = draws.find("gumbel")) noise = first(first(*all, 2, blocks), 3, blocks);
    const Tensor wanted = tensor::matmul(s.means, weights(in.q.size(0), blocks));  // (2)
    s.scores = sinkhorn_scores(wanted, noise, present.blocks, config_.temperature);
    s.sorting = sinkhorn(s.scores, config_.steps);  // (3)
    s.keys = with_mixed(s.sorting.matrix, k);       // (4)
    s.values = with_mixed(s.sorting.matrix, v);
    s.result = block_forward(pad(in.q, 2, 2 * rows), s.keys, s.values, s.key_mask,
                             pattern(in.q.device(), blocks, block), score_scale(in.q));  // (5)
    const Tensor out = tensor::narrow(s.result.out, 2, 0, n);
    return {out, [this, s = std::move(s)](const Tensor& dout) { return backward(s, dout); }};
  }

  [[nodiscard]] Gradients backward(const Saved& s, const Tensor& dout) const {
    const std::int64_t n = s.q.size(2), block = block_of(n);
    const std::int64_t blocks = s.scores.size(3), rows = blocks * block;
    const BlockBackward d = block_backward(pad(s.q, 2, 2 * rows), s.keys, s.values, s.key_mask,
                                           pattern(dout.device(), blocks, block), score_scale(s.q),
                                           s.result, pad(dout, 2, 2 * rows));  // (5)
    Tensor dmatrix = empty_like(s.scores);                                     // [B, H, Q, Q]
    Tensor dk = unmixed(s.sorting.matrix, s.keys, d.dk, dmatrix, 0);           // (4): [B, H, P, D]
    const Tensor dv = unmixed(s.sorting.matrix, s.values, d.dv, dmatrix, 1);
    const Tensor dwanted = tensor::affine(sinkhorn_backward(s.scores, s.sorting, dmatrix),
                                          1 / config_.temperature);  // (3), (2)
    const Tensor dmeans =
        tensor::matmul(dwanted, weights(s.q.size(0), blocks), Op::none, Op::transpose);
    const Tensor dweight =
        pad(tensor::sum(tensor::matmul(s.means, dwanted, Op::transpose), 0), 2, blocks_);
    const auto unpadded = [&](const Tensor& x) { return tensor::narrow(x, 2, 0, n); };
    Tensor own_dk = unpadded(dk);                             // [B, H, N, D]
    segment_means_backward(dmeans, s.mask, 1, rows, own_dk);  // (1)
    return {unpadded(d.dq), own_dk, tensor::mask_rows(unpadded(dv), s.mask), {dweight}};
  }

 private:
  /// b; of a batch with fewer tokens these, as one block that is not filled up.
  [[nodiscard]] std::int64_t block_of(std::int64_t n) const {
    return std::clamp<std::int64_t>(n, 1, config_.block);
  }
  /// W's columns of the first blocks, for each example: [B, H, D, Q].
  [[nodiscard]] Tensor weights(std::int64_t batch, std::int64_t blocks) const {
    const Tensor columns = first(weight_->value, 2, blocks);
    return tensor::expand(columns, {batch, columns.size(0), columns.size(1), blocks});
  }
  [[nodiscard]] BlockPattern pattern(Device device, std::int64_t blocks, std::int64_t block) const {
    BlockPattern p = lists_.pattern(blocks, device, [&] { return own_and_mixed(blocks); });
    p.block = block;
    return p;
  }
  [[nodiscard]] static Presence presence(const Tensor& mask, std::int64_t blocks, std::int64_t c) {
    const std::int64_t b = mask.size(0), rows = blocks * c;
    const Tensor real = pad(mask, 1, rows).reshape({b, blocks, c});
    const Tensor places = tensor::max(real, 1).first.reshape({b, 1, c});
    const Tensor mixed = tensor::expand(places, {b, blocks, c}).reshape({b, rows});
    return {tensor::max(real, 2).first, tensor::concat({real.reshape({b, rows}), mixed}, 1)};
  }
  /// x: [B, H, P, D] as blocks, [B, H, Q, b D].
  [[nodiscard]] static Tensor as_blocks(const Tensor& x, std::int64_t blocks) {
    return x.reshape({x.size(0), x.size(1), blocks, x.size(2) / blocks * x.size(3)});
  }
  /// [x; R x]: [B, H, 2 P, D].
  [[nodiscard]] static Tensor with_mixed(const Tensor& matrix, const Tensor& x) {
    const Tensor mixed = tensor::matmul(matrix, as_blocks(x, matrix.size(3)));
    return tensor::concat({x, mixed.reshape(x.shape())}, 2);
  }
  /// dx: [B, H, P, D] from the gradient dy of y = [x; R x]; dR = d(R x) x^T + beta dR.
  [[nodiscard]] static Tensor unmixed(const Tensor& matrix, const Tensor& y, const Tensor& dy,
                                      Tensor& dmatrix, double beta) {
    const std::int64_t rows = y.size(2) / 2, blocks = matrix.size(3);  // P, Q
    const Tensor x = tensor::narrow(y, 2, 0, rows);
    const Tensor dmixed = tensor::narrow(dy, 2, rows, 2 * rows);
    tensor::gemm(as_blocks(dmixed, blocks), Op::none, as_blocks(x, blocks), Op::transpose, dmatrix,
                 1, beta);
    const Tensor dx = tensor::narrow(dy, 2, 0, rows);
    Tensor target = as_blocks(dx, blocks);
    tensor::gemm(matrix, Op::transpose, as_blocks(dmixed, blocks), Op::none, target, 1, 1);
    return dx;
  }

  Config config_;
  std::int64_t blocks_;  // Q_n
  Parameter* weight_;    // W: [H, D, Q_n]
  BlockLists lists_;
};

/// (5), (4) and (2) with full blocks.
Cost cost_at(const CostSizes& s) {
  const double block = std::min(static_cast<double>(Config().block), s.n);
  const double blocks = std::ceil(s.n / block);
  const double local = 2 * blocks * block * block * s.width;  // one product of (5)
  const double mixing = blocks * blocks * block * s.width, wanted = blocks * blocks * s.width;
  return {2 * local + 2 * mixing + wanted, 5 * local + 4 * mixing + 2 * wanted};
}

}  // namespace

Spec sinkhorn_spec() {
  Spec spec;
  spec.name = "sinkhorn";
  spec.paper = "Sparse Sinkhorn attention (Tay et al. 2020), sec. 3";
  spec.idea = "each block sees itself and a block that a learned sorting assigns to it";
  spec.cost = "4 b N D + 2 (N / b) N D";
  spec.cost_at = cost_at;
  spec.sequential = "O(K)";
  spec.memory = "6 N D, (N / b)^2 for the sorting matrix";
  spec.random = true;
  spec.exact = {{"one block", "softmax", {{"block", "64"}}, {}}};
  spec.samples = {{},
                  {{"block", "7"}, {"steps", "3"}},
                  {{"block", "16"}, {"steps", "1"}, {"temperature", "0.3"}, {"gumbel", "0"}}};
  return register_method<Sinkhorn, Config>(std::move(spec));
}

}  // namespace skytape::attention
