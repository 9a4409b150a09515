// Reformer attention (Kitaev et al., ICLR 2020): locality-sensitive hashing with shared queries and
// keys, as the Skyformer and Skeinformer papers use it.
//
// Queries serve as keys, scaled to unit length. Tokens are hashed by random rotations, so that
// similar ones tend to share a bucket, and sorted by bucket; each chunk of c sorted tokens attends
// to itself and the chunk before. Several rounds of this are combined by their row sums.
//
//   time     hashing N R W D, attention 4 R N c D multiply-adds per head, backward 10 R N c D
//   memory   saved: queries, keys, values and R rounds of outputs; scores are made again
//
// As in the library layer of the papers' code, and unlike the Reformer paper: tokens of different
// buckets in a chunk see each other, a token that is met in two rounds counts in both, and the
// first chunk of a round sees the last one of the round before (of the last round, for the first).
// A token counts for itself only if it meets no other. Up to c tokens attend densely, unhashed.
// Deviations: N need not be a multiple of c, and a batch that was trimmed to N tokens keeps the
// chunks of the nominal length; the missing slots hold no token. Padded keys have weight zero
// rather than exp(-1e9), which is the same since a chunk contains the query itself; so a padded
// token that meets no real one gets its own value, and so do all where there is no real token.
//
// Shapes: B batch, H heads, N tokens, D head width, R rounds, c rows of a chunk, P = R ceil(n / c)
// c slots for n nominal tokens, W = half the buckets (or half the sum of their two factors).
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "attention/blocks/block_attention.hpp"
#include "attention/registry.hpp"
#include "attention/selection/lsh.hpp"
#include "autograd/ops.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {
namespace {

struct Config {
  std::int64_t hashes = 2;   // R; LRA: 2
  std::int64_t chunk = 64;   // c; LRA: 64
  std::int64_t buckets = 0;  // 0: from the length, as the library does; LRA: 0

  std::vector<Option> options() {
    return {Option::integer("hashes", hashes, 1, 64, "rounds of hashing"),
            Option::integer("chunk", chunk, 1, 65536, "tokens of a chunk"),
            Option::integer("buckets", buckets, 0, 65536,
                            "buckets of a round, an even number; 0: 2 length / chunk, rounded "
                            "down to a power of two")};
  }
};

/// One or two factors whose product is the number of buckets: many are hashed in two parts.
std::vector<std::int64_t> bucket_factors(const Config& config, std::int64_t nominal_length) {
  if (config.buckets % 2 != 0) {
    throw UsageError(join("reformer.buckets: expected an even number, got ", config.buckets));
  }
  if (config.buckets > 0) return {config.buckets};
  int power = 0;
  const std::int64_t chunks = nominal_length / config.chunk;
  while ((std::int64_t{2} << power) <= 2 * chunks) ++power;
  const auto root = static_cast<std::int64_t>(std::sqrt(static_cast<double>(chunks)));
  if ((std::int64_t{1} << power) <= 2 * std::max(root, config.chunk)) {
    return {std::int64_t{1} << power};
  }
  return {std::int64_t{1} << (power / 2), std::int64_t{1} << (power - power / 2)};
}

/// W: columns of a round's rotations.
std::int64_t rotation_width(const std::vector<std::int64_t>& factors) {
  return std::accumulate(factors.begin(), factors.end(), std::int64_t{0}) / 2;
}

/// Each chunk lists the one before it, in a circle, and itself.
BlockLists::Lists chunk_lists(std::int32_t chunks) {
  if (chunks == 1) return {{0}};
  BlockLists::Lists lists;
  for (std::int32_t i = 0; i < chunks; ++i) lists.push_back({(i + chunks - 1) % chunks, i});
  return lists;
}

class Reformer final : public Method {
 public:
  Reformer(const LayerContext& context, const Config& config)
      : config_(config),
        nominal_length_(context.nominal_length),
        factors_(bucket_factors(config, context.nominal_length)) {}

