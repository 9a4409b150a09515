// 12. A CUDA reduction, then a tile in shared memory
// teaches: blocks, threads, shared memory, barriers; why a tile saves reads
// minutes: 45
//
// A kernel is a function that a GPU runs in very many threads. They come in blocks; a thread knows
// its own place, threadIdx, that of its block, blockIdx, and how many threads a block has,
// blockDim. Threads of a block have a piece of fast shared memory in common. They run in no
// particular order, in groups of 32 (warps), so a thread that wants to read what another one wrote
// must first wait:
//
//   __syncthreads();      waits until all threads of the block have come here
//
// Every thread of the block must come to it; never put it into an if that only some enter.
//
// No GPU is needed: a simulated device runs your kernels. It tells when two warps touch the same
// place without a barrier between them, and fresh memory is NaN, so that nothing unwritten passes
// for zero.
//
// (a) row_sums: y_i = sum_c x_ic for x of [rows, n]. Block i has row i, and kThreads threads.
// Thread t adds up the entries t, t + kThreads, t + 2 kThreads … of its row into a local variable
// and writes it to part[t]. Then half of the threads add what the other half has, then a quarter,
// until part[0] has it all; thread 0 writes it to y. Between the rounds stands a barrier.
//
//   auto& part = cuda::shared<float[kThreads]>();     plain CUDA: __shared__ float part[kThreads];
//
// (b) products: S = Q K^T for Q of [n, d], K of [m, d], S of [n, m]. A block makes kTile x kTile
// entries of S; thread (x, y) makes the one in row blockIdx.y kTile + y and column blockIdx.x kTile
// + x. Simply done, each thread reads a row of Q and a row of K: 2 d reads from slow memory for
// each entry. But the threads of a block want the same few rows. So walk along d in pieces of kTile
// channels; each thread brings one number of Q and one of K to shared memory; barrier; each thread
// adds kTile products from there; barrier, as the next piece will overwrite this one. That is 2 d /
// kTile reads for each entry. Where a row or channel lies beyond n, m or d, bring a zero, and at
// the end write only what exists.
//
//   auto& tile = cuda::shared<Tiles>();                 tile.q[y][x], tile.k[y][x]
//
// x, q and k are read as from a pointer, row after row: x_ic is x[i n + c]. The judge counts reads.
//
// The real ones: tensor/launch/cuda.hpp (teams); page 7 of the tour, tests/tour/07_kernel.cu
// ("tiles").
#include "tests/exercises/device.hpp"

using namespace skytape;
using namespace skytape::exercises;

constexpr int kThreads = 128, kTile = 16;

struct Tiles {
  float q[kTile][kTile], k[kTile][kTile];
};

// ---- your part ----------------------------------------------------------------------------------

/// x: [rows, n], y: [rows]. Launched with `rows` blocks of kThreads threads.
__global__ void row_sums(Numbers x, float* y, int n) { write_kernel_here(); }

/// q: [n, d], k: [m, d], s: [n, m]. Blocks of kTile x kTile threads, enough to cover s.
__global__ void products(Numbers q, Numbers k, float* s, int n, int m, int d) {
  write_kernel_here();
}

// ---- the judge ----------------------------------------------------------------------------------

int main() {
  return judge([](Judge& j) {
    Judge::tolerate(1e-4);  // of float
    for (const int n : {128, 300, 5}) {
      const Matrix x = random_matrix(3, n);
      Matrix sums(3, 1), first(3, 1);
      for (int i = 0; i < 3; ++i) {
        for (int c = 0; c < n; ++c) sums(i, 0) += static_cast<float>(x(i, c));
        for (int c = 0; c < std::min(n, kThreads); ++c) first(i, 0) += static_cast<float>(x(i, c));
      }
      const DeviceArray from(x), to(3);
      run("row_sums", row_sums, 3, kThreads, from.numbers(), to.data(), n);
      j.asks("(a) sums of rows of " + std::to_string(n))
          .same(
              "y", to.read(3, 1), sums,
              "Each entry of the row belongs to one thread: t, t + kThreads, …; then the partial "
              "sums are "
              "added, half by half.",
              {{first,
                "Only the first kThreads entries are in it: go on to t + kThreads, t + 2 kThreads "
                "…."}});
      const int most = faults.most_reads(), share = (n + kThreads - 1) / kThreads;
      j.asks("(a) no thread reads more than " + std::to_string(share) + " of " + std::to_string(n))
          .holds(most <= share, "A thread of row_sums reads " + std::to_string(most) +
                                    " numbers, so that the others wait for it. Entries t, t + "
                                    "kThreads, … are the share of thread t.");
    }
    struct Size {
      int n, m, d;
    };
    for (const auto& [n, m, d] : {Size{32, 32, 16}, Size{32, 32, 48}, Size{20, 37, 21}}) {
      const Matrix q = random_matrix(n, d), k = random_matrix(m, d, 2);
      const DeviceArray of_q(q), of_k(k), to(n * m);
      const int down = (n + kTile - 1) / kTile, right = (m + kTile - 1) / kTile;
      run("products", products, dim3(right, down), dim3(kTile, kTile), of_q.numbers(),
          of_k.numbers(), to.data(), n, m, d);
      const int reads = faults.all_reads();
      const Matrix s = to.read(n, m);
      const bool unwritten =  // 0 times nan is nan
          std::isnan(matmul(matmul(Matrix(1, n), s), Matrix(m, 1))(0, 0));
      const std::string size =
          "n, m, d = " + std::to_string(n) + ", " + std::to_string(m) + ", " + std::to_string(d);
      j.asks("(b) Q K^T, " + size)
          .same("s", s, matmul(q, transpose(k)),
                unwritten
                    ? "nan is memory that no thread has written: of s, whose entry i, j is at s[i "
                      "m + j], or of a tile where a thread outside S left early."
                    : "S_ij = sum_c Q_ic K_jc. In the tile the rows of K are K's: thread (x, y) "
                      "needs tile.k[x][c].");
      const int enough = n * d * right + m * d * down;
      j.asks("(b) " + std::to_string(enough) + " reads from device memory are enough")
          .holds(reads <= enough, "products read " + std::to_string(reads) +
                                      " numbers from device memory; " + std::to_string(enough) +
                                      " are enough: each block needs each of its rows once.");
    }
  });
}

// hint: (a) for (int half = kThreads / 2; half > 0; half /= 2) { if (t < half) part[t] += part[t +
// hint: half]; __syncthreads(); } with one more barrier before the loop. (b) The row of Q that a
// hint: thread brings is blockIdx.y * kTile + y, the row of K is blockIdx.x * kTile + y, the
// hint: channel of both c0 + x. A thread outside S brings numbers, too: no early return.
