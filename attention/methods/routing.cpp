// Routing attention (Roy et al., TACL 2021): tokens that point the same way attend to each other.
//
// A head keeps C centroids. Each takes the w queries and the w keys that point most nearly its way,
// which makes C clusters of one size, and each cluster attends within itself. What a query gets in
// several clusters is averaged. Centroids follow the queries and keys by online k-means: each moves
// toward the sum of those that it is the nearest to, once a step, without any gradient.
//
//   time     routing 2 N C D, attention 2 C w^2 D multiply-adds per head, backward 5 C w^2 D: with
//            C = sqrt N centroids and w = N / C all in all N^1.5 D
//   memory   saved: outputs of the C w slots, one log-sum-exp and a few numbers for each; scores
//            of tokens are made again. While clusters form, C N scores of each head
//
// Deviations and choices:
//   - The paper's text and its code differ in how centroids move. Text: mu <- decay mu + (1 -
//     decay) sum of the members / 2; code: averages of sums over averages of counts. Both point the
//     same way, and only direction decides which tokens a centroid takes: ours is the text's
//     without the factor. In the published package for PyTorch each step's sums are first scaled to
//     unit length.
//   - The centroid that a token moves is the one at the smallest angle. Both codes take the largest
//     product, in which a centroid's length counts; of sums, it would make full clusters fuller.
//   - Queries and keys are scaled to unit length, as in the package. The paper's code routes by
//     their layer norms without weights, which subtract the mean over the D entries first.
//   - Centroids begin in random directions, which the sums of the first steps outweigh: one step of
//     64,000 tokens, several of fewer. The package runs k-means on the first batch instead.
//   - Attention itself takes queries and keys as they are, scores q.k / sqrt D, as the package. The
//     paper's code attends by the layer norms, too, and does not divide their products by sqrt D.
//   - A mean over a query's clusters, as both codes; they add 1e-2 or 1e-5 to the number of
//     clusters. A query in no cluster gives zero: the layer's residual is what it keeps.
//   - The codes add a loss that pulls tokens to their centroids (weight 1e-4); the paper has none.
//   - Paper and codes give half the heads to local attention; here all heads route.
//   - Padded tokens join no cluster and move no centroid. Clusters are counted by the nominal
//     length.
//
// Shapes: B batch, H heads, N tokens, n nominal tokens, D head width, C centroids, w places of a
// cluster (at most N), P = C w slots.
#include <cmath>
#include <limits>

#include "attention/blocks/block_attention.hpp"
#include "attention/registry.hpp"
#include "attention/selection/clusters.hpp"
#include "attention/selection/lsh.hpp"
#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/kernels/elementwise.hpp"

namespace skytape::attention {
namespace {

struct Config {
  std::int64_t clusters = 0;  // C; paper: near sqrt n
  std::int64_t window = 0;    // w; paper: n / C
  double decay = 0.999;       // paper: 0.999

  std::vector<Option> options() {
    return {Option::integer("clusters", clusters, 0, 65536,
                            "clusters of a head; 0: sqrt(length), down to a power of two"),
            Option::integer("window", window, 0, 1 << 20,
                            "queries and keys of a cluster; 0: length / clusters"),
            Option::real("decay", decay, 1e-6, 1 - 1e-6,
                         "share of a centroid that a step leaves as it was")};
  }
};

/// C and w for n nominal tokens.
struct Sizes {
  std::int64_t clusters = 1, window = 1;

  Sizes(const Config& config, std::int64_t n) : clusters(config.clusters), window(config.window) {
    if (clusters == 0) {
      clusters = 1;
      while (4 * clusters * clusters <= n) clusters *= 2;
    }
    if (window == 0) window = ceil_div(n, clusters);
  }
};

/// Every block sees itself.
BlockLists::Lists own_blocks(std::int64_t blocks) {
  BlockLists::Lists lists;
  for (std::int64_t i = 0; i < blocks; ++i) lists.push_back({static_cast<std::int32_t>(i)});
  return lists;
}

class Routing final : public Method {
 public:
  Routing(const LayerContext& context, const Config& config)
      : sizes_(config, context.nominal_length) {
    centroids_ = &context.store->add_average(
        context.prefix + "centroids", {context.heads, sizes_.clusters, context.head_width},
        normal_init(1 / std::sqrt(static_cast<double>(context.head_width))), config.decay);
  }

  [[nodiscard]] std::vector<Parameter*> averages() const override { return {centroids_}; }

