// The exchange of a step in buckets, without other processes: which numbers begin, and when.
#include "train/step/buckets.hpp"

#include <algorithm>

#include "attention/registry.hpp"
#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "data/masking.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/step/small_step.hpp"
#include "train/step/trainer.hpp"

using namespace skytape;
using namespace skytape::train;
using namespace skytape::test;

namespace {

data::Batch make_batch(const nn::ModelConfig& config) {
  data::Batch batch = seven_examples(config.sequences);
  if (config.objective == nn::Objective::predict_masked) {
    for (std::size_t i = 0; i < 7; ++i) batch.visits.push_back(i);
    data::MaskingOptions masking;
    masking.rate = 0.25;
    masking.mask_id = 16;
    hide_tokens(batch, masking);
  }
  return batch;
}

/// Keeps what one of two processes gives to the exchange of a step.
struct Given {
  std::vector<double> numbers;  // of all rows, or of their sum
  std::size_t buckets = 0;
  std::size_t early = 0;  // of them begun before the token table's gradient was final
};

Given given(const nn::ModelConfig& config, bool in_order, std::int64_t bucket_size, int part = 0,
            const MicrobatchLimits& limits = {4}) {
  nn::Model model(config, DType::f32, Device::cpu, 3);
  const Parameter& tokens = *model.parameters().find("model.embeddings.word_embeddings.weight");
  Given all;
  std::vector<std::vector<double>> seen;  // the table's gradient at each begin
  StepShare share{{part, 2}, in_order, bucket_size, {}, {}};
  share.begin = [&](const Tensor& rows, std::int64_t, const Tensor& total, Bucket bucket) {
    const Tensor sums = in_order ? rows : total.reshape({1, total.numel()});  // [m, n]
    const auto n = sums.size(1);
    all.numbers.resize(static_cast<std::size_t>(sums.numel()), -1);
    for (std::int64_t row = 0; row < sums.size(0); ++row) {
      const std::vector<double> part_of_row = sums[row].slice(bucket.begin, bucket.end).to_vector();
      std::copy(part_of_row.begin(), part_of_row.end(),
                all.numbers.begin() + row * n + bucket.begin);
    }
    ++all.buckets;
    seen.push_back(tokens.grad.to_vector());
  };
  share.finish = [&] {
    all.early = static_cast<std::size_t>(std::count_if(
        seen.begin(), seen.end(), [&](const auto& x) { return x != tokens.grad.to_vector(); }));
  };
  Trainer trainer(model, {}, {1e-3, 10, 2}, 3, limits, true, share);
  for (int step = 0; step < 2; ++step) {
    all = {};
    seen.clear();
    trainer.step(make_batch(config));
  }
  return all;
}

/// Buckets give what one bucket gives, and begin before backward ends.
void check_buckets(const nn::ModelConfig& config) {
  for (const bool in_order : {false, true}) {
    CAPTURE(in_order);
    const Given one = given(config, in_order, 0), several = given(config, in_order, 100);
    CHECK(one.buckets == 1);
    CHECK(one.early == 0);
    CHECK(several.buckets > 8);
    CHECK(several.early > 3);
    CHECK(several.numbers == one.numbers);
  }
}

Parameter& add(ParameterStore& store, const std::string& name, std::int64_t size) {
  return store.add(name, {size}, constant_init(1));
}

}  // namespace

TEST_CASE("buckets go from the last trainable parameter to the first, then to what is behind") {
  ParameterStore store;
  add(store, "first", 40);                                    // places 0 to 47
  store.add_average("average", {20}, constant_init(1), 0.5);  // 144 to 175
  add(store, "second", 16);                                   // 48 to 63
  store.add("frozen", {9}, constant_init(1), false);
  add(store, "third", 60);  // 64 to 127
  add(store, "last", 3);    // 128 to 143
  store.pack(DType::f32, Device::cpu, 1);
  REQUIRE(store.trainable_size() == 144);
  REQUIRE(store.gradients().numel() == 176);
  const auto places = [&](std::int64_t size) {
    std::vector<std::pair<std::int64_t, std::int64_t>> all;
    for (const Bucket& b : buckets_of(store, 178, size)) all.emplace_back(b.begin, b.end);
    return all;
  };
  using Places = std::vector<std::pair<std::int64_t, std::int64_t>>;
  CHECK(places(0) == Places{{0, 178}});
  CHECK(places(1) == Places{{128, 144}, {64, 128}, {48, 64}, {0, 48}, {144, 178}});
  CHECK(places(17) == Places{{64, 144}, {0, 64}, {144, 178}});
  CHECK(places(81) == Places{{48, 144}, {0, 48}, {144, 178}});
  CHECK(places(97) == Places{{0, 178}});
}

TEST_CASE("a bucket is final behind the first node that reads one of its parameters") {
  ParameterStore store;
  Parameter& shared = add(store, "shared", 16);
  Parameter& once = add(store, "once", 16);
  add(store, "unused", 16);
  Parameter& other = add(store, "other", 16);
  store.pack(DType::f32, Device::cpu, 1);
  Tape tape;
  const Var x = tape.input(Tensor::full({16}, 2, DType::f32, Device::cpu));  // node 0
  const Var a = x * tape.parameter(shared);                                  // 2
  const Var late = tape.parameter(other);                                    // 3
  const Var b = a * tape.parameter(once);                                    // 5
  const Var c = b * tape.parameter(shared);                                  // 7
  (void)(c * late);                                                          // 8
  const std::vector<Bucket> buckets = buckets_of(store, 66, 1);
  REQUIRE(buckets.size() == 5);  // other, unused, once, shared, metrics
  CHECK(first_readers(tape, buckets) == std::vector<int>{8, 9, 5, 2, -1});
}

TEST_CASE("with every method, buckets give the gradients of one bucket and begin early") {
  for (const attention::Spec& spec : attention::registry()) {
    CAPTURE(spec.name);
    check_buckets(small_model(spec.name));
  }
}

TEST_CASE("buckets of shared tables, two sequences and other models give those of one bucket") {
  const auto check = [](const std::string& what, auto&& change, const char* attention = "softmax") {
    CAPTURE(what);
    nn::ModelConfig config = small_model(attention);
    change(config);
    check_buckets(config);
  };
  check("norms behind sums", [](auto& c) { c.norm = nn::Norm::post; });
  check(
      "a matrix of all layers", [](auto& c) { c.attention_options["sharing"] = "layerwise"; },
      "linformer");
  check("two sequences", [](auto& c) { c.sequences = 2; });
  check("n-grams and positions from both ends", [](auto& c) {
    c.ngrams = 2;
    c.both_ends = true;
  });
  check("hidden tokens", [](auto& c) { c.objective = nn::Objective::predict_masked; });
  check("hidden tokens, norms behind sums", [](auto& c) {
    c.objective = nn::Objective::predict_masked;
    c.norm = nn::Norm::post;
  });
}

TEST_CASE("a process without a microbatch begins the same buckets, with zeros") {
  const nn::ModelConfig config = small_model("routing");
  for (const bool in_order : {false, true}) {
    const Given with = given(config, in_order, 100, 0, {1}),
                without = given(config, in_order, 100, 1, {1});
    CHECK(without.buckets == with.buckets);
    CHECK(without.early == 0);
    CHECK(without.numbers == std::vector<double>(in_order ? 0 : with.numbers.size(), 0));
  }
}
