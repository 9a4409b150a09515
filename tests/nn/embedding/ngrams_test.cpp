#include "nn/embedding/ngrams.hpp"

#include <set>
#include <vector>

#include "autograd/ops.hpp"
#include "nn/embedding/embedding.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;

namespace {

using Ids = std::vector<std::int32_t>;

Tensor ids_of(const Ids& ids, const Shape& shape) {
  return Tensor::from(ids, shape, DType::i32, Device::cpu);
}

/// The row as the header's sentence says it.
std::int32_t row_of(const Ids& last_to_first, std::uint64_t rows) {
  std::uint64_t h = 0;
  for (const std::int32_t id : last_to_first) {
    h = (h ^ (static_cast<std::uint64_t>(id) + 1)) * 0x9E3779B97F4A7C15ULL;
    h ^= h >> 32;
  }
  return static_cast<std::int32_t>(h % rows);
}

Ids slots_of(const Ids& ids, const Shape& shape, int longest, std::int64_t rows) {
  const Tensor slots = nn::ngram_slots(ids_of(ids, shape), longest, rows);
  return Ids(slots.data<std::int32_t>(), slots.data<std::int32_t>() + slots.numel());
}

}  // namespace

TEST_CASE("an n-gram's row follows from its tokens, and before the first token stands padding") {
  const Ids ids = {5, 6, 7, 9, 5, 6};  // two sequences
  const Ids slots = slots_of(ids, {2, 3}, 3, 1000);
  const Ids expected = {row_of({5, 0}, 1000),    row_of({6, 5}, 1000),    row_of({7, 6}, 1000),
                        row_of({9, 0}, 1000),    row_of({5, 9}, 1000),    row_of({6, 5}, 1000),
                        row_of({5, 0, 0}, 1000), row_of({6, 5, 0}, 1000), row_of({7, 6, 5}, 1000),
                        row_of({9, 0, 0}, 1000), row_of({5, 9, 0}, 1000), row_of({6, 5, 9}, 1000)};
  CHECK(slots == expected);
}

TEST_CASE("the rows of different n-grams are spread over the table") {
  constexpr std::int32_t kTokens = 64;
  constexpr std::int64_t kRows = 4096;  // as many as there are pairs
  Ids ids;
  for (std::int32_t a = 0; a < kTokens; ++a) {
    for (std::int32_t b = 0; b < kTokens; ++b) ids.insert(ids.end(), {a + 1, b + 1});
  }
  const Ids slots = slots_of(ids, {kTokens * kTokens, 2}, 2, kRows);
  std::set<std::int32_t> used;
  for (std::size_t i = 1; i < slots.size(); i += 2) used.insert(slots[i]);
  // Thrown at random, they would use 1 - 1/e of the rows: 2,589 of 4,096, give or take 30.
  CHECK(used.size() > 2400);
}

TEST_CASE("slots of wrong arguments are refused") {
  CHECK_THROWS_AS((void)nn::ngram_slots(ids_of({1, 2}, {2}), 2, 10), Error);
  CHECK_THROWS_AS((void)nn::ngram_slots(ids_of({1, 2}, {1, 2}), 1, 10), Error);
  CHECK_THROWS_AS((void)nn::ngram_slots(ids_of({1, 2}, {1, 2}), 2, 0), Error);
}

TEST_CASE("an embedding with n-grams adds the rows of the table, and only they get a gradient") {
  nn::ModelConfig config;
  config.vocabulary = 12;
  config.nominal_length = 4;
  config.width = 3;
  config.positions = nn::Positions::none;
  config.ngrams = 2;
  config.ngram_rows = 50;
  ParameterStore store;
  const nn::Embedding embedding(store, "e", config);
  store.pack(DType::f64, Device::cpu, 7);
  const Ids ids = {4, 8, 4, 8};
  const Tensor mask =
      Tensor::from(std::vector<double>{1, 1, 1, 1}, {1, 4}, DType::f64, Device::cpu);
  Tape tape;
  const Var x = embedding(tape, ids_of(ids, {1, 4}), mask);  // [1, 4, 3]
  const std::vector<double> out = x.value().to_vector();
  const std::vector<double> tokens = embedding.tokens->value.to_vector();
  const std::vector<double> table = embedding.ngrams->value.to_vector();
  const Ids rows = {row_of({4, 0}, 50), row_of({8, 4}, 50), row_of({4, 8}, 50), row_of({8, 4}, 50)};
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t c = 0; c < 3; ++c) {
      CHECK(out[3 * i + c] == doctest::Approx(tokens[static_cast<std::size_t>(ids[i]) * 3 + c] +
                                              table[static_cast<std::size_t>(rows[i]) * 3 + c]));
    }
  }
  tape.backward(sum_all(x));
  std::vector<double> expected(150, 0.0);
  for (const std::int32_t row : rows) {
    for (std::size_t c = 0; c < 3; ++c) expected[static_cast<std::size_t>(row) * 3 + c] += 1;
  }
  CHECK(embedding.ngrams->grad.to_vector() == expected);
}
