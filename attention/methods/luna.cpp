// Luna (Ma et al., NeurIPS 2021, sec. 3): attention through a memory of L rows. The memory first
// reads the sequence ("pack"), then every token reads the packed memory ("unpack"): two softmax
// attentions of which each is linear in N. What was packed is also added to the memory, and the
// next layer continues with it; the first layer's memory is learned.
//
//   time     forward 4 N L D multiply-adds per head, backward 10 N L D, and products of the memory
//            with square matrices, 3 L C^2 and 6 L C^2 for all heads
//   memory   O((N + L) D); saved: out, one log-sum-exp per row, and the memory on its way
//   learns   3 C^2 + 5 C numbers per layer, and once L C
//
// Deviations and choices:
//   - norm: `before` (default) normalises the memory where it asks, P' = P + Y, as a model with
//     norms before attention does (the code's normalize_before); `after` normalises the sum,
//     P' = LN(P + Y), as in the paper and in its code's runs on LRA.
//   - Packing reads the keys and values that the model projects; unpacking has projections of its
//     own, as in the code's runs on LRA. Elsewhere the code ties keys and values to one matrix in
//     both: not offered.
//   - The memory has the width C = H D of all heads together. Its rows start as normal numbers,
//     1 / sqrt(C), as in the code, which then multiplies them by sqrt(C), adds sinusoids and on LRA
//     normalises them before the first layer. Here they are used as they are; with norm = before
//     their length only decides how much of P is left in P + Y.
//   - Every sequence uses all L rows. In the code one of m < L tokens has the first m alone.
//   - The bias of the unpacked keys shifts all scores of a query alike, so that it changes no
//     output. It is there as in the code, and its gradient is rounding noise.
//   - Nothing is dropped from weights or from what is added to the memory.
//   - A padded key is not packed. For a sequence without real tokens nothing is packed, Y = 0, and
//     its output is what the unpacking's biases say.
//
// Shapes: B batch, H heads, N queries and keys, D head width, L rows of the memory, C = H D.
#include <cmath>

#include "attention/registry.hpp"
#include "attention/tiled/tiled.hpp"
#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/kernels/reduce.hpp"
#include "tensor/movement/layout.hpp"
#include "tensor/norm/layer_norm.hpp"

namespace skytape::attention {
namespace {

struct Config {
  std::int64_t features = 128;  // L; LRA: 16, 128 and 256
  std::string norm = "before";  // LRA: after

  std::vector<Option> options() {
    return {Option::integer("features", features, 1, 4096, "rows of the memory"),
            Option::choice("norm", norm, {"before", "after"},
                           "normalise the memory before it asks, or after it was added to")};
  }
};

/// y = x W^T + b for rows of the memory.
struct Projection {
  Parameter *weight, *bias;  // [C, C], [C]

  Projection(const LayerContext& context, const std::string& name, std::int64_t width) {
    const double bound = 1 / std::sqrt(static_cast<double>(width));
    const auto add = [&](const char* part, const Shape& shape) {
      return &context.store->add(context.prefix + name + part, shape, uniform_init(bound));
    };
    weight = add(".weight", {width, width});
    bias = add(".bias", {width});
  }

  [[nodiscard]] Var operator()(Var x) const {
    return linear(x, x.tape().parameter(*weight), x.tape().parameter(*bias));
  }
  /// x: [B, L, C] -> [B, L, C].
  [[nodiscard]] Tensor operator()(const Tensor& x) const {
    Tensor y = tensor::expand(bias->value, x.shape());
    Tensor flat = y.reshape({x.rows(), x.cols()});
    tensor::gemm(x.reshape(flat.shape()), Op::none, weight->value, Op::transpose, flat, 1, 1);
    return y;
  }
  /// dx from dy, both [B, L, C]; appends dW and db.
  [[nodiscard]] Tensor backward(const Tensor& x, const Tensor& dy,
                                std::vector<Tensor>& parameters) const {
    const Shape flat = {x.rows(), x.cols()};
    const Tensor d = dy.reshape(flat);
    parameters.push_back(tensor::matmul(d, x.reshape(flat), Op::transpose, Op::none));
    parameters.push_back(tensor::sum(d, 0));
    return tensor::matmul(d, weight->value).reshape(x.shape());
  }
};

class Luna final : public Method {
 public:
  Luna(const LayerContext& context, const Config& config)
      : heads_(context.heads),
        width_(context.heads * context.head_width),
        rows_(config.features),
        norm_before_(config.norm == "before"),
        norm_weight_(
            &context.store->add(context.prefix + "norm.weight", {width_}, constant_init(1))),
        norm_bias_(&context.store->add(context.prefix + "norm.bias", {width_}, constant_init(0))),
        pack_(context, "pack", width_),
        key_(context, "key", width_),
        value_(context, "value", width_) {
    if (context.layer > 0) return;
    const double deviation = 1 / std::sqrt(static_cast<double>(width_));
    memory_ =
        &context.store->add(context.prefix + "memory", {rows_, width_}, normal_init(deviation));
  }