  Draws draw(const Inputs& in, const Call& call) const override {
    Draws draws;
    if (dense(in.q.size(2))) return draws;
    const Shape shape{in.q.size(1), in.q.size(3), config_.hashes, rotation_width(factors_)};
    draws.set("rotations", tensor::normal(shape, call.random, in.q.dtype(), in.q.device()));
    return draws;
  }

  // ---- reference -------------------------------------------------------------------------------
  Var reference(const InputVars& in, const Tensor& mask, const Draws& draws,
                const Call&) const override {
    const Var q = in.q, v = in.v;
    const std::int64_t b = q.size(0), h = q.size(1), n = q.size(2), d = q.size(3);
    const BlockPattern p = pattern(q.value(), mask, draws);
    const std::int64_t c = p.block, chunks = p.row_blocks, per = p.entries.size(1) / chunks;
    const Var rho = reciprocal(sqrt(affine(mean(square(q), 3, true), 1, 1e-6)));  // [B, H, N, 1]
    const Var k = affine(q * rho, 1 / std::sqrt(d));                              // [B, H, N, D]
    // Row n of each array stands for "no token".
    const Var nothing = q.tape().constant(zeros_like(q.value(), {b, h, 1, d}));
    const auto extend = [&](Var x) { return concat({x, nothing}, 2); };  // [B, H, N + 1, D]
    const Windows w = windows(p, mask, b * h, n);
    const Shape tiles{b, h * chunks, c, d};
    const Shape wide{b, h * chunks, per * c, d};
    const Device device = q.value().device();
    const DType dtype = q.value().dtype();
    const Shape scores_shape{b, h * chunks, c, per * c};
    const auto index = [&](const std::vector<std::int32_t>& list) {
      const auto size = static_cast<std::int64_t>(list.size()) / (b * h);
      return Tensor::from(list, {b, h, size}, DType::i32, device);
    };
    const Var rows = reshape(gather_rows(extend(q), index(w.rows)), tiles);
    const Var keys = reshape(gather_rows(extend(k), index(w.keys)), wide);
    const Var values = reshape(gather_rows(extend(v), index(w.keys)), wide);
    const Var scores = matmul(rows, keys, Op::none, Op::transpose) *
                           q.tape().constant(Tensor::from(w.factor, scores_shape, dtype, device)) +
                       q.tape().constant(Tensor::from(w.bias, scores_shape, dtype, device));
    const Var out = reshape(matmul(softmax(scores), values), {b, h, chunks * c, d});
    if (!p.slot.defined()) return narrow(out, 2, 0, n);
    const Var lse = reshape(logsumexp(scores), {b, h, chunks * c, 1});
    std::vector<Var> outs, sums;  // of each round: [B, H, N, D], [B, H, N, 1]
    for (std::int64_t r = 0; r < config_.hashes; ++r) {
      const Tensor slot = tensor::narrow(p.slot, 2, r, r + 1).reshape({b, h, n});
      outs.push_back(gather_rows(out, slot));
      sums.push_back(gather_rows(lse, slot));
    }
    const Var weights = softmax(concat(sums, 3));  // [B, H, N, R]
    Var y;                                         // [B, H, N, D]
    for (std::int64_t r = 0; r < config_.hashes; ++r) {
      const Var part = outs[static_cast<std::size_t>(r)] * narrow(weights, 3, r, r + 1);
      y = r == 0 ? part : y + part;
    }
    return y;
  }

