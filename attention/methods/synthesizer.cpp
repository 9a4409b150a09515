// Synthesizer (Tay et al., ICML 2021, sec. 3): the logits of attention are made without comparing
// tokens. Option `logits`:
//   dense        from the query's own input: l_i = W2 relu(W1 x_i + b1) + b2, a logit per position
//   random       a trained table of all pairs, the same for every input: l_ij = R_ij
//   factorised   (default) such a table of low rank: l_ij = r_i.s_j
// Weights are softmax(l) over real keys, as usual; queries and keys have no part in them.
//
//   time      multiply-adds per head, with Z = max(F + 1, D):
//             dense        forward N E F + 2 N^2 Z, backward 2 N E F + 5 N^2 Z
//             random       forward N^2 (D + 1), backward 2 N^2 (D + 1)
//             factorised   likewise, and once for a whole batch N^2 K forward, 3 N^2 K backward
//   memory    O(N D): a tile of weights at a time is made, used and forgotten
//   learns    per head: dense N (F + 1) + F (E + 1) numbers, factorised 2 N K; random N^2, which
//             memory must hold with its gradient and the optimiser's moments
//
// dense is softmax attention with queries [relu(W1 x + b1), 1] and keys [W2, b2]: the shared tiles
// compute it. In the other forms all examples have the same weights before padding: these are made
// once for the batch, multiply the values of all examples in one product, and each example is
// divided by the sum over its own real keys. So a real key whose logit lies more than 87 (in f32)
// below the largest of its row counts nothing, even where that largest belongs to a padded
// position.
//
// Deviations and choices:
//   - There are as many logits as nominal positions; a shorter batch uses the first ones.
//   - shared = 1 has one W2, b2 for all heads, as LRA's code; in the paper each head has its own.
//     That code also reads its dense logits [B, N, H, N] as [B, H, N, N] without moving the axes,
//     so that heads and positions change places: this is not offered.
//   - F is the head width and K 32 unless set, as in LRA's code; the paper's K is 8. Tables start
//     as that code's: normal, 1 / sqrt(heads x size of the axis before the last, there).
//   - LRA's code can add q.k to the logits, one of the paper's mixtures: they are not offered.
//   - trained = 0 keeps a table as it was drawn: the paper's fixed random Synthesizer.
//   - No weights are dropped. A sequence without real tokens gives zero output and zero gradients.
//
// Shapes: B batch, H heads, N queries and keys, D head width, E width of the layer's input,
// F hidden width, K rank, A = H, or 1 where heads share, Z as above, P = D + 1, C rows of a tile,
// J = B P columns of U and T below.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "attention/linear/ratio.hpp"
#include "attention/registry.hpp"
#include "attention/tiled/tiled.hpp"
#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"
#include "tensor/norm/softmax.hpp"

namespace skytape::attention {
namespace {

/// C, the rows of a tile of weights: on a CPU as many as make 1 MiB of f32, which a cache holds, on
/// a GPU 256 MiB, since small products would leave it idle; at least 32.
std::int64_t rows_of_tile(std::int64_t n, Device device) {
  const std::int64_t numbers = std::int64_t{1} << (device == Device::cpu ? 18 : 26);
  return std::max<std::int64_t>(32, numbers / n);
}

struct Config {
  std::string logits = "factorised";  // LRA: factorised
  std::int64_t rank = 32;             // K; LRA: 32
  std::int64_t hidden = 0;            // F; 0: D. LRA: D
  bool shared = false;                // LRA: 1
  bool trained = true;                // LRA: 1

