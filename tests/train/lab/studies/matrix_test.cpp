// Effective attention matrices: what a method multiplies the values with.
#include "train/lab/studies/matrix.hpp"

#include <algorithm>
#include <numeric>

#include "attention/registry.hpp"
#include "data/files/json.hpp"
#include "nn/model.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tests/support/close.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/unicode.hpp"
#include "tests/train/cli/workshop.hpp"
#include "train/lab/studies/attention_inputs.hpp"
#include "train/lab/studies/exact_attention.hpp"

using namespace skytape;
using namespace skytape::train;
using namespace skytape::test;
using data::synthetic::error_of;
using data::synthetic::read_file;

namespace {

/// A text of n tokens as a layer of two heads sees it.
MatrixText text_of(std::int64_t n) {
  MatrixText text;
  text.model = "random numbers";
  for (std::int64_t i = 0; i < n; ++i) text.tokens.push_back("t" + std::to_string(i));
  const Shape shape = {1, 2, n, 5};  // [B, H, N, D]: the columns do not fill a whole head
  text.in = {random_tensor(shape, DType::f64, Device::cpu, 1),
             random_tensor(shape, DType::f64, Device::cpu, 2),
             random_tensor(shape, DType::f64, Device::cpu, 3),
             Tensor::full({1, n}, 1, DType::f64, Device::cpu)};
  text.in.x = random_tensor({1, n, 10}, DType::f64, Device::cpu, 4);
  return text;
}

}  // namespace

TEST_CASE("the effective matrix of exact attention is its matrix, and that of a mean is flat") {
  const MatrixText text = text_of(7);
  const auto all =
      run_matrix(text, {.methods = {"softmax", "kernelized", "vmean"}, .head = 1}).matrices;
  REQUIRE(all.size() == 3);
  for (const std::size_t i : {0u, 1u}) {
    CAPTURE(all[i].name);
    const Tensor want = attention_matrix(all[i].name, text.in, 1);  // [N, N]
    CHECK(relative_error(all[i].matrix.to_vector(), want.to_vector()) < 1e-12);
  }
  CHECK(all[0].error < 1e-12);
  CHECK(relative_error(all[2].matrix.to_vector(), std::vector<double>(49, 1.0 / 7)) < 1e-12);
  CHECK(all[2].error > 0.1);
}

TEST_CASE("the matrix of every method, times the values, is the method's output") {
  const MatrixText text = text_of(24);
  MatrixOptions options;
  for (const attention::Spec& spec : attention::registry()) options.methods.push_back(spec.name);
  const MatrixStudy study = run_matrix(text, options);
  const std::vector<MethodMatrix>& all = study.matrices;
  REQUIRE(all.size() + study.left_out.size() == attention::registry().size());
  // Only what has values of its own, from the layer's input or in a state, may have no matrix.
  for (const std::string& name : study.left_out) {
    CAPTURE(name);
    const attention::Spec& spec = attention::find(name);
    const bool values_of_its_own = spec.reads_x || spec.carries_state;
    CHECK(values_of_its_own);
  }
  CHECK(std::count(study.left_out.begin(), study.left_out.end(), "luna") == 1);
  const std::vector<double> v = text.in.v.to_vector();
  for (std::size_t m = 0; m < all.size(); ++m) {
    CAPTURE(all[m].name);
    const attention::Spec& spec = attention::find(all[m].name);
    attention::OptionValues values;
    if (spec.has_option("features")) values["features"] = "6";
    ParameterStore store;
    const Random random = fork(Random{options.seed, {}}, Purpose::attention);
    attention::LayerContext context{0, 2, 5, 24, "", &store};
    context.width = 10;
    const auto method = spec.make(context, values);
    store.pack(DType::f64, Device::cpu, fork(random, Purpose::initialise).key);
    attention::Call call;
    call.random = random;
    attention::Inputs in = text.in;
    if (spec.shared_qk) in.k = Tensor();
    const std::vector<double> out =
        method->forward(in, method->draw(in, call), call).out.to_vector();
    const std::vector<double> matrix = all[m].matrix.to_vector();
    std::vector<double> want(out.begin(), out.begin() + 24 * 5), got;  // of head 0
    for (std::size_t i = 0; i < 24; ++i) {
      for (std::size_t e = 0; e < 5; ++e) {
        double sum = 0;
        for (std::size_t j = 0; j < 24; ++j) sum += matrix[i * 24 + j] * v[j * 5 + e];
        got.push_back(sum);
      }
    }
    CHECK(relative_error(got, want) < 1e-9);
  }
}