  // ---- derivation ------------------------------------------------------------------------------
  // x are the shared queries and keys, G = dout, per round r where an index says so.
  //   k_j = x_j rho_j / sqrt D,  rho = (mean(x^2) + 1e-6)^(-1/2)                              (1)
  //   slots: tokens sorted by bucket, round by round; each chunk lists itself and the last    (2)
  //   O_r = softmax(x k^T) V over the listed real keys, own key last;  l_r = log of row sums  (3)
  //   O = sum_r w_r O_r,  w = softmax_r(l)                                                    (4)
  //
  //   (4)  dO_r = w_r G   dl_r = w_r (G.O_r - sum_s w_s G.O_s)
  //   (3)  dx, dk, dV                                                     block_attention.cpp
  //   (1)  dx += (rho dk - x rho^3 mean(dk x)) / sqrt D
  // Buckets, and with them (2), are constant to the derivative.

  struct Saved {
    Inputs in;             // q, v: [B, H, N, D], mask: [B, N]
    Tensor k;              // [B, H, N, D]
    BlockPattern pattern;  // the slots of (2)
    BlockForward rounds;   // out: [B, H, P, D], lse: [B, H, P]; unhashed: N for P
  };

  Result forward(const Inputs& in, const Draws& draws, const Call&) const override {
    Saved s{in, unit_keys(in.q), pattern(in.q, in.mask, draws), {}};   // (1), (2)
    s.rounds = block_forward(in.q, s.k, in.v, in.mask, s.pattern, 1);  // (3)
    const Tensor out = s.pattern.slot.defined()                        // [B, H, N, D]
                           ? combine_rounds(s.rounds.out, s.rounds.lse, s.pattern.slot)  // (4)
                           : s.rounds.out;
    return {out, [s = std::move(s)](const Tensor& dout) { return backward(s, dout); }};
  }

  static Gradients backward(const Saved& s, const Tensor& dout) {
    RoundGradients g{dout, {}};
    if (s.pattern.slot.defined()) {
      g = combine_rounds_backward(s.rounds.out, s.rounds.lse, s.pattern.slot, dout);  // (4)
    }
    BlockBackward d = block_backward(s.in.q, s.k, s.in.v, s.in.mask, s.pattern, 1, s.rounds, g.dout,
                                     g.dlse);                    // (3)
    tensor::accumulate(d.dq, unit_keys_backward(s.in.q, d.dk));  // (1)
    return {d.dq, {}, d.dv, {}};
  }

 private:
  [[nodiscard]] std::int64_t length(std::int64_t n) const { return std::max(n, nominal_length_); }
  [[nodiscard]] bool dense(std::int64_t n) const { return length(n) <= config_.chunk; }

  /// Step (2). A draw "buckets" i32[B, H, R N] replaces hashing.
  [[nodiscard]] BlockPattern pattern(const Tensor& q, const Tensor& mask,
                                     const Draws& draws) const {
    const std::int64_t n = q.size(2);
    const std::int64_t per_round = ceil_div(length(n), config_.chunk);  // chunks
    const auto chunks = static_cast<std::int32_t>(dense(n) ? 1 : config_.hashes * per_round);
    BlockPattern p = lists_.pattern(chunks, q.device(), [=] { return chunk_lists(chunks); });
    p.block = config_.chunk;
    p.avoid_self = true;
    if (dense(n)) return p;
    const SortedSlots slots = sort_slots(sort_keys(q, mask, draws), per_round * p.block);
    p.token = slots.token;
    p.slot = slots.slot;
    return p;
  }

  /// Minus the buckets: [B, H, R, N].
  [[nodiscard]] Tensor sort_keys(const Tensor& q, const Tensor& mask, const Draws& draws) const {
    if (const Tensor* given = draws.find("buckets")) {
      const Shape shape{q.size(0), q.size(1), config_.hashes, q.size(2)};
      ENSURE(given->numel() == shape.numel(),
             "reformer: expected buckets i32[B, H, R N] = ", shape.numel(), " of them, got ",
             *given);
      return tensor::affine(given->to(q.dtype()).reshape(shape), -1);
    }
    return negative_buckets(q, draws.get("rotations"), mask, factors_);
  }

