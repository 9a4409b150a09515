// Skeinformer (Chen et al., NAACL 2022) and its ablations: column sampling, adaptive row
// normalisation, pilot sampling reutilisation.
//
// A few pilot rows of the attention matrix, computed in full, tell which columns matter. d columns
// are sampled, in proportion to their norm times that of their value; all columns left out share,
// in each row, the geometric mean of that row's sampled entries. Finally the pilot rows, known
// exactly, replace their approximations.
//
//   name              columns    normalisation                        pilot rows reused
//   skeinformer       sampled    adaptive: rest filled by the mean    yes
//   skein_nopilot     sampled    adaptive                             no
//   skein_uniform     uniform    adaptive                             no (keep_pilot)
//   skein_simplenorm  sampled    softmax over the sampled columns     no (keep_pilot)
//   skein_nonorm      sampled    exact row sums: quadratic time       no (keep_pilot)
//
//   time     multiply-adds per head: forward 4 N S D, drawing columns N S D, backward 10 N S D.
//            Ablations: forward 2 N S D, drawing 2 N S D (uniform: none), backward 5 N S D; nonorm
//            adds N^2 D to forward and 3 N^2 D to backward
//   memory   saved: masked q, k, v and out; scores are made again. Drawing: N S per head, none for
//            uniform
//
// The idea of this implementation. The geometric mean of a row's sampled entries exp(q.k_c) is
// exp(q.k'), k' the mean of the sampled keys. So adaptive normalisation is exactly softmax
// attention over d + 1 keys: the sampled ones, and k' with the mean value of the columns left out,
// counted m - d times. Pilots, simple normalisation and exact row sums are softmax attention too,
// so tiled.hpp does all the work, stably and without any N x S array. Only the drawing of columns
// makes one: the pilots' scores.
//
// Deviations. From the paper: as the authors' code, columns are drawn without replacement, nonorm
// has no weights 1 / (d p) (weighted = 1 draws with replacement and has them), the ablations drop
// the pilot rows as well (keep_pilot = 1 keeps them), and rest means real tokens. From their code:
// a pilot row that was drawn twice gets its gradient once (pilot_gradient = official counts every
// copy, which is not the gradient), and no exponential overflows. As there, one d serves the whole
// batch, the smallest number of tokens less one if that is below `features` (feature_limit =
// example: each example has its own, as it has where answers are asked for). Padded queries are
// zero vectors, except with weighted = 1, where they stay as they are. Without any real token the
// output is zero.
//
// Shapes: B batch, H heads, N queries and keys, S slots (features, or N if that is less), d slots
// in use, m real tokens, D head width.
#include <algorithm>
#include <cmath>

#include "attention/registry.hpp"
#include "attention/sampling/require_rows.hpp"
#include "attention/sampling/sampling.hpp"
#include "attention/sampling/skein_slots.hpp"
#include "attention/tiled/tiled.hpp"
#include "autograd/ops.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/gather.hpp"
#include "tensor/movement/layout.hpp"

namespace skytape::attention {
namespace {

enum class Columns { sampled, uniform };
enum class Normaliser { adaptive, selected, exact };

/// The parts that distinguish the five methods.
struct Parts {
  std::string name;
  Columns columns = Columns::sampled;
  Normaliser normaliser = Normaliser::adaptive;
  bool pilot_rows = true;       // the full method reuses them
  bool may_keep_pilot = false;  // an ablation that may, too
};

struct Config {
  Parts parts;
  std::int64_t features = 128;          // S; papers: 128 (Skyformer), 256 (Skeinformer)
  std::string feature_limit = "batch";  // LRA: batch
  std::string pilot_gradient = "true";  // LRA: official
  bool keep_pilot = false;              // LRA: 0
  bool weighted = false;                // LRA: 0

  [[nodiscard]] bool reuses_pilots() const { return parts.pilot_rows || keep_pilot; }
  [[nodiscard]] bool needs_pilots() const {
    return reuses_pilots() || parts.columns == Columns::sampled;
  }

