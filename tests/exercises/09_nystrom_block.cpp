// 9. The Nystrom block, and its landmarks' scatter
// teaches: a mean over rows and its way back; one input that is used in two places
// minutes: 35
//
// In Nystromformer and Skyformer a few landmarks stand for many tokens. Nystromformer's landmark j
// is the mean of the j-th of L segments of consecutive rows. Segment j has rows floor(j N / L) to
// floor((j + 1) N / L) - 1: with N = 7 and L = 3, rows 0-1, 2-3, 4-6. Their sizes differ by one at
// most.
//
//   Ql = means of Q    Kl = means of K       [L, D]     from Q, K: [N, D]          (1)
//   A  = softmax(Ql Kl^T)                    [L, L]     the block in the middle    (2)
//
// Backward, from dA:
//
//   (2)  E = A (dA - row sums of A dA), entry by entry: exercise 4      dQl and dKl: exercise 7
//   (1)  Every row of a segment had the share 1 / size in its landmark, so it receives that share
//        of the landmark's gradient. Rows of a short list go to places of a long one: a scatter.
//
// In the whole method Q and K are used once more, in addition to the landmarks; so dQ and dK hold
// gradients from there, and you add to them. At hand: matmul(a, b), transpose(a), softmax(a).
//
// The real one: attention/methods/nystrom.cpp, where the block is inverted next: exercise 10.
#include "tests/exercises/judge.hpp"

using namespace skytape::exercises;

// ---- your part ----------------------------------------------------------------------------------

/// x: [N, D]. Returns the means of `count` segments, [L, D].
Matrix segment_means(const Matrix& x, int count) { write_here(); }

/// Adds to dx, [N, D], what its rows receive from dmeans, [L, D].
void scatter(const Matrix& dmeans, Matrix& dx) { write_here(); }

/// q, k: [N, D]; da: [L, L]. Adds to dq and dk, [N, D].
void block_backward(const Matrix& q, const Matrix& k, const Matrix& da, Matrix& dq, Matrix& dk) {
  write_here();
}

// ---- the judge ----------------------------------------------------------------------------------

