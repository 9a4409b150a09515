// Block attention on tensor cores: tf32 and bf16 lose no more than rounded operands must, whatever
// the lists, slots, places and padding are.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attention/blocks/block_attention.hpp"
#include "tensor/core/device.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/gemm/precision.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/rounding.hpp"
#ifdef SKYTAPE_CUDA_SIMULATED
#include "tests/cuda_simulator/simulator.hpp"
#endif

using namespace skytape;
using namespace skytape::attention;
using test::integers;
using test::Rounding;
using test::to_bits;

namespace {

using Numbers = std::vector<double>;

struct Sample {
  std::string name;
  std::int64_t B = 3, H = 2, N = 0, D = 0;
  BlockPattern pattern;  // on the CPU
  Tensor q, k, v, mask;  // f32 on the CPU
  Tensor dout, dlse;     // by rows of out
  double scale() const { return 1 / std::sqrt(static_cast<double>(D)); }
  std::int64_t slots() const { return pattern.row_blocks * pattern.block; }
  std::int64_t rows() const { return pattern.slot.defined() ? slots() : N; }

  Sample(std::string of, std::int64_t n, std::int64_t width, std::int64_t block,
         const BlockLists::Lists& lists)
      : name(std::move(of)), N(n), D(width) {
    pattern = BlockLists().pattern(0, Device::cpu, [&] { return lists; });
    pattern.block = block;
    Numbers real;  // holes, a padded end, and nothing real at all
    for (std::int64_t e = 0; e < B * N; ++e) {
      const std::int64_t b = e / N, j = e % N;
      real.push_back((b == 0 && (N == 1 || j % 7 != 3)) || (b == 1 && 2 * j < N) ? 1 : 0);
    }
    mask = Tensor::from(real, {B, N}, DType::f32, Device::cpu);
  }
  /// Tokens of a head's slots, -1 for none.
  [[nodiscard]] std::vector<std::int64_t> tokens_of(std::int64_t group) const {
    const Tensor& table = pattern.token;
    const Numbers all = table.defined() ? table.to_vector() : Numbers{};
    const std::int64_t first =
        table.defined() ? group % (table.size(0) * table.size(1)) * slots() : 0;
    std::vector<std::int64_t> tokens;
    for (std::int64_t slot = 0; slot < slots(); ++slot) {
      const auto at = static_cast<std::size_t>(first + slot);
      const auto t = table.defined() ? static_cast<std::int64_t>(all[at]) : slot;
      tokens.push_back(t < N ? t : -1);
    }
    return tokens;
  }
  /// x [B, H, rows, .] with zeros for slots without a token, whose rows nobody reads.
  [[nodiscard]] Numbers of_tokens(Numbers x) const {
    if (!pattern.slot.defined()) return x;
    const std::size_t width = x.size() / static_cast<std::size_t>(B * H * slots());
    for (std::int64_t g = 0; g < B * H; ++g) {
      const std::vector<std::int64_t> tokens = tokens_of(g);
      for (std::size_t slot = 0; slot < tokens.size(); ++slot) {
        const std::size_t row = static_cast<std::size_t>(g) * tokens.size() + slot;
        if (tokens[slot] < 0) std::fill_n(&x[row * width], width, 0.0);
      }
    }
    return x;
  }
  /// To be called last.
  Sample drawn() && {
    const auto draw = [](const Shape& shape, std::uint64_t seed) {
      return test::random_tensor(shape, DType::f32, Device::cpu, seed);
    };
    q = draw({B, H, N, D}, 1);
    k = draw({B, H, N, D}, 2);
    v = draw({B, H, N, D}, 3);
    const auto cotangent = [&](const Shape& shape, std::uint64_t seed) {
      return Tensor::from(of_tokens(draw(shape, seed).to_vector()), shape, DType::f32, Device::cpu);
    };
    dout = cotangent({B, H, rows(), D}, 4);
    dlse = cotangent({B, H, rows()}, 5);
    return std::move(*this);
  }
};

/// Two rounds of sorted slots, where a token's own key counts last (Reformer).
Sample rounds() {
  Sample s("rounds", 44, 16, 24, {{0, 1}, {1, 0}, {2, 3}, {3, 2}});
  std::vector<std::int32_t> token, slot;
  for (std::int64_t g = 0; g < s.B * s.H; ++g) {
    for (std::int64_t r = 0; r < 2; ++r) {
      std::vector<std::int32_t> at(44);
      for (std::int64_t p = 0; p < 48; ++p) {
        const auto t = static_cast<std::int32_t>((p * (r == 0 ? 5 : 13) + g) % 44);
        token.push_back(p < 44 ? t : -1);
        if (p < 44) at[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(48 * r + p);
      }
      slot.insert(slot.end(), at.begin(), at.end());
    }
  }
  s.pattern.token = integers(token, {s.B, s.H, 96});
  s.pattern.slot = integers(slot, {s.B, s.H, 2, 44});
  s.pattern.avoid_self = true;
  return std::move(s).drawn();
}

/// Heads with own orders and places, of 80 nominal tokens: the first sees nothing but the keys that
/// everybody sees.
Sample views() {
  const std::vector<std::int32_t> all = {0, 1, 2, 3};
  Sample s("views", 70, 8, 20, {all, all, all, all});
  std::vector<std::int32_t> token, query, key;
  for (std::int32_t h = 0; h < 2; ++h) {
    for (std::int32_t t = 0; t < 80; ++t) {
      token.push_back((7 * t + 3 * h) % 80);
      query.push_back(t / 3);
      key.push_back(t % 5 == 1 && t < 20 ? kSeenByAll : t / 3);  // not in every chunk
    }
  }
  s.pattern.entries = integers({0, 1, 2,  3,  1, 2, 3, 0, 3, 2, 1,  0,  0, 1, 3, 2, /**/
                                2, 3, -1, -1, 0, 2, 1, 3, 3, 1, -1, -1, 1, 0, 3, -1},
                               {2, 16});  // the second head lists less than there is room for
  s.pattern.token = integers(token, {1, 2, 80});
  s.pattern.query_place = integers(query, {2, 80});
  s.pattern.key_place = integers(key, {2, 80});
  s.pattern.reach = integers({-1, 1}, {2});
  return std::move(s).drawn();
}

/// Groups of 50, of 200 nominal tokens; everybody sees the last 30 of each, which stand first
/// (Sparse Transformer). So some tiles are seen whole, some in part and some not at all.
Sample summaries() {
  const std::vector<std::int32_t> all = {0, 1, 2, 3};
  Sample s("summaries", 190, 32, 64, {all, all, all, all});
  std::vector<std::int32_t> token, query, key;
  for (const bool summary : {true, false}) {
    for (std::int32_t t = 0; t < 200; ++t) {
      if ((t % 50 >= 20) == summary) token.push_back(t);
    }
  }
  token.resize(256, -1);
  for (std::int32_t t = 0; t < 200; ++t) {
    query.push_back(t / 50);
    key.push_back(t % 50 >= 20 ? kSeenByAll : t / 50);
  }
  s.pattern.token = integers(token, {1, 1, 256});
  s.pattern.query_place = integers(query, {1, 200});
  s.pattern.key_place = integers(key, {1, 200});
  s.pattern.reach = integers({0}, {1});
  return std::move(s).drawn();
}

/// A list of more keys than the CPU packs at a time, 512, of which the later ones may score higher.
Sample long_list() {
  std::vector<std::int32_t> list(33, 1);
  list.insert(list.end(), {0, 2, 3, 4, 0});
  return Sample("long list", 75, 12, 16, {list, {0}, {4, 3}, {}, {2}}).drawn();
}

/// Each head has its own lists, with repetition and with less than there is room for (BigBird).
Sample own_lists() {
  Sample s("own lists", 150, 32, 64, {{0, 1}, {1, 2}, {0, 2}});
  s.pattern.entries = integers({0, 1, 1, 2, 0, 2, /**/ 2, -1, 0, 0, 1, -1}, {2, 6});
  return std::move(s).drawn();
}

std::vector<Sample> samples() {
  std::vector<Sample> all;
  const BlockLists::Lists cut = {{0, 1, 2, 3, 4, 5}, {2, 2, -1, 5}, {0}, {3, 1}, {-1, 4, 1}, {}};
  all.push_back(Sample("cut blocks", 86, 20, 16, cut).drawn());
  all.push_back(Sample("two tiles a block", 150, 64, 80, {{0, 1}, {1}}).drawn());
  all.push_back(Sample("wide heads", 75, 100, 40, {{1, 0}, {0, 1}}).drawn());
  all.push_back(Sample("one token", 1, 1, 16, {{0}}).drawn());
  all.push_back(Sample("blocks beyond the tokens", 5, 33, 17, {{0, 1}, {0}}).drawn());
  all.push_back(long_list());
  all.push_back(own_lists());
  all.push_back(rounds());
  all.push_back(views());
  all.push_back(summaries());
  return all;
}

struct Results {
  Numbers out, lse, dq, dk, dv;
};

/// The keys of a query that have a score, as often as they are listed.
std::vector<std::int64_t> keys_of(const Sample& s, std::int64_t group, std::int64_t block,
                                  std::int64_t own, const std::vector<std::int64_t>& tokens) {
  const BlockPattern& p = s.pattern;
  const Numbers entries = p.entries.to_vector(), row = p.row.to_vector();
  const Numbers mask = s.mask.to_vector();
  const std::int64_t total = p.entries.size(1), head = group % s.H;
  const auto number = [](const Tensor& x, std::int64_t a, std::int64_t i) {
    const std::int64_t set = x.size(0) == 1 ? 0 : a;
    return x.to_vector()[static_cast<std::size_t>(set * (x.numel() / x.size(0)) + i)];
  };
  std::vector<std::int64_t> keys;
  for (std::int64_t e = 0; e < total; ++e) {
    const std::int64_t list = p.entries.size(0) == 1 ? 0 : head;
    const double entry = entries[static_cast<std::size_t>(list * total + e)];
    if (row[static_cast<std::size_t>(e)] != static_cast<double>(block) || entry < 0) continue;
    for (std::int64_t c = 0; c < p.block; ++c) {
      const std::int64_t slot = static_cast<std::int64_t>(entry) * p.block + c;
      const std::int64_t j = tokens[static_cast<std::size_t>(slot)];
      if (j < 0) continue;
      bool seen = mask[static_cast<std::size_t>(group / s.H * s.N + j)] != 0;
      if (seen && p.reach.defined()) {
        const double place = number(p.key_place, head, j);
        const double apart = number(p.query_place, head, own) - place;
        seen = place == kSeenByAll || std::abs(apart) <= number(p.reach, head, 0);
      }
      if (seen || (p.avoid_self && j == own)) keys.push_back(j);
    }
  }
  return keys;
}

/// The equations of block_attention.hpp and .cpp in f64, operands of products rounded first.
Results compose(const Sample& s, const Rounding& rounded) {
  const Numbers q = s.q.to_vector(), k = s.k.to_vector(), v = s.v.to_vector();
  const Numbers dout = s.dout.to_vector(), dlse = s.dlse.to_vector();
  const std::int64_t D = s.D;
  const auto dot = [D](const double* x, const double* y, const Rounding& f) {
    double sum = 0;
    for (std::int64_t c = 0; c < D; ++c) sum += f(x[c]) * f(y[c]);
    return sum;
  };
  Results r{Numbers(dout.size()), Numbers(dlse.size(), -std::numeric_limits<double>::infinity()),
            Numbers(q.size()), Numbers(k.size()), Numbers(v.size())};
  for (std::int64_t g = 0; g < s.B * s.H; ++g) {
    const std::vector<std::int64_t> tokens = s.tokens_of(g);
    for (std::int64_t slot = 0; slot < s.slots(); ++slot) {
      const std::int64_t own = tokens[static_cast<std::size_t>(slot)];
      if (own < 0) continue;
      const std::int64_t row = g * s.rows() + (s.pattern.slot.defined() ? slot : own);
      const std::vector<std::int64_t> keys = keys_of(s, g, slot / s.pattern.block, own, tokens);
      const double* const qi = &q[(g * s.N + own) * D];
      const double* const gi = &dout[row * D];
      const auto self = [&](std::int64_t j) { return s.pattern.avoid_self && j == own; };
      Numbers w;
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (const std::int64_t j : keys) {
        w.push_back(self(j) ? kSelfScore : s.scale() * dot(qi, &k[(g * s.N + j) * D], rounded));
        largest = std::max(largest, w.back());
      }
      for (double& x : w) sum += x = std::exp(x - largest);
      if (!keys.empty()) r.lse[row] = largest + std::log(sum);
      for (std::size_t e = 0; e < keys.size(); ++e) {
        const double weight = rounded(w[e] /= sum);
        for (std::int64_t c = 0; c < D; ++c) {
          const std::int64_t at = (g * s.N + keys[e]) * D + c;
          r.out[row * D + c] += weight * rounded(v[at]);
          r.dv[at] += weight * rounded(gi[c]);
        }
      }
      const double delta = dot(gi, &r.out[row * D], [](double x) { return x; }) - dlse[row];
      for (std::size_t e = 0; e < keys.size(); ++e) {
        if (self(keys[e])) continue;
        const std::int64_t at = (g * s.N + keys[e]) * D;
        const double dscore = s.scale() * rounded(w[e] * (dot(gi, &v[at], rounded) - delta));
        for (std::int64_t c = 0; c < D; ++c) {
          r.dq[(g * s.N + own) * D + c] += dscore * rounded(k[at + c]);
          r.dk[at + c] += dscore * rounded(qi[c]);
        }
      }
    }
  }
  r.lse = s.of_tokens(std::move(r.lse));
  return r;
}

BlockPattern moved(const BlockPattern& pattern, Device device) {
  BlockPattern p = pattern;
  for (Tensor* const t : {&p.begin, &p.row, &p.order, &p.entries, &p.token, &p.slot, &p.query_place,
                          &p.key_place, &p.reach}) {
    if (t->defined()) *t = t->to(device);
  }
  return p;
}

Results block_attention(const Sample& s, DType dtype, Device device) {
  const auto there = [&](const Tensor& x) { return x.to(dtype).to(device); };
  const Tensor q = there(s.q), k = there(s.k), v = there(s.v), mask = there(s.mask);
  const BlockPattern pattern = moved(s.pattern, device);
  const BlockForward y = block_forward(q, k, v, mask, pattern, s.scale());
  const BlockBackward g =
      block_backward(q, k, v, mask, pattern, s.scale(), y, there(s.dout), there(s.dlse));
  return {s.of_tokens(y.out.to_vector()), s.of_tokens(y.lse.to_vector()), g.dq.to_vector(),
          g.dk.to_vector(), g.dv.to_vector()};
}

Results on_cuda(const Sample& s, Precision precision) {
  const PrecisionScope scope(Device::cuda, precision);
  return block_attention(s, DType::f32, Device::cuda);
}

/// f(name, array of a, of b, of c) for each result.
template <class F> void each(const Results& a, const Results& b, const Results& c, const F& f) {
  f("out", a.out, b.out, c.out);
  f("lse", a.lse, b.lse, c.lse);
  f("dq", a.dq, b.dq, c.dq);
  f("dk", a.dk, b.dk, c.dk);
  f("dv", a.dv, b.dv, c.dv);
}

bool equal(const Results& a, const Results& b) {
  return a.out == b.out && a.lse == b.lse && a.dq == b.dq && a.dk == b.dk && a.dv == b.dv;
}

}  // namespace

TEST_CASE("block attention is its equations for every kind of list, in f64 and in fp32") {
  for (const Sample& s : samples()) {
    CAPTURE(s.name);
    const Results exact = compose(s, [](double x) { return x; });
    const auto check_f64 = [&](Device device) {
      const Results f64 = block_attention(s, DType::f64, device);
      each(f64, f64, exact, [](const char* what, const auto& got, const auto&, const auto& right) {
        CAPTURE(std::string(what));
        CHECK(test::relative_error(got, right) < 1e-11);
      });
    };
    check_f64(Device::cpu);
    if (!test::cuda_or_skip()) continue;
    check_f64(Device::cuda);
    const Results gpu = on_cuda(s, Precision::fp32);
    each(gpu, gpu, exact, [](const char* what, const auto& got, const auto&, const auto& right) {
      CAPTURE(std::string(what));
      CHECK(test::relative_error(got, right) < 1e-4);
    });
    CHECK(equal(on_cuda(s, Precision::fp32), gpu));  // nothing depends on who comes first
  }
}

TEST_CASE("blocks on tensor cores lose at most three times what rounded operands lose") {
  if (!test::cuda_or_skip()) return;
  for (const Sample& s : samples()) {
    const Results exact = compose(s, [](double x) { return x; });
    for (const Precision precision : {Precision::tf32, Precision::bf16}) {
      CAPTURE(s.name);
      CAPTURE(static_cast<int>(precision));
      const Results plain = compose(s, to_bits(precision == Precision::tf32 ? 11 : 8));
      const Results got = on_cuda(s, precision);
      each(got, plain, exact,
           [](const char* what, const auto& x, const auto& rounded, const auto& right) {
             CAPTURE(std::string(what));
             CHECK(test::relative_error(x, right) <=
                   3 * test::relative_error(rounded, right) + 1e-5);
           });
      CHECK(equal(on_cuda(s, precision), got));  // nothing depends on who comes first
    }
  }
}

TEST_CASE("small blocks and wide heads stay in fp32, others use tensor cores when asked") {
  if (!test::cuda_or_skip()) return;
  const auto changes = [](std::int64_t width, std::int64_t block) {
    const Sample s = Sample("", 30, width, block, {{0, 1}, {1, 0}}).drawn();
    return !equal(on_cuda(s, Precision::bf16), on_cuda(s, Precision::fp32));
  };
  CHECK(changes(64, 16));
  CHECK_FALSE(changes(65, 16));
  CHECK_FALSE(changes(64, 15));
}

#ifdef SKYTAPE_CUDA_SIMULATED
TEST_CASE("block attention's products run on tensor cores where blocks have rows enough for them") {
  const auto names_of = [](std::int64_t block, Precision precision) {
    const PrecisionScope scope(Device::cuda, precision);
    const cuda_simulator::LaunchesOnly only;
    (void)block_attention(Sample("", 2 * block, 32, block, {{0, 1}, {1}}).drawn(), DType::f32,
                          Device::cuda);
    std::string names;
    for (const auto& launch : cuda_simulator::LaunchesOnly::all()) names += launch.name + "; ";
    return names;
  };
  const auto on_tensor_cores = [&](std::int64_t block, Precision precision) {
    return names_of(block, precision).find("block attention on tensor cores") != std::string::npos;
  };
  CHECK(on_tensor_cores(64, Precision::bf16));
  CHECK(on_tensor_cores(64, Precision::tf32));
  CHECK_FALSE(on_tensor_cores(64, Precision::fp32));
  CHECK_FALSE(on_tensor_cores(8, Precision::bf16));
  CHECK(names_of(8, Precision::bf16).find("block attention; ") != std::string::npos);
}
#endif