  std::vector<Option> options() {
    const bool dense = logits == "dense";
    return {
        Option::choice("logits", logits, {"dense", "random", "factorised"},
                       "what logits come from: inputs, a table, a table of low rank"),
        Option::integer("rank", rank, 1, 1024, "of the factorised table")
            .idle_if(logits != "factorised", {"logits"}),
        Option::integer("hidden", hidden, 0, 1024, "width of dense's hidden layer; 0: a head's")
            .idle_if(!dense, {"logits"}),
        Option::flag("shared", shared, "dense: one map from hidden values to logits for all heads")
            .idle_if(!dense, {"logits"}),
        Option::flag("trained", trained, "0: tables keep their initial values")
            .idle_if(dense, {"logits"})};
  }
};

/// Zeros up to `width` columns.
Tensor widened(const Tensor& x, std::int64_t width) {
  return x.size(-1) == width ? x : tensor::narrow_backward(x, x.rank() - 1, 0, width);
}

/// The first `count` columns.
Tensor columns(const Tensor& x, std::int64_t count) {
  return x.size(-1) == count ? x : tensor::narrow(x, x.rank() - 1, 0, count);
}

/// The first n rows of each matrix: [A, nominal length, ..] -> [A, n, ..].
Tensor first_rows(const Tensor& x, std::int64_t n) {
  return x.size(1) == n ? x : tensor::narrow(x, 1, 0, n);
}

/// Examples side by side: [B, H, N, P] -> [H, N, J], J = B P.
Tensor side_by_side(const Tensor& x) {
  const std::int64_t b = x.size(0), h = x.size(1), n = x.size(2), p = x.size(3);
  return tensor::swap_middle(x.reshape({1, b, h * n, p})).reshape({h, n, b * p});
}
/// [H, N, J] -> [B, H, N, P].
Tensor one_by_one(const Tensor& x, const Shape& shape) {
  const std::int64_t b = shape[0], h = shape[1], n = shape[2], p = shape[3];
  return tensor::swap_middle(x.reshape({1, h * n, b, p})).reshape(shape);
}

/// dense: hidden values of every position, and a vector for every position's logit.
class Dense {
 public:
  Dense(const LayerContext& context, const Config& config)
      : heads_(context.heads), hidden_(config.hidden > 0 ? config.hidden : context.head_width) {
    const auto add = [&](const char* name, const Shape& shape, double deviation) {
      return &context.store->add(context.prefix + name, shape, normal_init(deviation));
    };
    const std::int64_t maps = config.shared ? 1 : heads_;
    w1_ = add("hidden.weight", {heads_ * hidden_, context.width}, 1 / std::sqrt(context.width));
    b1_ = add("hidden.bias", {heads_ * hidden_}, 0);
    w2_ = add("logits.weight", {maps, context.nominal_length, hidden_}, 1 / std::sqrt(hidden_));
    b2_ = add("logits.bias", {maps, context.nominal_length, 1}, 0);
  }

  [[nodiscard]] std::vector<Parameter*> parameters() const { return {w1_, b1_, w2_, b2_}; }

  /// [B, H, N, N]
  [[nodiscard]] Var logits(Var x) const {
    Tape& tape = x.tape();
    const std::int64_t b = x.size(0), n = x.size(1), maps = w2_->shape[0];
    const Var flat = relu(linear(x, tape.parameter(*w1_), tape.parameter(*b1_)));
    const Var hidden = swap_middle(reshape(flat, {b, n, heads_, hidden_}));  // [B, H, N, F]
    const auto of_positions = [&](Parameter& p, std::int64_t width) {        // [B, H, N, width]
      const Var rows = reshape(narrow(tape.parameter(p), 1, 0, n), {1, maps, n, width});
      return expand(rows, {b, heads_, n, width});
    };
    return matmul(hidden, of_positions(*w2_, hidden_), Op::none, Op::transpose) +
           transpose(of_positions(*b2_, 1));
  }

  // ---- derivation of dense ---------------------------------------------------------------------
  // m is the mask, G = dout.
  //   Y = relu(x W1^T + b1), its heads apart                                    (1)
  //   O = softmax([Y, 1] [W2, b2]^T + log m) V                                  (2)
  //
  //   (2)  d[Y, 1], d[W2, b2] and dV as queries', keys' and values' gradients in softmax attention,
  //        summed over examples, and over heads where they share W2 and b2
  //   (1)  dU = dY where Y > 0, else 0     dx = dU W1     dW1 = dU^T x     db1 = sum of dU's rows

  struct Saved {
    Tensor x;                 // [B, N, E]
    Tensor y;                 // [B N, H F]
    Tensor queries, keys, v;  // [B, H, N, Z]
    Tensor mask;              // [B, N]
    TiledForward result;      // out: [B, H, N, Z], lse: [B, H, N]
    std::int64_t width;       // D
  };