  /// The indices that the reference gathers by: for each head the token of each slot, and of each
  /// key of each chunk (n for none); factor and bias of each pair's score.
  struct Windows {
    std::vector<std::int32_t> rows, keys;
    std::vector<double> factor, bias;
  };
  static Windows windows(const BlockPattern& p, const Tensor& mask, std::int64_t groups,
                         std::int64_t n) {
    const std::int64_t c = p.block, slots = p.row_blocks * c, heads = groups / mask.size(0);
    const std::int64_t per = p.entries.size(1) / p.row_blocks;
    const std::vector<double> real = mask.to_vector(), entries = p.entries.to_vector();
    const std::vector<double> token = p.token.defined() ? p.token.to_vector() : real;
    Windows w;
    for (std::int64_t g = 0; g < groups; ++g) {
      const auto token_at = [&](std::int64_t s) {
        const auto t = static_cast<std::int64_t>(
            p.token.defined() ? token[static_cast<std::size_t>(g * slots + s)] : s);
        return t < 0 || t >= n ? n : t;
      };
      for (std::int64_t i = 0; i < p.row_blocks; ++i) {
        const std::size_t first = w.keys.size();
        for (std::int64_t e = 0; e < per * c; ++e) {
          const auto block =
              static_cast<std::int64_t>(entries[static_cast<std::size_t>(i * per + e / c)]);
          w.keys.push_back(static_cast<std::int32_t>(token_at(block * c + e % c)));
        }
        for (std::int64_t r = 0; r < c; ++r) {
          const std::int64_t own = token_at(i * c + r);
          w.rows.push_back(static_cast<std::int32_t>(own));
          for (std::int64_t e = 0; e < per * c; ++e) {
            const std::int64_t key = w.keys[first + static_cast<std::size_t>(e)];
            const bool self = key == own && key < n;
            const bool padding =
                key == n || real[static_cast<std::size_t>(g / heads * n + key)] == 0;
            w.factor.push_back(self || padding ? 0 : 1);
            w.bias.push_back(self      ? kSelfScore
                             : padding ? -std::numeric_limits<double>::infinity()
                                       : 0);
          }
        }
      }
    }
    return w;
  }

  Config config_;
  std::int64_t nominal_length_;
  std::vector<std::int64_t> factors_;
  BlockLists lists_;  // by the number of chunks
};

/// Rotations, and each chunk with itself and the one before; backward five products of the latter.
Cost cost_at(const CostSizes& s) {
  const Config config;
  const auto n = static_cast<std::int64_t>(s.n);
  const auto chunk = static_cast<double>(config.chunk), rounds = static_cast<double>(config.hashes);
  if (n <= config.chunk) return {2 * chunk * chunk * s.width, 5 * chunk * chunk * s.width};
  const auto width = static_cast<double>(rotation_width(bucket_factors(config, n)));
  const double pairs = rounds * std::ceil(s.n / chunk) * 2 * chunk * chunk;
  return {2 * pairs * s.width + rounds * s.n * width * s.width, 5 * pairs * s.width};
}

}  // namespace

Spec reformer_spec() {
  Spec spec;
  spec.name = "reformer";
  spec.paper = "Reformer (Kitaev et al. 2020), sec. 2; LRA: shared QK, no bucket mask";
  spec.idea = "tokens sorted by random hashes attend within chunks";
  spec.cost = "4 R N c D + N R W D";
  spec.cost_at = cost_at;
  spec.sequential = "O(log N)";  // sorting
  spec.memory = "(R + 1) N D per head (rounds of outputs, keys)";
  spec.approximates = "shared_qk";
  spec.shared_qk = true;
  spec.random = true;
  spec.samples = {{},
                  {{"chunk", "16"}},
                  {{"chunk", "8"}, {"hashes", "3"}, {"buckets", "6"}},
                  {{"chunk", "2"}, {"hashes", "1"}}};
  return register_method<Reformer, Config>(std::move(spec));
}

}  // namespace skytape::attention
