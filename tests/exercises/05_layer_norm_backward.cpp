// 5. Layer norm backward
// teaches: derivatives through a mean and a deviation; gradients of shared parameters
// minutes: 20
//
// Layer norm brings each token's row of E numbers to mean 0 and deviation 1, then scales and shifts
// each channel e by parameters w_e and b_e, which all rows share:
//
//   m = mean_e(x_e)     r = 1 / sqrt(mean_e((x_e - m)^2) + 1e-5)         for each row
//   h_e = (x_e - m) r                                                    (1)
//   y_e = w_e h_e + b_e                                                  (2)
//
// Forward has kept h and r. Backward goes through the lines in reverse:
//
//   (2)  dw_e = sum over rows of dy_e h_e      db_e = sum over rows of dy_e      (exercise 3)
//        g_e = w_e dy_e                        which is dLoss/dh_e
//   (1)  x_e moves h_e directly, and through m and r it moves every h_k of its row. Summed up:
//
//        dx_e = r (g_e - mean_k(g_k) - h_e mean_k(g_k h_k))
//
//        Take this line as given, or derive it: 15 minutes, and HINT=2 shows how.
//
// Matrix m(1, E) makes a row of E zeros, with the entries m(0, e); Gradients g{a, b, c} has dx = a,
// dw = b and db = c.
//
// Two properties to remember it by, which the judge asks for: a constant added to a row of x
// changes no y, so a row of dx sums to zero; and a row of x - m stretched by a factor changes
// (almost) no y, so a row of dx is (almost) at right angles to h. The two means are what takes
// these parts out of g.
//
// The real one: tensor/norm/norm_rows.hpp; how y and dx share one pass on a GPU: layer_norm.cu
// there.
#include "tests/exercises/judge.hpp"

using namespace skytape::exercises;

struct Gradients {
  Matrix dx;      // [N, E]
  Matrix dw, db;  // [1, E]
};

// ---- your part ----------------------------------------------------------------------------------

/// h, dy: [N, E]; r: [N, 1]; w: [1, E].
Gradients layer_norm_backward(const Matrix& h, const Matrix& r, const Matrix& w, const Matrix& dy) {
  write_here();
}

// ---- the judge ----------------------------------------------------------------------------------

struct Normed {
  Matrix h, r;
};
Normed normed(const Matrix& x) {
  Normed n{x, Matrix(x.rows, 1)};
  for (int i = 0; i < x.rows; ++i) {
    double mean = 0, square = 0;
    for (int e = 0; e < x.columns; ++e) mean += x(i, e) / x.columns;
    for (int e = 0; e < x.columns; ++e) square += (x(i, e) - mean) * (x(i, e) - mean) / x.columns;
    n.r(i, 0) = 1 / std::sqrt(square + 1e-5);
    for (int e = 0; e < x.columns; ++e) n.h(i, e) = (x(i, e) - mean) * n.r(i, 0);
  }
  return n;
}

/// dx with a usual mistake, in the order of the sentences in main.
Matrix with_mistake(const Matrix& h, const Matrix& r, const Matrix& w, const Matrix& dy,
                    int which) {
  Matrix dx(h.rows, h.columns);
  for (int i = 0; i < h.rows; ++i) {
    double g1 = 0, g2 = 0, dy1 = 0, dy2 = 0;  // means of g, g h, dy, dy h
    for (int e = 0; e < h.columns; ++e) {
      dy1 += dy(i, e) / h.columns;
      dy2 += dy(i, e) * h(i, e) / h.columns;
      g1 += w(0, e) * dy(i, e) / h.columns;
      g2 += w(0, e) * dy(i, e) * h(i, e) / h.columns;
    }
    for (int e = 0; e < h.columns; ++e) {
      const double g = w(0, e) * dy(i, e);
      const double answers[] = {dy(i, e) - dy1 - h(i, e) * dy2, g - g1 - g2, g + g1 - h(i, e) * g2,
                                g - g1 + h(i, e) * g2};
      dx(i, e) = r(i, 0) * answers[which];
    }
  }
  return dx;
}