  [[nodiscard]] Result forward(const Inputs& in) const {
    const std::int64_t b = in.v.size(0), n = in.v.size(2), d = in.v.size(3);
    const std::int64_t z = std::max(hidden_ + 1, d);
    Saved s;
    s.x = in.x;
    s.mask = in.mask;
    s.width = d;
    s.y = tensor::expand(b1_->value, {b * n, b1_->shape[0]});
    tensor::gemm(in.x.reshape({b * n, in.x.size(2)}), Op::none, w1_->value, Op::transpose, s.y, 1,
                 1);
    s.y = tensor::unary(tensor::Unary::relu, s.y);  // (1)
    const Tensor heads = tensor::swap_middle(s.y.reshape({b, n, heads_, hidden_}));
    s.queries = widened(tensor::concat({heads, ones_like(heads, {b, heads_, n, 1})}, 3), z);
    const Tensor of_positions = widened(  // [A, N, Z]
        tensor::concat({first_rows(w2_->value, n), first_rows(b2_->value, n)}, 2), z);
    s.keys = tensor::expand(of_positions.reshape({1, w2_->shape[0], n, z}), {b, heads_, n, z});
    s.v = widened(in.v, z);
    s.result = tiled_forward(s.queries, s.keys, s.v, s.mask, tiles());  // (2)
    const Tensor out = columns(s.result.out, d);                        // [B, H, N, D]
    return {out, [this, s = std::move(s)](const Tensor& dout) { return backward(s, dout); }};
  }

  [[nodiscard]] Gradients backward(const Saved& s, const Tensor& dout) const {
    const std::int64_t b = dout.size(0), n = dout.size(2), z = s.v.size(3);
    const TiledBackward d =
        tiled_backward(s.queries, s.keys, s.v, s.mask, tiles(), s.result, widened(dout, z));  // (2)
    const Tensor dkeys =  // [A, N, Z]
        tensor::sum_to_shape(d.dk, {1, w2_->shape[0], n, z}).reshape({w2_->shape[0], n, z});
    const auto of_all = [&](const Tensor& rows) {  // zeros for positions beyond this batch's
      return tensor::narrow_backward(rows, 1, 0, w2_->shape[1]);
    };
    const Tensor dy = tensor::swap_middle(columns(d.dq, hidden_)).reshape(s.y.shape());
    const Tensor du = tensor::unary_backward(tensor::Unary::relu, s.y, dy);  // (1) [B N, H F]
    Gradients g;
    g.dv = columns(d.dv, s.width);
    g.dx = tensor::matmul(du, w1_->value).reshape(s.x.shape());  // (1)
    const Tensor x = s.x.reshape({b * n, s.x.size(2)});
    g.parameters = {tensor::matmul(du, x, Op::transpose, Op::none), tensor::sum(du, 0),  // (1)
                    of_all(columns(dkeys, hidden_)),                                     // (2)
                    of_all(tensor::narrow(dkeys, 2, hidden_, hidden_ + 1))};             // (2)
    return g;
  }

 private:
  [[nodiscard]] static TiledOptions tiles() { return {Score::softmax, 1, {}}; }

  std::int64_t heads_, hidden_;  // H, F
  Parameter *w1_, *b1_;          // [H F, E], [H F]
  Parameter *w2_, *b2_;          // [A, nominal length, F], [A, nominal length, 1]
};

/// random and factorised: logits that are the same for every example.
class Table {
 public:
  Table(const LayerContext& context, const Config& config) {
    const std::int64_t h = context.heads, n = context.nominal_length;
    const auto add = [&](const char* name, const Shape& shape, std::int64_t axis) {
      const Initialiser init = normal_init(1 / std::sqrt(static_cast<double>(h * axis)));
      return &context.store->add(context.prefix + name, shape, init, config.trained);
    };
    if (config.logits == "random") {
      rows_ = add("random", {h, n, n}, n);
    } else {
      rows_ = add("random1", {h, n, config.rank}, n);
      columns_ = add("random2", {h, n, config.rank}, config.rank);
    }
  }

  [[nodiscard]] std::vector<Parameter*> parameters() const {
    if (columns_ == nullptr) return {rows_};
    return {rows_, columns_};
  }