  std::vector<Option> options() {
    std::vector<Option> all = {
        Option::integer("features", features, 1, 65536, "sampled columns, and pilot rows"),
        Option::choice("feature_limit", feature_limit, {"batch", "example"},
                       "whose number of tokens, less one, bounds the features")};
    if (parts.may_keep_pilot) {
      all.push_back(Option::flag("keep_pilot", keep_pilot, "reuse the pilot rows"));
    }
    if (parts.pilot_rows || parts.may_keep_pilot) {
      all.push_back(Option::choice("pilot_gradient", pilot_gradient, {"true", "official"},
                                   "official counts a pilot row as often as it was drawn")
                        .idle_if(!reuses_pilots(), {"keep_pilot"}));
    }
    if (parts.normaliser == Normaliser::exact) {
      all.push_back(
          Option::flag("weighted", weighted, "columns with replacement and weights 1 / (d p)"));
    }
    return all;
  }
};

/// x times one number per example. x: [B, H, n, D], factor: [B].
Tensor scale_examples(const Tensor& x, const Tensor& factor) {
  return tensor::multiply(x, factor.reshape({factor.size(0), 1, 1, 1}));
}

/// Rows first n of axis 2, and the one after them.
Tensor first_rows(const Tensor& x, std::int64_t n) { return tensor::narrow(x, 2, 0, n); }
Tensor next_row(const Tensor& x, std::int64_t n) { return tensor::narrow(x, 2, n, n + 1); }

Tensor with_row(const Tensor& x, const Tensor& row) { return tensor::concat({x, row}, 2); }

class Skeinformer final : public Method {
 public:
  Skeinformer(const LayerContext& context, const Config& config)
      : config_(config), nominal_length_(context.nominal_length) {}

  Draws draw(const Inputs& in, const Call& call) const override {
    enum Purposes : std::uint64_t { kPilot = 1, kColumns };
    Draws draws;
    const std::int64_t slots = std::min(config_.features, in.q.size(2));
    const bool own = config_.feature_limit == "example" || call.alone;
    const FeatureLimit limit{config_.features, own};
    const Tensor used = slots_in_use(limit, in.mask, call);  // i32[B]
    if (config_.needs_pilots()) {
      const Tensor* given = call.given("pilot");
      if (given != nullptr) require_rows("skeinformer: draws: pilot", *given, -1, in.q.size(2));
      draws.set("pilot", given != nullptr
                             ? *given
                             : draw_pilots(in.mask, used, slots, call.random.fork(kPilot)));
    }
    const bool complete =
        call.given("columns") != nullptr && (!config_.weighted || call.given("prob") != nullptr);
    if (complete) return draws;

    const Tensor weights = weigh_columns(in, draws);  // [B, H, N], with what it caches
    const std::int64_t heads = in.q.size(1);
    RowNumbers numbers{call.random.fork(kColumns), call.first_example * heads,
                       std::max(nominal_length_, in.q.size(2))};
    if (call.alone) numbers = {numbers.random, 0, numbers.row_length, heads};
    if (config_.weighted) draws.set("prob", normalise(weights));
    const auto sample = config_.weighted ? sample_with_replacement : sample_without_replacement;
    draws.set("columns", limit_slots(sample(weights, slots, numbers), used));
    return draws;
  }