  // ---- reference -------------------------------------------------------------------------------
  // Cluster after cluster as masked attention of all to all.
  Var reference(const InputVars& in, const Tensor& mask, const Draws&, const Call&) const override {
    const Var q = in.q;
    const std::int64_t b = q.size(0), h = q.size(1), n = q.size(2);
    const std::vector<double> of_queries = members(q.value(), mask);
    const std::vector<double> of_keys = members(in.k.value(), mask);
    const auto slice = [&](const std::vector<double>& all,
                           std::int64_t c) {  // [B H N] of cluster c
      std::vector<double> x;
      for (std::int64_t e = 0; e < b * h * n; ++e) {
        x.push_back(all[static_cast<std::size_t>((e / n * sizes_.clusters + c) * n + e % n)]);
      }
      return x;
    };
    const auto constant = [&](const std::vector<double>& x, const Shape& shape) {
      return q.tape().constant(Tensor::from(x, shape, q.value().dtype(), q.value().device()));
    };
    const Var logits =
        affine(matmul(q, in.k, Op::none, Op::transpose), score_scale(q.value()));  // [B, H, N, N]
    std::vector<double> times(static_cast<std::size_t>(b * h * n), 0);  // clusters of each query
    Var total;                                                          // [B, H, N, D]
    for (std::int64_t c = 0; c < sizes_.clusters; ++c) {
      const std::vector<double> queries = slice(of_queries, c);
      std::vector<double> bias = slice(of_keys, c);
      for (double& x : bias) x = x != 0 ? 0 : -std::numeric_limits<double>::infinity();
      for (std::size_t e = 0; e < times.size(); ++e) times[e] += queries[e];
      const Var each = matmul(softmax(logits + constant(bias, {b, h, 1, n})), in.v);
      const Var part = each * constant(queries, {b, h, n, 1});
      total = c == 0 ? part : total + part;
    }
    for (double& x : times) x = x > 0 ? 1 / x : 0;
    return total * constant(times, {b, h, n, 1});
  }

  // ---- derivation ------------------------------------------------------------------------------
  // mu_c are the centroids, ^ scales to unit length, G = dout.
  //   A_c = the w real queries of largest q^.mu_c^,  J_c = the w real keys of largest k^.mu_c^ (1)
  //   O_ci = softmax over j in J_c of q_i.k_j / sqrt D, times v_j,  for i in A_c               (2)
  //   O_i = sum over the clusters c with i of w_i O_ci,  w_i = 1 / their number                (3)
  //   S_c = sum of the q^ and k^ whose nearest centroid is c                                   (4)
  //
  //   (3)  dO_ci = w_i G_i
  //   (2)  dq, dk, dv in the slots of the clusters (block_attention.cpp); a token's are added up
  // Clusters, and with them w, are constant to the derivative. (4) is what the step's sums get.

  struct Saved {
    Inputs in;               // q, k, v: [B, H, N, D], mask: [B, N]
    Clusters queries, keys;  // slots of (1): P each; the queries' have w of (3)
    BlockForward slots;      // (2), out: [B H, 1, P, D], lse: [B H, 1, P]
    Tensor sums;             // (4): [H, C, D]; undefined unless training
  };

  Result forward(const Inputs& in, const Draws&, const Call& call) const override {
    Saved s{in, {}, {}, {}, {}};
    s.queries = clusters(in.q, in.mask, call.training, s.sums);  // (1), (4)
    s.keys = clusters(in.k, in.mask, call.training, s.sums);
    s.slots = block_forward(slots(in.q, s.queries), slots(in.k, s.keys), slots(in.v, s.keys),
                            real_keys(s), pattern(in.q), score_scale(in.q));  // (2)
    const Tensor weighted = tensor::multiply(s.slots.out.reshape(slots_shape(in.q, s.queries)),
                                             s.queries.weight);  // [B, H, P, D]
    const Tensor out = from_slots(weighted, s.queries);          // (3)
    return {out, [this, s = std::move(s)](const Tensor& dout) { return backward(s, dout); }};
  }

