// BigBird: the table of random blocks, and blocks that count twice.
#include <algorithm>
#include <cmath>
#include <set>

#include "attention/blocks/bigbird_lists.hpp"
#include "attention/strict_draws.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tests/attention/methods_support.hpp"
#include "tests/support/close.hpp"
#include "tests/support/devices.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::test {
namespace {

/// Rows 1 … Q - 2 of the table that a method made at this length draws, as sets with their sizes.
struct Row {
  std::int64_t i;
  std::vector<std::int64_t> blocks;
};
std::vector<Row> table_of(std::int64_t n, const OptionValues& options) {
  const Layer layer = make_layer(attention::find("bigbird"), options,
                                 {.batch = 1, .heads = 2, .n = n, .width = 8}, DType::f64);
  const Parameter* table = layer.store->find("attn.blocks");
  REQUIRE(table != nullptr);
  const std::vector<double> all = table->value.to_vector();
  const std::int64_t rows = table->shape[1], drawn = table->shape[2];
  std::vector<Row> result;
  for (std::int64_t e = 0; e < table->shape[0] * rows; ++e) {
    Row row{e % rows + 1, {}};
    for (std::int64_t s = 0; s < drawn; ++s) {
      row.blocks.push_back(static_cast<std::int64_t>(all[static_cast<std::size_t>(e * drawn + s)]));
    }
    result.push_back(row);
  }
  return result;
}

bool distinct(const Row& row) {
  return std::set<std::int64_t>(row.blocks.begin(), row.blocks.end()).size() == row.blocks.size();
}

}  // namespace

TEST_CASE("random blocks of the whole sequence are new to their list and reach everywhere") {
  std::set<std::int64_t> reached;
  for (const Row& row : table_of(2048, {})) {
    CHECK(distinct(row));
    for (const std::int64_t j : row.blocks) {
      reached.insert(j);
      CHECK(std::abs(j - row.i) > 1);
      CHECK(j > (row.i == 1 ? 2 : 0));
      CHECK(j < (row.i == 30 ? 29 : 31));
    }
  }
  CHECK(reached.size() > 20);
}

TEST_CASE("each head's lists get the blocks of its own table, and none that is not there") {
  using attention::random_entry;
  const attention::BlockPattern pattern = attention::BlockLists().pattern(0, Device::cpu, [] {
    return attention::BlockLists::Lists{
        {0}, {random_entry(1), 1, random_entry(0)}, {random_entry(0)}, {3, -1}};
  });
  const Tensor table = Tensor::from(std::vector<int>{3, 0, /**/ 4, 1, /**/ -1, 2, /**/ 1, 0},
                                    {2, 2, 2}, DType::i32, Device::cpu);
  CHECK(attention::fill_random_blocks(pattern, table).to_vector() ==
        std::vector<double>{0, 0, 1, 3, -1, 3, -1, /**/ 0, 2, 1, -1, 1, 3, -1});
}

TEST_CASE("random_range = official draws from the sets of the papers' code") {
  const OptionValues official = {{"random_range", "official"}};
  for (const Row& row : table_of(2048, official)) {  // the first (2 r + 5) b tokens
    INFO("row ", row.i);
    CHECK(distinct(row));
    for (const std::int64_t j : row.blocks) {
      CHECK(j >= 1);
      CHECK(j <= 9);
      CHECK(std::abs(j - row.i) > 1);
      if (row.i == 1) CHECK(j != 9);
      if (row.i == 9) CHECK(j != 1);
    }
  }
  for (const auto& [n, last] : {std::pair{1024, 14}, std::pair{4096, 15}}) {
    bool overlap = false;
    for (const Row& row : table_of(n, official)) {
      INFO("n = ", n, ", row ", row.i);
      CHECK(distinct(row));
      const std::int64_t blocks = n / 64;
      for (const std::int64_t j : row.blocks) {
        CHECK(j >= 1);
        CHECK(j <= last);
        if (row.i < blocks - 3) CHECK(std::abs(j - row.i) > 1);
        overlap = overlap || std::abs(j - row.i) <= 1;
      }
    }
    if (n == 4096) CHECK(!overlap);
  }
}

TEST_CASE("random_range = official may draw all blocks that the papers' code may, and no others") {
  const OptionValues all = {{"random_range", "official"}, {"random_blocks", "16"}};
  for (const auto& [n, last] : {std::pair(1024, 14), {3072, 15}, {4096, 15}}) {
    for (const Row& row : table_of(n, all)) {
      std::set<std::int64_t> expected = {-1};  // slots that are left
      for (std::int64_t j = 1; j <= last; ++j) {
        const bool free = row.i >= n / 64 - 3;  // rows whose window may be drawn again
        if (free || std::abs(j - row.i) > 1) expected.insert(j);
      }
      INFO("n = ", n, ", row ", row.i);
      CHECK(std::set<std::int64_t>(row.blocks.begin(), row.blocks.end()) == expected);
    }
  }
}

TEST_CASE("heads draw tables that differ") {
  const std::vector<Row> rows = table_of(2048, {});  // those of the first head, then the second's
  int alike = 0;
  for (std::size_t i = 0; i < 30; ++i) alike += rows[i].blocks == rows[30 + i].blocks;
  CHECK(alike < 3);
}

TEST_CASE("a row with fewer candidates than draws leaves slots empty") {
  for (const Row& row : table_of(40, {{"block", "8"}})) {  // five blocks
    const auto none = std::count(row.blocks.begin(), row.blocks.end(), -1);
    CHECK(none == (row.i == 2 ? 3 : 2));
  }
}