  // ---- reference -------------------------------------------------------------------------------
  // The formulas of the paper, with N x S matrices and without the idea above.
  Var reference(const InputVars& in, const Tensor& mask, const Draws& draws,
                const Call&) const override {
    const Var q = in.q, k = in.k, v = in.v;
    Tape& tape = q.tape();
    const std::int64_t n = q.size(2);
    const double s = std::sqrt(score_scale(q.value()));
    const Var x = config_.weighted ? affine(q, s) : mask_rows(q, mask, s);  // [B, H, N, D]
    const Var y = mask_rows(k, mask, s), u = mask_rows(v, mask);            // [B, H, N, D]
    const Var bias = tape.constant(key_bias(mask));                         // [B, 1, 1, N]
    const ColumnSlots c = column_slots(draws.get("columns"), mask);
    const Var scores = matmul(x, gather_rows(y, c.index), Op::none, Op::transpose);  // [B,H,N,S]
    const Var values = mask_rows(gather_rows(u, c.index), c.used);                   // [B,H,S,D]
    const auto spread = [&](const Tensor& t, int trailing) {  // [B] or [B, S] for [B, H, N, S]
      return tape.constant(t.reshape({mask.size(0), 1, 1, trailing == 1 ? 1 : t.size(1)}));
    };
    const Var used = spread(c.used, 0);  // [B, 1, 1, S]
    Var out;                             // [B, H, N, D]
    if (config_.parts.normaliser == Normaliser::adaptive) {
      const Var a = exp(scores) * used;                                             // [B, H, N, S]
      const Var g = exp(sum(scores * used, 3, true) * spread(c.inverse_count, 1));  // [B, H, N, 1]
      const Var rest_value = sum(u, 2, true) - sum(values, 2, true);                // [B, H, 1, D]
      const Tensor rest = tensor::narrow(c.weights, 1, c.used.size(1), c.weights.size(1));
      const Var none = tape.constant(no_token(mask));  // [B, 1, 1, 1]
      const Var divisor = sum(a, 3, true) + g * spread(rest, 1) + none;
      out = (matmul(a, values) + g * rest_value) / divisor;
    } else if (config_.parts.normaliser == Normaliser::selected) {
      const Var log_used = tape.constant(
          tensor::unary(tensor::Unary::log, used.value()));  // [B, 1, 1, S]: 0 or -inf
      out = matmul(softmax(scores + log_used), values);
    } else {
      const Var all = softmax(matmul(x, y, Op::none, Op::transpose) + bias);
      const Tensor index = c.index;                                // i32[B, H, S]
      Var picked = transpose(gather_rows(transpose(all), index));  // [B, H, N, S]
      if (config_.weighted) {
        const Tensor w = importance(c, draws.get("prob"), n);  // [B, H, S]
        picked = picked * tape.constant(w.reshape({w.size(0), w.size(1), 1, w.size(2)}));
      }
      out = matmul(picked, values);
    }
    if (!config_.reuses_pilots()) return out;
    const PilotSlots j = pilot_slots(draws.get("pilot"), mask, false);
    const Var pilots = gather_rows(x, j.index);  // [B, H, S, D]
    const Var exact = matmul(softmax(matmul(pilots, y, Op::none, Op::transpose) + bias), u);
    return mask_rows(out, j.others) + scatter_rows(mask_rows(exact, j.first), j.index, n);
  }

  // ---- derivation ------------------------------------------------------------------------------
  // mu is the mask as a column that multiplies rows, A(Q, K, V; w) softmax attention whose key j
  // counts w_j times: rows sum_j w_j exp(q.k_j / sqrt D) v_j / (sum_j w_j exp(q.k_j / sqrt D)). J
  // are the pilot rows, C the sampled columns, d of them, m the number of real tokens, G = dout.
  //   X = mu Q   Y = mu K   U = mu V                                                          (1)
  //   adaptive  k' = mean of Y[C]   v' = (sum of U - sum of U[C]) / (m - d)                   (2)
  //             O = A(X, [Y[C]; k'], [U[C]; v']; 1, …, 1, m - d)                              (3)
  //   selected  O = A(X, Y[C], U[C]; 1)                                                       (3)
  //   exact     V_c = U[C], or U[C] / (d p_C);  O_c = A(X, Y[C], V_c; 1), row sums exp(l)     (3)
  //             O = exp(l - l') O_c, exp(l') the row sums over all real tokens                (4)
  //   rows J of O  =  A(X[J], Y, U; mask)                                                     (5)
  //
  //   (5)  G_J = rows J of G, each once; the rest of the backward sees G with zeros there
  //   (4)  dO_c = exp(l - l') G   dl = row_sum(G O) = -dl'
  //   (3)  by tiled.hpp
  //   (2)  dY[C] += dk' / d   dU += dv' / (m - d) in all rows, U[C] once less
  //   (1)  dQ = mu dX   dK = mu dY   dV = mu dU
  // The choice of rows and columns is constant to the derivative; so are the p.

  /// Softmax attention on sampled columns and what went into it.
  struct Sampled {
    ColumnSlots slots;
    Tensor weights;      // [B, S] or, adaptive, [B, S + 1]
    Tensor k, v;         // [B, H, S or S + 1, D]
    Tensor factors;      // [B, H, S]: 1 / (d p) or undefined
    TiledForward tiled;  // out: [B, H, N, D], lse: [B, H, N]
  };
  struct Saved {
    Inputs in;           // X, Y, U: [B, H, N, D], mask: [B, N]
    Sampled columns;     // (2), (3)
    TiledForward exact;  // lse: [B, H, N] of (4)
    Tensor out;          // [B, H, N, D], for (4)
    PilotSlots pilots;   // (5)
    Tensor pilot_q;      // [B, H, S, D]: X[J]
    TiledForward pilot;  // out: [B, H, S, D], lse: [B, H, S]
    TiledOptions options;
  };