  [[nodiscard]] std::vector<Parameter*> parameters() const override {
    std::vector<Parameter*> all = {value_.weight, value_.bias, key_.weight,  key_.bias,
                                   pack_.weight,  pack_.bias,  norm_weight_, norm_bias_};
    if (memory_ != nullptr) all.push_back(memory_);
    return all;
  }

  // ---- reference -------------------------------------------------------------------------------
  Var reference(const InputVars& in, const Tensor& mask, const Draws&, const Call&) const override {
    const Var y = pack(in, mask).packed;  // [B, L, C]
    return attend(in.q, apart(key_(y)), apart(value_(y)), Var());
  }

  Var reference_state(const InputVars& in, const Tensor& mask, const Draws&,
                      const Call&) const override {
    const Memory memory = pack(in, mask);
    const Var sum = memory.before + memory.packed;
    return norm_before_ ? sum : normalised(sum);
  }

  // ---- derivation ------------------------------------------------------------------------------
  // attn(Q, K, V) = softmax(Q K^T / sqrt(D)) V, with -inf for padded keys in (2). LN is layer norm.
  // Heads are taken apart and put together where widths ask for it. G = dout, dP' comes from the
  // next layer.
  //   M  = LN(P), or P for norm = after                                       (1)
  //   Y  = attn(M Wp^T + bp, K, V)                                            (2)
  //   P' = P + Y, or LN(P + Y) for norm = after                               (3)
  //   O  = attn(Q, Y Wk^T + bk, Y Wv^T + bv)                                  (4)
  //
  //   (4)  dQ and the gradients dK', dV' of unpacked keys and values, as in softmax attention
  //        dY = dK' Wk + dV' Wv    dWk = dK'^T Y    dbk = sum of dK''s rows    dWv, dbv likewise
  //   (3)  dP = dP', dY += dP'; for norm = after both from LN's derivative
  //   (2)  dK, dV and the gradient dR of the memory's queries; dM = dR Wp, dWp = dR^T M, dbp
  //   (1)  dP += LN's derivative of dM, or dM. The first layer's memory gets the sum over examples.

  struct Saved {
    Inputs in;              // q, k, v: [B, H, N, D], mask: [B, N]
    Tensor asking;          // M: [B, L, C]
    Tensor normed;          // what LN is of: P, or P + Y; [B, L, C]
    Tensor mean, inv_std;   // of LN: [B, L]
    Tensor queries;         // of the memory: [B, H, L, D]
    TiledForward packed;    // (2): out [B, H, L, D], lse [B, H, L]
    Tensor y;               // Y: [B, L, C]
    Tensor keys, values;    // unpacked: [B, H, L, D]
    TiledForward unpacked;  // (4): out [B, H, N, D], lse [B, H, N]
    Tensor every_row;       // ones, [B, L]
  };

  // ---- forward ---------------------------------------------------------------------------------
  Result forward(const Inputs& in, const Draws&, const Call&) const override {
    ENSURE(in.state.defined() || memory_ != nullptr,
           "luna: a layer behind the first needs the memory that the layer before left");
    const Shape shape = {in.q.size(0), rows_, width_};
    const Tensor p = in.state.defined() ? in.state : tensor::expand(memory_->value, shape);
    ENSURE(p.shape() == shape, "luna: expected a memory ", shape, ", got ", p);
    const TiledOptions tiles = softmax_scores(in.q);
    Saved s;
    s.in = in;
    s.asking = norm_before_ ? normalise(p, s) : p;                    // (1)
    s.queries = apart(pack_(s.asking));                               // (2)
    s.packed = tiled_forward(s.queries, in.k, in.v, in.mask, tiles);  // (2)
    s.y = together(s.packed.out);                                     // (2)
    const Tensor sum = tensor::add(p, s.y);                           // (3)
    const Tensor state = norm_before_ ? sum : normalise(sum, s);      // (3)
    s.keys = apart(key_(s.y));                                        // (4)
    s.values = apart(value_(s.y));                                    // (4)
    s.every_row = ones_like(in.q, {shape[0], rows_});
    s.unpacked = tiled_forward(in.q, s.keys, s.values, s.every_row, tiles);  // (4)
    Result result;
    result.out = s.unpacked.out;
    result.state = state;
    result.backward_with_state = [this, s = std::move(s)](const Tensor& dout,
                                                          const Tensor& dstate) {
      return backward(s, dout, dstate);
    };
    return result;
  }