int main() {
  return judge([](Judge& j) {
    const Matrix x = 2 * random_matrix(3, 5), w = random_matrix(1, 5, 2),
                 dy = random_matrix(3, 5, 3);
    const auto [h, r] = normed(x);
    j.asks("db: what was added to each row");
    const Gradients g = layer_norm_backward(h, r, w, dy);
    Matrix dw(1, 5), db(1, 5), last_dw(1, 5), last_db(1, 5), g_dw(1, 5), g_db(1, 5);
    for (int e = 0; e < 5; ++e) {
      for (int i = 0; i < 3; ++i) {
        dw(0, e) += dy(i, e) * h(i, e);
        db(0, e) += dy(i, e);
      }
      last_dw(0, e) = dy(2, e) * h(2, e);
      last_db(0, e) = dy(2, e);
      g_dw(0, e) = w(0, e) * dw(0, e);
      g_db(0, e) = w(0, e) * db(0, e);
    }
    const char* const last = "This is the last row alone: +=, not =.";
    j.same(
        "db", g.db, db, "db_e = sum over rows of dy_e.",
        {{(1.0 / 3) * db, "This is the mean over rows. All rows share b, so their slopes add up."},
         {last_db, last},
         {g_db, "This is the sum of g: the gradient of h has w, that of b has not."}});
    j.asks("dw: what multiplied each row")
        .same("dw", g.dw, dw, "dw_e = sum over rows of dy_e h_e.",
              {{(1.0 / 3) * dw,
                "This is the mean over rows. All rows share w, so their slopes add up."},
               {last_dw, last},
               {g_dw, "This is the sum of g h: the gradient of h has w, that of w has not."},
               {db, "This is db: w_e multiplies h_e, so h_e is its slope."}});
    const std::string known = Judge::mistake(
        g.dx,
        {{with_mistake(h, r, w, dy, 0), "w is missing: g = w dy, not dy."},
         {with_mistake(h, r, w, dy, 1), "In dx the second mean lacks its factor h_e."},
         {with_mistake(h, r, w, dy, 2), "The sign of the first mean: - mean_k(g_k)."},
         {with_mistake(h, r, w, dy, 3), "The sign of the second mean: - h_e mean_k(g_k h_k)."}});
    const auto or_known = [&](const char* why) { return known.empty() ? why : known; };
    const auto row_sums = [&](const Matrix& a, const Matrix& b) {
      Matrix sums(a.rows, 1);
      for (int i = 0; i < a.rows; ++i) {
        for (int e = 0; e < a.columns; ++e) sums(i, 0) += a(i, e) * b(i, e);
      }
      return sums;
    };
    j.asks("dx has the shape of x")
        .holds(g.dx.rows == 3 && g.dx.columns == 5,
               "dx has shape " + g.dx.shape() + ", expected [3, 5].");
    j.asks("a row of dx sums to zero: a constant added to a row of x changes nothing")
        .same("row sums of dx", row_sums(g.dx, Matrix(3, 5, 1.0)), Matrix(3, 1),
              or_known("The term - mean_k(g_k) takes the constant part out of g = w dy. Is it "
                       "there, is it the mean over the row's E entries, and is it that of g, not "
                       "of dy?"));
    double along = 0;
    for (int i = 0; i < 3; ++i) along = std::fmax(along, std::abs(row_sums(g.dx, h)(i, 0)));
    // The 1e-5 in r alone makes this 2e-4 for some g; without the term it is about 1.
    j.asks("a row of dx is at right angles to h: a stretched row changes nothing")
        .holds(along < 1e-2,
               "The sum of dx h over a row is up to " + std::to_string(along) +
                   ", expected 0 but for the 1e-5 in r. " +
                   or_known("The term - h_e mean_k(g_k h_k) takes the part along h out of g. Is it "
                            "there, and is the mean over the row's E entries?"));
    j.asks("as differences say")
        .gradients(
            [](const Matrices& in) {
              Matrix y = normed(in[0]).h;
              for (int i = 0; i < y.rows; ++i) {
                for (int e = 0; e < y.columns; ++e) y(i, e) = in[1](0, e) * y(i, e) + in[2](0, e);
              }
              return y;
            },
            [](const Matrices& in, const Matrix& dout) {
              const auto rows = normed(in[0]);
              const Gradients found = layer_norm_backward(rows.h, rows.r, in[1], dout);
              return Matrices{found.dx, found.dw, found.db};
            },
            {x, w, random_matrix(1, 5, 4)}, {"dx", "dw", "db"},
            or_known(
                "dx_e = r (g_e - mean_k(g_k) - h_e mean_k(g_k h_k)) with g = w dy: is r there, and "
                "w in both means?"));
  });
}

// hint: In a loop over rows: first both means, of g and of g h; then a second loop for dx.
// hint: dw and db begin as Matrix(1, E), of zeros, and every row adds to them.
// hint 2: (1) The slope of m by x_e is 1 / E. That of r is -1/2 r^3 (2 / E) (x_e - m), hence
// hint 2: -r^2 h_e / E.
// hint 2: So h_k = (x_k - m) r has the slope r (d_ke - 1 / E) - (x_k - m) r^2 h_e / E, which is
// hint 2: r (d_ke - 1 / E - h_k h_e / E), d_ke as in exercise 4. Multiply by g_k; sum over k.