  Result forward(const Inputs& in, const Draws& draws, const Call&) const override {
    Saved s;
    s.options.scale = score_scale(in.q);
    const Tensor* const x = draws.cached("queries");
    s.in = {x != nullptr ? *x : queries(in), tensor::mask_rows(in.k, in.mask),
            tensor::mask_rows(in.v, in.mask), in.mask};  // (1)
    s.columns = attend_columns(s, draws);                // (2), (3)
    Tensor out = s.columns.tiled.out;                    // [B, H, N, D]
    if (config_.parts.normaliser == Normaliser::exact) {
      s.exact = tiled_forward(s.in.q, s.in.k, {}, in.mask, s.options);  // (4)
      out = tensor::multiply(out, row_factor(s));                       // (4)
      s.out = out;
    }
    if (config_.reuses_pilots()) {
      s.pilots = pilot_slots(draws.get("pilot"), in.mask, config_.pilot_gradient == "official");
      s.pilot_q = tensor::gather_rows(s.in.q, s.pilots.index);
      if (const Tensor* const rows = draws.cached("pilot_rows")) {
        s.pilot = {*rows, *draws.cached("pilot_lse")};  // (5), on the way to the columns
      } else {
        s.pilot = tiled_forward(s.pilot_q, s.in.k, s.in.v, in.mask, s.options);  // (5)
      }
      out = tensor::mask_rows(out, s.pilots.others);  // (5)
      tensor::scatter_add_rows(out, s.pilots.index,
                               tensor::mask_rows(s.pilot.out, s.pilots.first));  // (5)
    }
    return {out, [config = config_, s = std::move(s)](const Tensor& dout) {
              return backward(config, s, dout);
            }};
  }

  static Gradients backward(const Config& config, const Saved& s, const Tensor& dout) {
    const bool reuses_pilots = config.reuses_pilots();
    const Normaliser normaliser = config.parts.normaliser;
    const Tensor& mask = s.in.mask;
    const Tensor g = reuses_pilots ? tensor::mask_rows(dout, s.pilots.others) : dout;  // (5)
    Tensor dg = g, dlse;  // of the sampled columns: [B, H, N, D], [B, H, N]
    TiledBackward total;  // dX, dY, dU: [B, H, N, D]
    if (reuses_pilots) {
      const Tensor rows = tensor::mask_rows(  // [B, H, S, D]: G_J
          tensor::gather_rows(dout, s.pilots.index), s.pilots.gradient);
      total = tiled_backward(s.pilot_q, s.in.k, s.in.v, mask, s.options, s.pilot, rows);  // (5)
    }
    if (normaliser == Normaliser::exact) {
      dlse = tensor::row_dot(g, s.out);         // (4)
      dg = tensor::multiply(g, row_factor(s));  // (4)
    }
    const Sampled& c = s.columns;
    TiledBackward d = tiled_backward(s.in.q, c.k, c.v, c.weights, s.options, c.tiled, dg, dlse);
    if (reuses_pilots) {
      tensor::scatter_add_rows(d.dq, s.pilots.index, total.dq);  // (5)
    } else {
      total.dk = zeros_like(s.in.k);
      total.dv = zeros_like(s.in.v);
    }
    if (normaliser == Normaliser::exact) {
      const TiledBackward e = tiled_backward(s.in.q, s.in.k, {}, mask, s.options, s.exact, {},
                                             tensor::affine(dlse, -1));  // (4)
      tensor::accumulate(d.dq, e.dq);
      tensor::accumulate(total.dk, e.dk);
    }
    add_columns(c, normaliser == Normaliser::adaptive, d, total);  // (2)
    return {config.weighted ? d.dq : tensor::mask_rows(d.dq, mask),
            tensor::mask_rows(total.dk, mask),
            tensor::mask_rows(total.dv, mask),
            {}};  // (1)
  }

