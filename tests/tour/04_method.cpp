// The smallest attention method: reference, forward and backward on one page
#include <utility>

#include "attention/method.hpp"
#include "autograd/gradcheck.hpp"
#include "autograd/ops.hpp"
#include "autograd/tape_print.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tests/support/close.hpp"
#include "tests/support/doctest.hpp"
#include "tests/tour/tour.hpp"

using namespace skytape;
using namespace skytape::attention;
using test::random_tensor;
using tour::say;

namespace {

// Without the softmax, attention is a product of three matrices, O = Q Kᵀ V / N. From the left it
// costs N² D, from the right N D²: the idea of linear attention (Katharopoulos et al. 2020), here
// with the simplest feature map, the identity.
//
// B batch, H heads, N queries and keys, D head width.
class LinearAttention final : public Method {
 public:
  explicit LinearAttention(std::int64_t nominal_length)
      : scale_(1 / static_cast<double>(nominal_length)) {}

  // The mathematics as it is written, of differentiable ops: slow and obvious. Its gradients come
  // from the tape, and forward and backward below must give the same numbers.
  Var reference(const InputVars& in, const Tensor& mask, const Draws&, const Call&) const override {
    const Var keys = mask_rows(in.k, mask);                           // [B, H, N, D]
    const Var weights = matmul(in.q, keys, Op::none, Op::transpose);  // [B, H, N, N]
    return affine(matmul(weights, in.v), scale_);
  }

  //   K' = s mu K    s = 1 / N, mu the mask: padded keys vanish                   (1)
  //   S  = K'^T V                                                                 (2)
  //   O  = Q S                                                                    (3)
  //   N in s is the length before a batch is cut to its longest example.
  //
  // With G = dout:
  //   (3)  dQ = G S^T     dS = Q^T G
  //   (2)  dK' = V dS^T   dV = K' dS
  //   (1)  dK = s mu dK'
  struct Saved {
    double scale = 1;
    Tensor mask;        // [B, N]
    Tensor q, keys, v;  // [B, H, N, D]; keys: K'
    Tensor state;       // S, [B, H, D, D]
  };

  Result forward(const Inputs& in, const Draws&, const Call&) const override {
    Saved s{scale_, in.mask, in.q, {}, in.v, {}};
    s.keys = tensor::mask_rows(in.k, in.mask, scale_);                // (1)
    s.state = tensor::matmul(s.keys, in.v, Op::transpose, Op::none);  // (2)
    const Tensor out = tensor::matmul(in.q, s.state);                 // (3)
    return {out, [s = std::move(s)](const Tensor& dout) { return backward(s, dout); }};
  }

  static Gradients backward(const Saved& s, const Tensor& dout) {
    Gradients g;
    g.dq = tensor::matmul(dout, s.state, Op::none, Op::transpose);              // (3)
    const Tensor dstate = tensor::matmul(s.q, dout, Op::transpose, Op::none);   // (3)
    const Tensor dkeys = tensor::matmul(s.v, dstate, Op::none, Op::transpose);  // (2)
    g.dv = tensor::matmul(s.keys, dstate);                                      // (2)
    g.dk = tensor::mask_rows(dkeys, s.mask, s.scale);                           // (1)
    return g;
  }

 private:
  double scale_;  // a number that the object holds: backward reads the copy in Saved
};

constexpr std::int64_t kB = 2, kH = 2, kN = 7, kD = 3;

/// q, k and v on a tape, and the mask: the last two positions of the last example are padding.
struct Sample {
  LinearAttention method{kN};
  Tensor q = random_tensor({kB, kH, kN, kD}, DType::f64, Device::cpu, 1);
  Tensor k = random_tensor({kB, kH, kN, kD}, DType::f64, Device::cpu, 2);
  Tensor v = random_tensor({kB, kH, kN, kD}, DType::f64, Device::cpu, 3);
  Tensor mask = tour::tensor_of({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}, {kB, kN});
};

}  // namespace

TEST_CASE("tour 4: forward and backward give the reference's numbers") {
  const Sample s;
  const Tensor dout = random_tensor({kB, kH, kN, kD}, DType::f64, Device::cpu, 4);
  Tape fast, slow;
  const Var q = fast.input(s.q), k = fast.input(s.k), v = fast.input(s.v);
  const Var out = apply(s.method, {q, k, v}, s.mask, Call{});
  const Var rq = slow.input(s.q), rk = slow.input(s.k), rv = slow.input(s.v);
  const Var expected = s.method.reference({rq, rk, rv}, s.mask, Draws{}, Call{});
  say("A method is one node of the tape (- -: this one reads neither the layer's input nor a\n"
      "state):\n\n{}\nIts reference, of basic ops:\n\n{}\n",
      to_text(fast), to_text(slow));
  CHECK(fast.size() == 4);
  CHECK(slow.size() == 7);

  fast.backward(out, dout);
  slow.backward(expected, dout);
  const double of_out = test::relative_error(out.value(), expected.value());
  const double of_dq = test::relative_error(fast.grad(q), slow.grad(rq));
  const double of_dk = test::relative_error(fast.grad(k), slow.grad(rk));
  const double of_dv = test::relative_error(fast.grad(v), slow.grad(rv));
  say("Largest difference: output {:.0e}, dq {:.0e}, dk {:.0e}, dv {:.0e}\n\n", of_out, of_dq,
      of_dk, of_dv);
  for (const double error : {of_out, of_dq, of_dk, of_dv}) CHECK(error < 1e-14);
}

TEST_CASE("tour 4: gradcheck agrees, and padding changes nothing") {
  Sample s;
  const GradcheckReport report = gradcheck(
      [&](Tape&, std::span<const Var> x) {
        return apply(s.method, {x[0], x[1], x[2]}, s.mask, Call{});
      },
      {s.q, s.k, s.v}, {}, {"q", "k", "v"});
  say("{}\n", report.to_string());
  CHECK(report.passed);

  const auto output = [&] { return s.method.forward({s.q, s.k, s.v, s.mask}, {}, {}).out; };
  const Tensor before = output();
  const std::int64_t padded = s.k.numel() - kD;  // the last position of the last head
  s.k.data<double>()[padded] = s.v.data<double>()[padded] = 1e6;
  CHECK(test::relative_error(output(), before) == 0);
  say("A key and a value in the padding were set to 1e6: the output is the same.\n"
      "In attention/methods such a class is a separate file, with a Spec below it and\n"
      "one line in methods.def: command line, tests and benchmarks then know it.\n");
}