TEST_CASE("the matrix of a model's own method, times the values, is what the model's answer has") {
  constexpr std::int64_t kTokens = 23;
  for (const attention::Spec& spec : attention::registry()) {
    if (spec.carries_state || spec.reads_x) continue;  // may have no matrix
    CAPTURE(spec.name);
    nn::ModelConfig config;
    config.attention = spec.name;
    if (spec.has_option("features")) config.attention_options = {{"features", "8"}};
    config.vocabulary = 29;
    config.nominal_length = 32;
    config.layers = 2;
    config.width = 12;
    config.heads = 3;
    const nn::Model model(config, DType::f32, Device::cpu, 5);
    nn::ModelInput input;
    std::vector<std::int32_t> ids(kTokens);
    std::iota(ids.begin(), ids.end(), 1);
    input.ids[0] = Tensor::from(ids, {1, kTokens}, DType::i32, Device::cpu);
    input.mask[0] = Tensor::full({1, kTokens}, 1, DType::f32, Device::cpu);
    std::vector<LayerInputs> seen;
    nn::StepContext step = nn::answer_context(7);
    keep_in(seen, step);
    Tape tape(Tape::Mode::eval);
    (void)model.encode(tape, input, 0, step);
    REQUIRE(seen.size() == 2);
    for (int layer = 0; layer < 2; ++layer) {
      CAPTURE(layer);
      MatrixText text{"a model",
                      {},
                      seen[layer].in,
                      layer,
                      &model.layer(layer).method(),
                      spec.name,
                      nn::attention_call(step, 0, layer)};
      const MatrixStudy study = run_matrix(text, {.methods = {}, .head = 1});
      const Tensor& matrix = study.matrices.at(0).matrix;                 // [N, N]
      const Tensor out = tensor::matmul(matrix, seen[layer].in.v[0][1]);  // [N, D]
      CHECK(relative_error(out.to_vector(), seen[layer].out[0][1].to_vector()) < 1e-4);
    }
  }
}

TEST_CASE("JSON has the methods' matrices and the exact ones; impossible matrices are refused") {
  const MatrixText text = text_of(4);
  const MatrixStudy study = run_matrix(text, {.methods = {"linformer"}, .features = 2});
  const data::Json results = to_json(study), exact = exact_matrices(study);
  REQUIRE(results.size() == 1);
  REQUIRE(exact.size() == 1);
  CHECK(results[0]["target"] == "softmax");
  CHECK(results[0]["matrix"][3] == study.matrices[0].matrix[3].to_vector());
  CHECK(exact["softmax"][1] == study.matrices[0].exact[1].to_vector());

  CHECK(contains(
      error_of<UsageError>([&] { (void)run_matrix(text, {.methods = {"vmean"}, .head = 2}); }),
      "--head: expected 0..1"));
  CHECK(contains(error_of<UsageError>(
                     [&] { (void)run_matrix(text, {.methods = {"linformer"}, .features = 5}); }),
                 "at most the 4 tokens"));
  CHECK(contains(error_of<UsageError>([&] { (void)run_matrix(text, {.methods = {"luna"}}); }),
                 "luna: what comes out is no matrix"));
  MatrixOptions foreign{.methods = {"vmean"}};
  foreign.method_options["local"]["block"] = "2";
  CHECK(contains(error_of<UsageError>([&] { (void)run_matrix(text, foreign); }),
                 "local.block: local is not among the methods"));
}

TEST_CASE("matrix draws a trained run on an expression, and an encoder on a sentence") {
  if (!program_or_skip()) return;
  const Workshop w;
  REQUIRE(w.finish(w.train("run", 3, {"--attention", "linformer"})).code == 0);
  const std::string out = (w.folder.path() / "matrix").string();
  const std::string expression = "[MAX 4 [MIN 2 7 ] 1 ]";
  const Finished f = w.finish({"matrix", "--run", w.run("run").string(), "--sentence", expression,
                               "--attention", "softmax,skyformer", "--out", out});
  CAPTURE(f.err);
  REQUIRE(f.code == 0);
  CHECK(contains(f.out, "linformer (trained)"));
  const auto json = data::parse_json(read_file(out + "/matrix.json"));
  const std::string text = data::json_text(json);
  CHECK(contains(text, "[\"[MAX\",\"4\",\"[MIN\",\"2\",\"7\",\"]\",\"1\",\"]\"]"));

  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), "matrix");
    more.insert(more.end(), {"--out", out + "2"});
    return w.finish(more);
  };
  const std::string folder = w.run("run").string();
  const struct {
    std::vector<std::string> flags;
    int code;
    const char* part;
  } bad[] = {
      {{"--run", folder, "--sentence", "[MAX four ]"}, 3, "--sentence: unknown token 'four'"},
      {{"--run", folder, "--sentence", expression, "--layer", "9"}, 2, "--layer: expected 0..1"},
      {{"--run", folder, "--sentence", expression, "--head", "9"}, 2, "--head: expected 0..1"},
      {{"--run", folder, "--sentence", expression, "--features", "9"}, 2, "at most the 8 tokens"},
      {{"--sentence", expression}, 2, "give one of --run DIR and --model FOLDER"},
  };
  for (const auto& b : bad) {
    const Finished refused = run(b.flags);
    CAPTURE(refused.err);
    CHECK(refused.code == b.code);
    CHECK(contains(refused.err, b.part));
  }
  if (!unicode_or_skip()) return;  // the half with an encoder
  const std::string encoder = std::filesystem::absolute("tests/goldens/encoders/bert").string();
  const Finished drawn = run({"--model", encoder, "--sentence", "The river follows the valley.",
                              "--n", "6", "--layer", "0", "--attention", "all"});
  CAPTURE(drawn.err);
  CHECK(drawn.code == 0);
  CHECK(contains(drawn.err, "the first 6 of 9 tokens are read"));
  CHECK(contains(drawn.out, "Effective attention matrices of 6 tokens, layer 0"));
}