 private:
  /// Weights that columns are drawn by: [B, H, N]. Caches X and, where they are reused, the pilots'
  /// exact attention. Keys and values of padding have no weight, masked or not; where a mask has
  /// holes a pilot may be padding, which weighs all keys alike.
  [[nodiscard]] Tensor weigh_columns(const Inputs& in, Draws& draws) const {
    if (config_.parts.columns == Columns::uniform) {
      const std::int64_t b = in.mask.size(0), n = in.mask.size(1);
      return tensor::expand(in.mask.reshape({b, 1, n}), {b, in.q.size(1), n});
    }
    const Tensor pilots = draws.get("pilot"), x = queries(in);  // i32[B, S], [B, H, N, D]
    const Tensor places = pilot_slots(pilots, in.mask, false).index;
    const TiledOptions options = softmax_scores(in.q);
    draws.cache("queries", x);
    Tensor rows = tensor::gather_rows(x, places), lse;  // [B, H, S, D], [B, H, S]
    if (config_.reuses_pilots()) {
      const TiledForward pilot = tiled_forward(rows, in.k, in.v, in.mask, options);  // (5)
      draws.cache("pilot_rows", pilot.out);
      draws.cache("pilot_lse", pilot.lse);
      lse = pilot.lse;
    }
    if (config_.weighted) rows = tensor::gather_rows(tensor::mask_rows(x, in.mask), places);
    if (config_.weighted || !lse.defined()) {
      lse = tiled_forward(rows, in.k, {}, in.mask, options).lse;
    }
    return column_weights(rows, lse, in.k, in.v, in.mask, pilots, options.scale);
  }

  /// X of (1).
  [[nodiscard]] Tensor queries(const Inputs& in) const {
    return config_.weighted ? in.q : tensor::mask_rows(in.q, in.mask);
  }

  /// Steps (2) and (3).
  [[nodiscard]] Sampled attend_columns(const Saved& s, const Draws& draws) const {
    Sampled c;
    c.slots = column_slots(draws.get("columns"), s.in.mask);
    c.k = tensor::mask_rows(tensor::gather_rows(s.in.k, c.slots.index), c.slots.used);
    c.v = tensor::mask_rows(tensor::gather_rows(s.in.v, c.slots.index), c.slots.used);
    c.weights = c.slots.used;
    if (config_.parts.normaliser == Normaliser::adaptive) {
      const Tensor mean =  // [B, H, 1, D]
          scale_examples(tensor::sum(c.k, 2, true), c.slots.inverse_count);
      const Tensor rest =  // [B, H, 1, D]
          tensor::subtract(tensor::sum(s.in.v, 2, true), tensor::sum(c.v, 2, true));
      c.k = with_row(c.k, mean);                                        // (2)
      c.v = with_row(c.v, scale_examples(rest, c.slots.inverse_rest));  // (2)
      c.weights = c.slots.weights;
    } else if (config_.weighted) {
      c.factors = importance(c.slots, draws.get("prob"), s.in.mask.size(1));
      c.v = tensor::multiply(c.v, c.factors.reshape(c.factors.shape().append(1)));
    }
    c.tiled = tiled_forward(s.in.q, c.k, c.v, c.weights, s.options);  // (3)
    return c;
  }

  /// Backward of (2): from the gradients of the sampled keys and values to those of all.
  static void add_columns(const Sampled& c, bool adaptive, const TiledBackward& d,
                          TiledBackward& total) {
    const std::int64_t slots = c.slots.used.size(1);
    Tensor dk = d.dk, dv = d.dv;  // [B, H, S or S + 1, D]
    if (adaptive) {
      const Tensor mean = scale_examples(next_row(d.dk, slots), c.slots.inverse_count);
      const Tensor rest = scale_examples(next_row(d.dv, slots), c.slots.inverse_rest);
      dk = tensor::add(first_rows(d.dk, slots), mean);
      dv = tensor::subtract(first_rows(d.dv, slots), rest);
      tensor::accumulate(total.dv, tensor::expand(rest, total.dv.shape()));
    } else if (c.factors.defined()) {
      dv = tensor::multiply(dv, c.factors.reshape(c.factors.shape().append(1)));
    }
    tensor::scatter_add_rows(total.dk, c.slots.index, tensor::mask_rows(dk, c.slots.used));
    tensor::scatter_add_rows(total.dv, c.slots.index, tensor::mask_rows(dv, c.slots.used));
  }

  /// exp(l - l') of (4): [B, H, N, 1].
  static Tensor row_factor(const Saved& s) {
    const Tensor factor = exp_difference(s.columns.tiled.lse, s.exact.lse);  // [B, H, N]
    return factor.reshape(factor.shape().append(1));
  }