  /// [H, N, N]
  [[nodiscard]] Var logits(Tape& tape, std::int64_t n) const {
    const Var rows = narrow(tape.parameter(*rows_), 1, 0, n);
    if (columns_ == nullptr) return narrow(rows, 2, 0, n);
    return matmul(rows, narrow(tape.parameter(*columns_), 1, 0, n), Op::none, Op::transpose);
  }

  // ---- derivation of random and factorised -----------------------------------------------------
  // m is the mask as a column that multiplies rows, G = dout. Examples stand side by side in U, T.
  //   L = R, or r s^T      W = softmax(L), over all keys                        (1)
  //   U = [m V, m]         T = W U                                              (2)
  //   O = T[:, :D] / T[:, D], which is softmax(L + log m) V                     (3)
  //
  //   (3)  dT by ratio.hpp
  //   (2)  dU = W^T dT     dW = dT U^T     dV = m dU[:, :D]
  //   (1)  dL = W (dW - row_sum(W dW))          dR = dL, or dr = dL s, ds = dL^T r
  // W is made again in backward, C rows at a time.

  struct Saved {
    Tensor mask;   // [B, N]
    Tensor u;      // U: [H, N, J]
    Ratio result;  // O
  };

  [[nodiscard]] Result forward(const Inputs& in) const {
    ENSURE(in.v.size(1) == rows_->shape[0] && in.v.size(2) <= rows_->shape[1],
           "synthesizer: the tables have ", rows_->shape[0], " heads and ", rows_->shape[1],
           " positions, got v ", in.v);
    Saved s;
    s.mask = in.mask;
    const Tensor u = with_mask_column(in.v, in.mask);  // [B, H, N, P]
    s.u = side_by_side(u);                             // (2)
    Tensor t = empty_like(s.u);                        // [H, N, J]
    each_tile(in.v.size(2), [&](const Tile& tile) {
      Tensor rows = t[tile.head].slice(tile.begin, tile.end);                 // [C, J]
      tensor::gemm(weights(tile), Op::none, s.u[tile.head], Op::none, rows);  // (1), (2)
    });
    s.result = ratio(one_by_one(t, u.shape()));  // (3)
    const Tensor out = s.result.out;
    return {out, [this, s = std::move(s)](const Tensor& dout) { return backward(s, dout); }};
  }

  [[nodiscard]] Gradients backward(const Saved& s, const Tensor& dout) const {
    const Tensor dt = side_by_side(ratio_backward(s.result, dout));  // (3) [H, N, J]
    Tensor du = empty_like(s.u);                                     // [H, N, J]
    Gradients g;
    if (rows_->trainable) {
      for (const Parameter* p : parameters()) g.parameters.push_back(zeros_like(p->value));
    }
    each_tile(dout.size(2), [&](const Tile& tile) {
      const Tensor w = weights(tile);                                  // (1) [C, N]
      const Tensor drows = dt[tile.head].slice(tile.begin, tile.end);  // [C, J]
      Tensor to = du[tile.head];                                       // [N, J]
      tensor::gemm(w, Op::transpose, drows, Op::none, to, 1, tile.begin == 0 ? 0 : 1);  // (2)
      if (g.parameters.empty()) return;
      const Tensor dw = tensor::matmul(drows, s.u[tile.head], Op::none, Op::transpose);  // (2)
      add_to_parameters(tile, tensor::softmax_backward(w, dw), g);                       // (1)
    });
    const Tensor dvalues =
        columns(one_by_one(du, dout.shape().with(3, dout.size(3) + 1)), dout.size(3));
    g.dv = tensor::mask_rows(dvalues, s.mask);  // (2)
    return g;
  }

 private:
  /// Rows [begin, end) of a head's N x N weights.
  struct Tile {
    std::int64_t head, begin, end, n;
  };
  template <class F> void each_tile(std::int64_t n, const F& f) const {
    const std::int64_t rows = rows_of_tile(n, rows_->value.device());
    for (std::int64_t head = 0; head < rows_->shape[0]; ++head) {
      for (std::int64_t begin = 0; begin < n; begin += rows) {
        f(Tile{head, begin, std::min(n, begin + rows), n});
      }
    }
  }