int main() {
  return judge([](Judge& j) {
    const Matrix x({{1}, {3}, {10}, {20}, {100}, {200}, {600}});
    j.asks("7 rows in 3 segments: 0-1, 2-3, 4-6")
        .same(
            "means", segment_means(x, 3), Matrix({{2}, {15}, {300}}),
            "Segment j begins at row j * N / L (integer division).",
            {{Matrix({{2}, {15}, {150}}),
              "The last segment ends too early: with N / L = 2 rows each, row 6 belongs to none."},
             {Matrix({{4}, {30}, {900}}), "These are sums; divide by the segment's size."},
             {(3.0 / 7) * Matrix({{4}, {30}, {900}}),
              "Divide by each segment's own size, not by N / L."}});
    j.asks("6 rows in 3 segments")
        .same("means", segment_means(Matrix({{1}, {3}, {5}, {7}, {9}, {11}}), 3),
              Matrix({{2}, {6}, {10}}), "Segment j begins at row j * N / L.");
    const char* const all_the_rest =
        "The last segment has all the rest here. Sizes differ by one at most: segment j begins at "
        "j * N / L and ends where the next one begins.";
    j.asks("8 rows in 3 segments: 0-1, 2-4, 5-7")
        .same("means", segment_means(Matrix({{1}, {3}, {10}, {20}, {90}, {100}, {200}, {600}}), 3),
              Matrix({{2}, {40}, {300}}), "Segment j ends where segment j + 1 begins.",
              {{Matrix({{2}, {15}, {247.5}}), all_the_rest}});
    j.asks("scatter adds to what is there");
    Matrix dx(7, 1, 1000);
    scatter(Matrix({{2}, {4}, {6}}), dx);
    j.same(
        "dx", dx, Matrix({{1001}, {1001}, {1002}, {1002}, {1002}, {1002}, {1002}}),
        "Row i of segment j receives dmeans_j / size, added to dx (+=).",
        {{Matrix({{1}, {1}, {2}, {2}, {2}, {2}, {2}}), "Add to dx (+=): q is used elsewhere, too."},
         {Matrix({{1002}, {1002}, {1004}, {1004}, {1006}, {1006}, {1006}}),
          "Each row has the share 1 / size in the mean, so it receives that share."},
         {Matrix({{1001}, {1000}, {1002}, {1000}, {1002}, {1000}, {1000}}),
          "Only the first row of each segment received something; all rows were in the mean."},
         {Matrix({{1001}, {1001}, {1002}, {1002}, {1003}, {1003}, {1003}}),
          "Divide by each segment's own size; the last one has three rows."}});
    Matrix eight(8, 1);
    scatter(Matrix({{2}, {6}, {12}}), eight);
    j.asks("scatter to 8 rows: 0-1, 2-4, 5-7")
        .same("dx", eight, Matrix({{1}, {1}, {2}, {2}, {2}, {4}, {4}, {4}}),
              "scatter has the segments of segment_means.",
              {{Matrix({{1}, {1}, {3}, {3}, {3}, {3}, {3}, {3}}), all_the_rest}});
    const int landmarks = 3;
    const auto block = [](const Matrices& in) {
      return softmax(
          matmul(segment_means(in[0], landmarks), transpose(segment_means(in[1], landmarks))));
    };
    const auto one_side = [block](bool transposed, bool softened) {
      return [=](const Matrices& in, const Matrix& da) {
        const Matrix a = block(in);
        Matrix e = da;
        for (int i = 0; softened && i < a.rows; ++i) {
          double sum = 0;
          for (int k = 0; k < a.columns; ++k) sum += a(i, k) * da(i, k);
          for (int k = 0; k < a.columns; ++k) e(i, k) = a(i, k) * (da(i, k) - sum);
        }
        Matrix dq(in[0].rows, in[0].columns), dk = dq;
        scatter(matmul(e, segment_means(in[1], landmarks)), dq);
        scatter(matmul(transposed ? transpose(e) : e, segment_means(in[0], landmarks)), dk);
        return Matrices{dq, dk};
      };
    };
    j.asks("as differences say")
        .gradients(block,
                   [](const Matrices& in, const Matrix& da) {
                     Matrix dq(in[0].rows, in[0].columns), dk = dq;
                     block_backward(in[0], in[1], da, dq, dk);
                     return Matrices{dq, dk};
                   },
                   {random_matrix(7, 4), random_matrix(7, 4, 2)}, {"dq", "dk"},
                   "E = A (dA - row sums of A dA); dQl = E Kl; dKl = E^T Ql; then scatter both.",
                   {{one_side(false, true),
                     "dKl = E^T Ql: E is not transposed here, and as [L, L] it fits both ways."},
                    {one_side(true, false), "E is dA here: softmax's backward is missing."}});
    Matrix dq(7, 4, 5), dk(7, 4, 5), fresh(7, 4), other(7, 4);
    const Matrix q = random_matrix(7, 4), k = random_matrix(7, 4, 2), da = random_matrix(3, 3, 6);
    j.asks("the block adds to what came from elsewhere");
    block_backward(q, k, da, dq, dk);
    block_backward(q, k, da, fresh, other);
    j.same("dq", dq, Matrix(7, 4, 5) + fresh,
           "dq and dk come in with gradients of other places: add to them.");
    j.asks("and so for dk")
        .same("dk", dk, Matrix(7, 4, 5) + other, "dk comes in with gradients: add to it.");
  });
}

// hint: In both loops over segments: const int begin = j * n / count, end = (j + 1) * n / count;
// hint: scatter is segment_means with the assignment turned round: dx(i, c) += dmeans(j, c) / (end
// hint: - begin). In block_backward compute Ql, Kl and A again; softmax() is at hand.