  Config config_;
  std::int64_t nominal_length_;
};

/// All columns, in order: nothing is left to approximate.
Draws all_columns(const Inputs& in) {
  const std::int64_t n = in.q.size(2);
  std::vector<std::int32_t> columns, pilots;
  for (std::int64_t e = 0; e < in.q.shape().first(3).numel(); ++e) {
    columns.push_back(static_cast<std::int32_t>(e % n));
  }
  for (std::int64_t e = 0; e < in.q.size(0) * n; ++e) {
    pilots.push_back(static_cast<std::int32_t>(e * 5 % n / 2));  // some rows twice
  }
  const Device device = in.q.device();
  Draws draws;
  draws.set("columns", Tensor::from(columns, in.q.shape().first(3), DType::i32, device));
  draws.set("pilot", Tensor::from(pilots, {in.q.size(0), n}, DType::i32, device));
  return draws;
}

/// Attention to the columns (adaptive: and to the mean of the rest), of the pilot rows, exact row
/// sums, and to draw columns the pilots' scores and, unless their rows are wanted anyway, row sums.
Cost cost_at(const Config& config, const CostSizes& s) {
  const double slots = std::min(s.features, s.n - 1), one = s.n * s.width;
  const double columns = config.parts.normaliser == Normaliser::adaptive ? slots + 1 : slots;
  Cost cost{2 * columns * one, 5 * columns * one};
  if (config.parts.columns == Columns::sampled) {
    cost.forward += (config.reuses_pilots() ? 1 : 2) * slots * one;
  }
  if (config.reuses_pilots()) {
    cost.forward += 2 * slots * one;
    cost.backward += 5 * slots * one;
  }
  if (config.parts.normaliser == Normaliser::exact) {
    cost.forward += s.n * one;
    cost.backward += 3 * s.n * one;
  }
  return cost;
}

Spec spec_of(const Parts& parts, const std::string& paper, const std::string& idea,
             const std::string& cost) {
  Spec spec;
  spec.name = parts.name;
  spec.paper = paper;
  spec.idea = idea;
  spec.cost = cost;
  const bool sampled = parts.columns == Columns::sampled;
  const bool twice = parts.pilot_rows || parts.normaliser == Normaliser::exact;
  spec.memory = twice ? "4 N D" : "3 N D";
  spec.memory += parts.pilot_rows ? " + 4 S D" : " + 2 S D";
  if (sampled) spec.memory += "; N S per head while columns are drawn";
  spec.sequential = "O(log N)";  // the race of the columns
  spec.random = true;
  spec.per_example = false;  // the shortest example bounds the features of all
  spec.exact = {{"columns = all tokens", "softmax", {}, all_columns}};
  spec.samples = {{}, {{"features", "12"}}, {{"feature_limit", "example"}}};
  if (parts.may_keep_pilot) spec.samples.push_back({{"features", "12"}, {"keep_pilot", "1"}});
  if (parts.normaliser == Normaliser::exact) {
    spec.samples.push_back({{"features", "12"}, {"weighted", "1"}});
  }
  Config defaults;
  defaults.parts = parts;
  spec.cost_at = [defaults](const CostSizes& s) { return cost_at(defaults, s); };
  return register_method<Skeinformer>(std::move(spec), defaults);
}

}  // namespace

Spec skeinformer_spec() {
  Spec spec = spec_of({"skeinformer", Columns::sampled, Normaliser::adaptive, true, false},
                      "Skeinformer (Chen et al. 2022), algorithm 1",
                      "sampled columns, the rest filled by row means, exact pilot rows",
                      "4 N S D, drawing N S D");
  spec.paper_cost = [](const CostSizes& s) { return 4 * s.n * s.features * s.width; };
  return spec;
}
Spec skein_uniform_spec() {
  return spec_of({"skein_uniform", Columns::uniform, Normaliser::adaptive, false, true},
                 "Skeinformer (Chen et al. 2022), ablation: uniform sampling",
                 "columns drawn uniformly, the rest filled by row means", "2 N S D");
}
Spec skein_nonorm_spec() {
  return spec_of({"skein_nonorm", Columns::sampled, Normaliser::exact, false, true},
                 "Skeinformer (Chen et al. 2022), ablation: no row normalisation",
                 "sampled columns divided by exact row sums", "N^2 D + 2 N S D, drawing 2 N S D");
}
Spec skein_simplenorm_spec() {
  return spec_of({"skein_simplenorm", Columns::sampled, Normaliser::selected, false, true},
                 "Skeinformer (Chen et al. 2022), ablation: simple row normalisation",
                 "softmax over the sampled columns", "2 N S D, drawing 2 N S D");
}
Spec skein_nopilot_spec() {
  return spec_of({"skein_nopilot", Columns::sampled, Normaliser::adaptive, false, false},
                 "Skeinformer (Chen et al. 2022), ablation: no pilot reutilisation",
                 "sampled columns, the rest filled by row means", "2 N S D, drawing 2 N S D");
}

}  // namespace skytape::attention