TEST_CASE("a block drawn though it is listed counts twice") {
  const Sizes sizes{.batch = 1, .heads = 1, .n = 10, .width = 2};  // five blocks of two tokens
  const OptionValues options = {{"block", "2"}, {"random_blocks", "1"}};
  const Layer layer = make_layer(attention::find("bigbird"), options, sizes, DType::f64);
  Problem p = make_problem(attention::find("bigbird"), sizes, Padding::none);
  p.in.q.fill(0);  // uniform attention
  std::vector<double> v(20);
  v[4 * 2] = 1;  // token 4, in block 2
  p.in.v = Tensor::from(v, {1, 1, 10, 2}, DType::f64, Device::cpu);
  Draws draws;
  draws.set("blocks",
            Tensor::from(std::vector<std::int32_t>{2, -1, -1}, {1, 3, 1}, DType::i32, Device::cpu));
  Call call = training_call(p.in);
  call.injected = &draws;
  const std::vector<double> out = at(run(layer, p, call), "out").to_vector();
  CHECK(out[2 * 2] == doctest::Approx(0.2));    // block 1 sees 0, 1, 2, 4 and 2 again: 2 of 10
  CHECK(out[4 * 2] == doctest::Approx(0.1));    // block 2 sees all once: 1 of 10
  CHECK(out[6 * 2] == doctest::Approx(0.125));  // block 3 sees 0, 2, 3, 4: 1 of 8
}

TEST_CASE("padded queries give zero even among real ones") {
  const Sizes sizes{.batch = 3, .heads = 2, .n = 37, .width = 4};
  const Layer layer = make_layer(attention::find("bigbird"), {{"block", "5"}}, sizes, DType::f64);
  const Problem p = make_problem(attention::find("bigbird"), sizes, Padding::mixed);
  const Tensor out = at(run(layer, p, training_call(p.in)), "out");
  CHECK(norm(tensor::mask_rows(out, tensor::affine(p.in.mask, -1, 1))) == 0);
  CHECK(norm(out) > 0);
}

TEST_CASE("a table of another shape is an error that says what was expected") {
  const Sizes sizes{.batch = 1, .heads = 2, .n = 40, .width = 4};
  const Layer layer = make_layer(attention::find("bigbird"), {{"block", "8"}}, sizes, DType::f64);
  const Problem p = make_problem(attention::find("bigbird"), sizes, Padding::none);
  Draws draws;
  draws.set("blocks", Tensor::zeros({2, 4, 3}, DType::i32, Device::cpu));
  Call call = training_call(p.in);
  call.injected = &draws;
  CHECK(error_text([&] { (void)run(layer, p, call); }).find("expected blocks i32[2, 3, r]") !=
        std::string::npos);
}

TEST_CASE("injected blocks that do not exist are refused on each device") {
  const Sizes sizes{.batch = 1, .heads = 2, .n = 40, .width = 4};
  const Spec& spec = attention::find("bigbird");
  for_each_device([&](Device device) {
    const Layer layer = make_layer(spec, {{"block", "8"}}, sizes, DType::f32, device);
    const Problem p = convert(make_problem(spec, sizes, Padding::none), DType::f32, device);
    Draws draws;
    Call call = training_call(p.in);
    call.injected = &draws;
    for (const int block : {-2, 5}) {
      draws.set("blocks", Tensor::full({2, 3, 3}, block, DType::i32, device));
      CHECK(error_text([&] { (void)run(layer, p, call); }) ==
            join("bigbird: draws: blocks: index ", block, " is outside [-1, 5)"));
    }
  });
}

TEST_CASE("injected blocks where there are too few to draw from are refused") {
  const Sizes sizes{.batch = 1, .heads = 2, .n = 32, .width = 4};  // four blocks
  const Spec& spec = attention::find("bigbird");
  const Layer layer = make_layer(spec, {{"block", "8"}}, sizes, DType::f64);
  const Problem p = make_problem(spec, sizes, Padding::none);
  Draws draws;
  draws.set("blocks", Tensor::zeros({2, 2, 3}, DType::i32, Device::cpu));
  Call call = training_call(p.in);
  call.injected = &draws;
  const attention::StrictDraws strict;
  CHECK(error_text([&] { (void)run(layer, p, call); }) ==
        "draws: the method draws nothing in this setting, got 'blocks'");
}

TEST_CASE("a table with fewer random blocks follows one with more in the same layer") {
  const Sizes sizes{.batch = 1, .heads = 1, .n = 40, .width = 4};
  const Layer layer = make_layer(attention::find("bigbird"), {{"block", "8"}}, sizes, DType::f64);
  const Problem p = make_problem(attention::find("bigbird"), sizes, Padding::none);
  const auto outcome = [&](const std::vector<std::int32_t>& table) {
    Draws draws;
    const auto drawn = static_cast<std::int64_t>(table.size()) / 3;
    draws.set("blocks", Tensor::from(table, {1, 3, drawn}, DType::i32, Device::cpu));
    Call call = training_call(p.in);
    call.injected = &draws;
    return at(run(layer, p, call), "out");
  };
  const Tensor wide = outcome({3, -1, /**/ -1, -1, /**/ 1, -1});
  CHECK(distance(outcome({3, -1, 1}), wide) <= 1e-14 * norm(wide));
}

}  // namespace skytape::test
