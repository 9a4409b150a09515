// 1. An operation and its derivative
// teaches: chain rule and product rule as code; what dy and dx mean
// minutes: 10
//
// A network is a chain of operations that ends in one number, the loss. To train it we want to know
// for each number x in the chain: by how much does the loss change when x changes? This slope,
// dLoss/dx, is written dx, here and in all of the project. So dy is dLoss/dy, and an operation
// y = f(x) has two halves:
//
//   forward    from x to y:          y  = f(x)
//   backward   from x and dy to dx:  dx = dy f'(x)                          (the chain rule)
//
// dy comes from the operations that follow; backward need not know what they are.
//
// The operation is silu ("swish"), which gated layers of language models use:
//
//   y = x s(x)      s(x) = 1 / (1 + e^-x), the sigmoid; its derivative is s'(x) = s(x) (1 - s(x))
//
// Write both halves. The judge asks also for |x| = 1000: mind that e^1000 is infinity in a double,
// that 1 / infinity is 0, and that infinity / infinity is not a number.
//
// The real one: the functions of one variable in tensor/kernels/elementwise.def, a line each.
#include "tests/exercises/judge.hpp"

using namespace skytape::exercises;

// ---- your part ----------------------------------------------------------------------------------

double silu(double x) { write_here(); }

double silu_backward(double x, double dy) { write_here(); }

// ---- the judge ----------------------------------------------------------------------------------

int main() {
  return judge([](Judge& j) {
    const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    j.asks("silu(1)").same(
        "y", silu(1), 0.731058578630, "y = x s(x), and s(1) is 0.731059.",
        {{1 + std::exp(-1), "You divide 1 by 1 and add e^-x: brackets: 1 / (1 + e^-x)."},
         {1 + sigmoid(1), "This is x + s(x); silu is the product x s(x)."},
         {sigmoid(-1), "This is x s(-x): in the sigmoid stands e^-x, not e^x."}});
    j.asks("silu(2)").same("y", silu(2), 1.761594155956, "y = x s(x), and s(2) is 0.880797.",
                           {{sigmoid(2), "This is the sigmoid alone; silu multiplies it by x."}});
    const char* const far_out =
        "Far from zero e^x or e^-x is infinity, and infinity / infinity is not a number: write the "
        "sigmoid as 1 / (1 + e^-x), which then is 1 or 0.";
    j.asks("silu(1000), far to the right").same("y", silu(1000), 1000, far_out);
    j.asks("silu(-1000), far to the left").same("y", silu(-1000), 0, far_out);
    j.asks("the slope at 0 is s(0), as the other term has the factor x")
        .same(
            "dx", silu_backward(0, 1), 0.5,
            "By the product rule f'(x) = s(x) + x s'(x); at 0 it is s(0).",
            {{0.75, "The second term, s'(x), lacks its factor x."},
             {0,
              "This is the term x s'(x) alone. By the product rule there is another one: s(x)."}});
    const double s = sigmoid(1.5), slope = s + 1.5 * s * (1 - s);
    j.asks("the slope at 1.5")
        .same(
            "dx", silu_backward(1.5, 1), slope,
            "By the product rule f'(x) = s(x) + x s'(x), with s'(x) = s(x) (1 - s(x)).",
            {{s, "This is s(x) alone. x s(x) is a product of two things that both change with x."},
             {s - 1.5 * s * (1 - s), "The sign of the second term is wrong: s grows with x."},
             {s + s * (1 - s), "The second term, s'(x), lacks its factor x."}});
    j.asks("dy = 3: the loss changes three times as fast as y")
        .same(
            "dx", silu_backward(1.5, 3), 3 * slope, "dx = dy f'(x).",
            {{slope, "This is f'(x), whatever dy is. The chain rule multiplies it by dy."},
             {3 * s + slope - s, "dy must multiply both terms: brackets, dy (s(x) + x s'(x))."},
             {s + 3 * (slope - s), "dy must multiply both terms: brackets, dy (s(x) + x s'(x))."}});
    j.asks("the slope far to the left").same("dx", silu_backward(-1000, 1), 0, far_out);
    j.asks("the slope far to the right").same("dx", silu_backward(1000, 1), 1, far_out);
    const auto all = [](const Matrix& x, const auto& f) {
      Matrix y(x.rows, x.columns);
      for (int i = 0; i < x.rows; ++i) {
        for (int k = 0; k < x.columns; ++k) y(i, k) = f(i, k);
      }
      return y;
    };
    j.asks("as differences say, number by number")
        .gradients(
            [&](const Matrices& in) {
              return all(in[0], [&](int i, int k) { return silu(in[0](i, k)); });
            },
            [&](const Matrices& in, const Matrix& dy) {
              return Matrices{
                  all(dy, [&](int i, int k) { return silu_backward(in[0](i, k), dy(i, k)); })};
            },
            {3 * random_matrix(2, 3)}, {"dx"}, "dx = dy (s(x) + x s'(x)).");
  });
}

// hint: silu_backward needs s = 1 / (1 + e^-x) once; the rest is products and sums of x, s and dy.
// hint: (x s)' = x' s + x s', and x' is 1.