  /// Rows of W: [C, N].
  [[nodiscard]] Tensor weights(const Tile& tile) const {
    const Tensor rows = rows_->value[tile.head].slice(tile.begin, tile.end);
    if (columns_ == nullptr) return tensor::softmax(columns(rows, tile.n));
    const Tensor others = columns_->value[tile.head].slice(0, tile.n);  // [N, K]
    return tensor::softmax(tensor::matmul(rows, others, Op::none, Op::transpose));
  }

  /// A tile's share of the parameters' gradients, dl: [C, N].
  void add_to_parameters(const Tile& tile, const Tensor& dl, Gradients& g) const {
    Tensor drows = g.parameters[0][tile.head].slice(tile.begin, tile.end);
    if (columns_ == nullptr) {
      drows.copy_from(widened(dl, rows_->shape[2]));
      return;
    }
    const Tensor rows = rows_->value[tile.head].slice(tile.begin, tile.end);  // [C, K]
    const Tensor others = columns_->value[tile.head].slice(0, tile.n);        // [N, K]
    tensor::gemm(dl, Op::none, others, Op::none, drows);
    Tensor dothers = g.parameters[1][tile.head].slice(0, tile.n);
    tensor::gemm(dl, Op::transpose, rows, Op::none, dothers, 1, 1);
  }

  Parameter* rows_;               // R: [H, nominal length, nominal length], or r: [H, .., K]
  Parameter* columns_ = nullptr;  // s: [H, nominal length, K]; nullptr: random
};

/// One of the two.
template <class Logits> class Synthesizer final : public Method {
 public:
  Synthesizer(const LayerContext& context, const Config& config) : logits_(context, config) {}

  [[nodiscard]] std::vector<Parameter*> parameters() const override { return logits_.parameters(); }

  // ---- reference -------------------------------------------------------------------------------
  Var reference(const InputVars& in, const Tensor& mask, const Draws&, const Call&) const override {
    return matmul(softmax(logits_of(in) + in.v.tape().constant(key_bias(mask))), in.v);
  }

  // ---- forward, backward -----------------------------------------------------------------------
  Result forward(const Inputs& in, const Draws&, const Call&) const override {
    return logits_.forward(in);
  }

 private:
  [[nodiscard]] Var logits_of(const InputVars& in) const {  // broadcasts to [B, H, N, N]
    if constexpr (std::is_same_v<Logits, Dense>) {
      return logits_.logits(in.x);
    } else {
      return logits_.logits(in.v.tape(), in.v.size(2));
    }
  }

  Logits logits_;
};

/// Returns the cost of the default. The table is made once for a batch, here of one example, and
/// its weights multiply values with a column for the normaliser. Backward makes the table again,
/// and two products each with values and with the factors.
Cost cost_at(const CostSizes& s) {
  const double table = s.n * s.n * static_cast<double>(Config().rank);
  const double values = s.n * s.n * (s.width + 1);
  return {table + values, 3 * table + 2 * values};
}

}  // namespace

Spec synthesizer_spec() {
  Spec spec;
  spec.name = "synthesizer";
  spec.paper = "Synthesizer (Tay et al. 2021), sec. 3";
  spec.idea = "logits of tables, or of each query's input alone, not of pairs of tokens";
  spec.cost = "N^2 (K + D)";
  spec.cost_at = cost_at;
  spec.memory = "N D; logits=random: parameters N^2";
  spec.approximates = "";
  spec.values_only = true;
  spec.reads_x = true;
  spec.by_rows = true;
  for (const char* form : {"factorised", "random", "dense"}) {
    spec.samples.push_back({{"logits", form}});
  }
  spec.samples.push_back({{"logits", "factorised"}, {"rank", "3"}});
  spec.samples.push_back({{"logits", "random"}, {"trained", "0"}});
  spec.samples.push_back({{"logits", "dense"}, {"shared", "1"}, {"hidden", "3"}});
  const auto make = [](const LayerContext& context,
                       const Config& config) -> std::unique_ptr<Method> {
    if (config.logits == "dense") return std::make_unique<Synthesizer<Dense>>(context, config);
    return std::make_unique<Synthesizer<Table>>(context, config);
  };
  return register_method(std::move(spec), Config{}, make);
}

}  // namespace skytape::attention