  [[nodiscard]] Gradients backward(const Saved& s, const Tensor& dout) const {
    const Inputs& in = s.in;
    const Tensor dslots = grouped(to_weighted_slots(dout, s.queries));  // (3)
    const BlockBackward d =
        block_backward(slots(in.q, s.queries), slots(in.k, s.keys), slots(in.v, s.keys),
                       real_keys(s), pattern(in.q), score_scale(in.q), s.slots, dslots);  // (2)
    const auto added_up = [&](const Tensor& x, const Clusters& of) {
      return from_slots(x.reshape(slots_shape(in.q, of)), of);
    };
    Gradients g{added_up(d.dq, s.queries), added_up(d.dk, s.keys), added_up(d.dv, s.keys), {}};
    if (s.sums.defined()) g.sums = {s.sums};
    return g;
  }

 private:
  [[nodiscard]] std::int64_t window(std::int64_t n) const { return std::min(sizes_.window, n); }

  /// Step (1) of queries or of keys; adds their share of (4) to `sums`, if wanted.
  [[nodiscard]] Clusters clusters(const Tensor& x, const Tensor& mask, bool summed,
                                  Tensor& sums) const {
    const Tensor directions = unit_keys(x);
    const Tensor scores = cluster_scores(directions, centroids_->value, mask);
    if (summed) {
      const Tensor mine = nearest_sums(directions, scores, mask);
      sums = sums.defined() ? tensor::add(sums, mine) : mine;
    }
    return balanced_clusters(scores, mask, window(x.size(2)));
  }

  // Block attention has one mask for all heads of an example; slots hold other tokens in every
  // head, which therefore counts as a separate example.
  [[nodiscard]] static Shape slots_shape(const Tensor& q, const Clusters& of) {
    return q.shape().with(2, of.token.size(2));
  }
  [[nodiscard]] static Tensor grouped(const Tensor& x) {
    return x.reshape({x.size(0) * x.size(1), 1, x.size(2), x.size(3)});
  }
  [[nodiscard]] static Tensor slots(const Tensor& x, const Clusters& of) {
    return grouped(to_slots(x, of));
  }
  [[nodiscard]] static Tensor real_keys(const Saved& s) {
    return s.keys.used.reshape({s.keys.used.size(0) * s.keys.used.size(1), s.keys.used.size(2)});
  }
  [[nodiscard]] BlockPattern pattern(const Tensor& q) const {
    BlockPattern p = lists_.pattern(0, q.device(), [&] { return own_blocks(sizes_.clusters); });
    p.block = window(q.size(2));
    return p;
  }

  /// Returns how often each cluster has each real token, 0 or 1: [B, H, C, N].
  [[nodiscard]] std::vector<double> members(const Tensor& x, const Tensor& mask) const {
    Tensor none;
    const Clusters of = clusters(x, mask, false, none);
    const std::vector<double> token = of.token.to_vector(), used = of.used.to_vector();
    const std::int64_t n = x.size(2), w = window(n);
    std::vector<double> times(
        token.size() / static_cast<std::size_t>(w) * static_cast<std::size_t>(n), 0);
    for (std::size_t s = 0; s < token.size(); ++s) {
      const std::size_t cluster = s / static_cast<std::size_t>(w);
      times[cluster * static_cast<std::size_t>(n) + static_cast<std::size_t>(token[s])] = used[s];
    }
    return times;
  }

  Sizes sizes_;
  Parameter* centroids_;  // mu: [H, C, D]
  BlockLists lists_;
};

/// Both routings and the clusters, all full.
Cost cost_at(const CostSizes& s) {
  const auto n = static_cast<std::int64_t>(s.n);
  const Sizes sizes({}, n);
  const auto clusters = static_cast<double>(sizes.clusters);
  const auto window = static_cast<double>(std::min(sizes.window, n));
  const double local = clusters * window * window * s.width;  // one product of (2)
  return {2 * s.n * clusters * s.width + 2 * local, 5 * local};
}

}  // namespace

Spec routing_spec() {
  Spec spec;
  spec.name = "routing";
  spec.paper = "Routing Transformer (Roy et al. 2021), sec. 4";
  spec.idea = "tokens near the same centroid, which online k-means moves, attend to each other";
  spec.cost = "2 N C D + 2 C w^2 D";
  spec.cost_at = cost_at;
  spec.sequential = "O(log N)";  // choosing the largest
  spec.memory = "C w D per head (slots of outputs)";
  spec.exact = {{"one cluster", "softmax", {{"clusters", "1"}}, {}}};
  spec.samples = {{},
                  {{"clusters", "3"}, {"window", "20"}},
                  {{"clusters", "5"}, {"window", "4"}, {"decay", "0.9"}}};
  return register_method<Routing, Config>(std::move(spec));
}

}  // namespace skytape::attention