  // ---- backward --------------------------------------------------------------------------------
  [[nodiscard]] Gradients backward(const Saved& s, const Tensor& dout, const Tensor& dstate) const {
    const TiledOptions tiles = softmax_scores(s.in.q);
    Gradients g;
    const TiledBackward unpack =
        tiled_backward(s.in.q, s.keys, s.values, s.every_row, tiles, s.unpacked, dout);  // (4)
    g.dq = unpack.dq;
    Tensor dy = value_.backward(s.y, together(unpack.dv), g.parameters);            // (4) [B, L, C]
    tensor::accumulate(dy, key_.backward(s.y, together(unpack.dk), g.parameters));  // (4)
    tensor::LayerNormBackward norm;
    if (!norm_before_) norm = normalise_backward(s, dstate);
    const Tensor dsum = norm_before_ ? dstate : norm.dx;  // (3)
    tensor::accumulate(dy, dsum);                         // (3)
    const TiledBackward pack =
        tiled_backward(s.queries, s.in.k, s.in.v, s.in.mask, tiles, s.packed, apart(dy));  // (2)
    g.dk = pack.dk;
    g.dv = pack.dv;
    const Tensor dasking = pack_.backward(s.asking, together(pack.dq), g.parameters);  // (2)
    if (norm_before_) norm = normalise_backward(s, dasking);                           // (1)
    const Tensor dp = tensor::add(dsum, norm_before_ ? norm.dx : dasking);             // (3), (1)
    g.parameters.push_back(norm.dweight);
    g.parameters.push_back(norm.dbias);
    if (s.in.state.defined()) {
      g.dstate = dp;
    } else {
      g.parameters.push_back(tensor::sum(dp, 0));  // (1)
    }
    return g;
  }

 private:
  struct Memory {
    Var before, packed;  // P and Y: [B, L, C]
  };
  /// (1) and (2) for the reference.
  [[nodiscard]] Memory pack(const InputVars& in, const Tensor& mask) const {
    Tape& tape = in.q.tape();
    const Shape shape = {mask.size(0), rows_, width_};
    const Var p = in.state.defined() ? in.state : expand(tape.parameter(*memory_), shape);
    const Var queries = apart(pack_(norm_before_ ? normalised(p) : p));        // [B, H, L, D]
    const Var y = attend(queries, in.k, in.v, tape.constant(key_bias(mask)));  // [B, H, L, D]
    return {p, reshape(swap_middle(y), shape)};
  }
  [[nodiscard]] static Var attend(Var q, Var k, Var v, Var bias) {
    Var scores = affine(matmul(q, k, Op::none, Op::transpose), score_scale(q.value()));
    if (bias.defined()) scores = scores + bias;
    return matmul(softmax(scores), v);
  }
  [[nodiscard]] Var normalised(Var x) const {
    return layer_norm(x, x.tape().parameter(*norm_weight_), x.tape().parameter(*norm_bias_));
  }
  [[nodiscard]] Var apart(Var x) const {
    return swap_middle(reshape(x, {x.size(0), x.size(1), heads_, width_ / heads_}));
  }

  /// [B, L, C] -> [B, H, L, D], and back.
  [[nodiscard]] Tensor apart(const Tensor& x) const {
    return tensor::swap_middle(x.reshape({x.size(0), x.size(1), heads_, width_ / heads_}));
  }
  [[nodiscard]] Tensor together(const Tensor& x) const {
    return tensor::swap_middle(x).reshape({x.size(0), x.size(2), width_});
  }

  [[nodiscard]] Tensor normalise(const Tensor& x, Saved& s) const {
    const tensor::LayerNormForward f =
        tensor::layer_norm(x, norm_weight_->value, norm_bias_->value);
    s.normed = x;
    s.mean = f.mean;
    s.inv_std = f.inv_std;
    return f.y;
  }
  [[nodiscard]] tensor::LayerNormBackward normalise_backward(const Saved& s,
                                                             const Tensor& dy) const {
    return tensor::layer_norm_backward(s.normed, norm_weight_->value, s.mean, s.inv_std, dy);
  }

  std::int64_t heads_, width_, rows_;  // H, C, L
  bool norm_before_;
  Parameter *norm_weight_, *norm_bias_;  // [C]
  Projection pack_, key_, value_;
  Parameter* memory_ = nullptr;  // [L, C], of the first layer; nullptr: of the others
};

/// Packing and unpacking are two products each, backward five. Of the memory's projections, all
/// heads' together, a head alone has those of a model with one head.
Cost cost_at(const CostSizes& s) {
  const double product = s.n * s.features * s.width;
  const double projections = 3 * s.features * s.width * s.width;
  return {4 * product + projections, 10 * product + 2 * projections};
}

}  // namespace

Spec luna_spec() {
  Spec spec;
  spec.name = "luna";
  spec.paper = "Luna (Ma et al. 2021), sec. 3";
  spec.idea = "a memory of L rows reads all tokens, then all tokens read it";
  spec.cost = "4 N L D";
  spec.cost_at = cost_at;
  spec.memory = "N, 8 L D per head";
  spec.carries_state = true;
  spec.samples = {{}, {{"features", "7"}}, {{"features", "7"}, {"norm", "after"}}};
  return register_method<Luna, Config>(std::move(spec));
}

}  // namespace skytape::attention
