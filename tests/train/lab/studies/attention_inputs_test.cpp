#include "train/lab/studies/attention_inputs.hpp"

#include <cmath>
#include <filesystem>
#include <set>
#include <vector>

#include "nn/model.hpp"
#include "tensor/gemm/gemm.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/difference.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/unicode.hpp"
#include "tests/train/lab/studies/study_sources.hpp"
#include "train/encoders/texts.hpp"
#include "train/formats/safetensors.hpp"
#include "train/lab/studies/exact_attention.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::error_of;
using data::synthetic::Folder;
using test::contains;
using test::unicode_or_skip;

namespace {

/// An .npy file of f32 ones of this shape, "(2, 3)".
std::string npy_of_ones(const std::string& shape, std::size_t count) {
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }";
  std::string file = std::string("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size());
  file += '\0';
  file += header;
  const float one = 1;
  for (std::size_t i = 0; i < count; ++i) file.append(reinterpret_cast<const char*>(&one), 4);
  return file;
}

Tensor ones(const Shape& shape) { return Tensor::full(shape, 1, DType::f32, Device::cpu); }

}  // namespace

TEST_CASE("an attention's matrix times the values is its output, padded keys without weight") {
  const auto in = test::normal_source(0.7, 5).example(33, 0)[0].in;
  for (const char* name : {"softmax", "kernelized"}) {
    const Tensor out = exact_output(name, in);
    for (std::int64_t h = 0; h < 2; ++h) {
      INFO(name);
      const Tensor p = attention_matrix(name, in, h);  // [33, 33]
      const Tensor ours = tensor::matmul(p, in.v[0][h]);
      CHECK(test::largest_difference(ours.slice(0, 28), out[0][h].slice(0, 28)) <= 1e-12);
      for (std::int64_t i = 0; i < 33; ++i) {
        CHECK(p.data<double>()[i * 33 + 30] == 0);  // a padded key
        CHECK(p.data<double>()[30 * 33 + i] == 0);  // a padded query
      }
    }
  }
  CHECK_THROWS_AS((void)attention_matrix("shared_qk", in, 0), Error);
  CHECK_THROWS_AS((void)attention_matrix("softmax", in, 2), Error);
}

TEST_CASE("the stacked kernel is one on its diagonal and holds the kernelized matrix") {
  const auto in = test::normal_source(0.7).example(9, 0)[0].in;
  const Tensor c = stacked_kernel(in, 1);  // [18, 18]
  const Tensor p = attention_matrix("kernelized", in, 1);
  for (std::int64_t i = 0; i < 9; ++i) {
    CHECK(c.data<double>()[i * 18 + i] == doctest::Approx(1));
    for (std::int64_t j = 0; j < 9; ++j) {
      CHECK(c.data<double>()[i * 18 + 9 + j] == doctest::Approx(p.data<double>()[i * 9 + j]));
    }
  }
}

TEST_CASE("a fresh model gives the same inputs for the same seed, others for other examples") {
  for (const char* recipe : {"skyformer", "skytape"}) {
    CAPTURE(recipe);
    const InputSource source = fresh_inputs(recipe, 5, 96);
    CHECK(source.layers == 2);
    CHECK(contains(source.name, recipe));
    CHECK(source.usual_lengths == std::vector<std::int64_t>{96});
    const auto layers = source.example(64, 3);
    REQUIRE(layers.size() == 2);
    CHECK(layers[1].in.q.shape() == Shape{1, 2, 64, 32});
    const auto again = fresh_inputs(recipe, 5, 96).example(64, 3);
    CHECK(again[1].in.k.to_vector() == layers[1].in.k.to_vector());
    CHECK(source.example(64, 4)[0].in.q.to_vector() != layers[0].in.q.to_vector());
    CHECK(fresh_inputs(recipe, 6, 96).example(64, 3)[0].in.q.to_vector() !=
          layers[0].in.q.to_vector());
    // The model's output is softmax attention, in f32.
    CHECK(test::largest_difference(exact_output("softmax", layers[1].in), layers[1].out) <= 1e-5);
  }
}

TEST_CASE("in the papers' fresh model a row is its byte and its place: no n-grams, no rotation") {
  // Counts how often two of 24 sequences of random bytes have the same row at the same place.
  const auto equal_rows = [](const char* recipe) {
    const InputSource source = fresh_inputs(recipe, 7, 40);
    std::vector<Tensor> sequences;
    for (std::int64_t i = 0; i < 24; ++i) sequences.push_back(source.example(40, i)[0].in.x[0]);
    std::int64_t equal = 0;
    for (std::int64_t place = 0; place < 40; ++place) {
      std::set<std::vector<double>> rows;
      for (const Tensor& x : sequences) rows.insert(x.slice(place, place + 1).to_vector());
      equal += std::ssize(sequences) - std::ssize(rows);
    }
    return equal;
  };
  CHECK(equal_rows("skyformer") > 20);  // of 255 bytes
  CHECK(equal_rows("skeinformer") > 20);
  CHECK(equal_rows("skytape") < 5);  // where no n-gram ends yet
}

TEST_CASE("queries, keys and values come from safetensors and .npy files of two to four axes") {
  const Folder folder;
  const auto path = folder.path() / "qkv.safetensors";
  Tensor q = ones({3, 2, 6, 4});
  q.slice(1, 2).fill(2);
  write_safetensors(path, {{"q", q}, {"k", ones({3, 2, 6, 4})}, {"v", ones({3, 2, 6, 4})}}, {});
  const InputSource source = file_inputs(path.string());
  CHECK(source.longest == 6);
  CHECK(source.usual_lengths == std::vector<std::int64_t>{6});
  const LayerInputs layer = source.example(5, 4)[0];  // example 4 of 3 is number 1
  CHECK(layer.in.q.shape() == Shape{1, 2, 5, 4});
  CHECK(layer.in.q.to_vector().front() == 2);
  CHECK(layer.out.to_vector().back() == doctest::Approx(1));

  std::string files;
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) {
    files += (files.empty() ? "" : ",") + folder.write(name, npy_of_ones("(6, 4)", 24)).string();
  }
  CHECK(file_inputs(files).example(6, 0)[0].in.k.shape() == Shape{1, 1, 6, 4});
}

TEST_CASE("files without q, with other shapes or values, and other names are refused") {
  const Folder folder;
  const auto refusal = [&](const std::vector<NamedTensor>& tensors) {
    const auto path = folder.path() / "bad.safetensors";
    write_safetensors(path, tensors, {});
    const std::string text = error_of<DataError>([&] { (void)file_inputs(path.string()); });
    CHECK(contains(text, path.string()));
    return text;
  };
  const Tensor x = ones({2, 6, 4});
  CHECK(contains(refusal({{"k", x}, {"v", x}}), "no tensor q; expected q, k and v"));
  CHECK(contains(refusal({{"q", x}, {"k", x}, {"v", ones({2, 6, 5})}}), "expected the shape of q"));
  CHECK(contains(refusal({{"q", ones({6})}, {"k", x}, {"v", x}}), "[N, D]"));
  CHECK(contains(refusal({{"q", ones({0, 4})}, {"k", x}, {"v", x}}), "[N, D]"));
  Tensor bad = x.clone();
  bad.slice(1, 2).fill(std::nan(""));
  CHECK(contains(refusal({{"q", x}, {"k", bad}, {"v", x}}), "not finite"));
  const std::string one = folder.write("q.npy", npy_of_ones("(6, 4)", 24)).string();
  for (const std::string& names : {one, one + "," + one, one + "," + one + "," + one + "," + one,
                                   std::string("q.txt"), std::string()}) {
    CHECK(contains(error_of<UsageError>([&] { (void)file_inputs(names); }), "Q.npy,K.npy,V.npy"));
  }
  CHECK(contains(error_of<DataError>([&] { (void)file_inputs("none.safetensors"); }), "none"));
  const std::string deep =
      folder.write("deep.npy", npy_of_ones("(1, 1, 1, 1, 1, 6, 4)", 24)).string();
  CHECK(contains(error_of<DataError>([&] { (void)file_inputs(deep + "," + deep + "," + deep); }),
                 "deep.npy: its shape has more than 6 axes"));
}

TEST_CASE("an encoder's inputs are those of its texts, in the file's order, short ones left out") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const std::string lines[] = {"short", "the river follows the valley for many miles",
                               "a second text that is longer than eight tokens, too"};
  folder.write("texts.txt", lines[0] + "\n" + lines[1] + "\n" + lines[2] + "\n");
  const std::filesystem::path model = "tests/goldens/encoders/bert",
                              file = folder.path() / "texts.txt";
  const InputSource source = encoder_inputs(model, file);
  CHECK(source.has_x);
  CHECK(source.name == "bert on texts.txt");

  const Encoder encoder = load_encoder(model);
  REQUIRE(source.layers == encoder.facts.model.layers);
  const EncoderText second = read_text(encoder, lines[2], "x", 8);
  std::vector<Tensor> q;  // of each layer
  nn::StepContext step;
  step.observe = [&](int, const attention::Inputs& in, const Tensor&) { q.push_back(in.q); };
  Tape tape(Tape::Mode::eval);
  (void)encoder.model->encode(tape, pad_texts(encoder, {second}, 0, 1, 8), step);
  const std::vector<LayerInputs> layers = source.example(8, 1);
  REQUIRE(layers.size() == q.size());
  for (std::size_t l = 0; l < q.size(); ++l) {
    CHECK(test::largest_difference(layers[l].in.q, q[l]) == 0);
    CHECK(layers[l].in.x.shape() == Shape{1, 8, encoder.facts.model.width});
    const Tensor p = attention_matrix("softmax", layers[l].in, 0);  // [8, 8]
    CHECK(test::largest_difference(tensor::matmul(p, layers[l].in.v[0][0]), layers[l].out[0][0]) <
          1e-5);
  }
  // Two texts are long enough; the third begins again.
  CHECK(source.example(8, 2)[0].example == 0);
  CHECK(source.example(8, 1)[0].example == 1);
  CHECK(repetition(source, 8, 2).empty());
  CHECK(repetition(source, 8, 3) ==
        "the source has fewer than 3 examples of 8 positions: they repeat");
  CHECK(test::largest_difference(source.example(8, 2)[0].in.q, source.example(8, 0)[0].in.q) == 0);
  CHECK(test::largest_difference(source.example(8, 1)[0].in.q, source.example(8, 0)[0].in.q) > 0);
  CHECK(
      contains(error_of<DataError>([&] { (void)source.example(20, 0); }), "no text of 20 tokens"));
  CHECK(contains(error_of<DataError>([&] { (void)encoder_inputs(model, folder.path() / "none"); }),
                 "none"));
  CHECK(contains(error_of<DataError>([&] { (void)encoder_inputs(folder.path(), file); }),
                 "config.json"));
  folder.write("broken.txt", "good text of several words, I say\n\xff\xfe\n");
  const InputSource broken = encoder_inputs(model, folder.path() / "broken.txt");
  CHECK(contains(error_of<DataError>([&] { (void)broken.example(6, 1); }), "broken.txt:2"));
}

TEST_CASE("an untrained encoder has the sizes of the folder and BERT's initial weights") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const std::filesystem::path bert = "tests/goldens/encoders/bert";
  for (const char* file : {"config.json", "vocab.txt", "tokenizer_config.json"}) {
    folder.write(std::string("sizes/") + file, data::synthetic::read_file(bert / file));
  }
  EncoderChoice choice;
  choice.untrained = true;
  choice.seed = 11;
  const Encoder encoder = load_encoder(folder.path() / "sizes", choice);
  double sum = 0, squares = 0;
  std::int64_t count = 0;
  for (const Parameter& p : encoder.model->parameters().parameters()) {
    for (const double w : p.value.to_vector()) {
      if (p.shape.rank() == 1) {
        CHECK(w == (p.name.ends_with("weight") ? 1 : 0));
        continue;
      }
      sum += w;
      squares += w * w;
      ++count;
    }
  }
  const auto n = static_cast<double>(count);
  CHECK(std::abs(sum / n) < 5 * 0.02 / std::sqrt(n));
  CHECK(std::sqrt(squares / n) == doctest::Approx(0.02).epsilon(5 / std::sqrt(2 * n)));

  const auto texts = folder.write("texts.txt", "the river follows the valley for many miles\n");
  const auto q = [&](std::uint64_t seed) {
    return encoder_inputs(folder.path() / "sizes", texts, seed).example(7, 0)[1].in.q.to_vector();
  };
  CHECK(q(11) == q(11));
  CHECK(q(11) != q(12));
  CHECK(encoder_inputs(folder.path() / "sizes", texts, 11).name == "untrained sizes on texts.txt");
}

TEST_CASE("lengths and layers that a source does not have are refused") {
  const InputSource source = test::normal_source();
  CHECK(check_layer(-1, 2, "a source") == 1);
  CHECK(check_layer(0, 2, "a source") == 0);
  CHECK_THROWS_AS((void)check_layer(2, 2, "a source"), UsageError);
  CHECK_THROWS_AS((void)check_layer(-2, 2, "a source"), UsageError);
  // Nor layers of which nothing can be said.
  std::vector<LayerInputs> layers;
  nn::StepContext context;
  keep_in(layers, context);
  const Tensor ones = Tensor::full({1, 1, 2, 2}, 1, DType::f32, Device::cpu);
  const attention::Inputs in{ones, ones, ones, Tensor::full({1, 2}, 1, DType::f32, Device::cpu)};
  context.observe(0, in, ones);
  REQUIRE(layers.size() == 1);
  CHECK(layers[0].in.q.dtype() == DType::f64);
  const Tensor broken = Tensor::full(ones.shape(), std::nan(""), DType::f32, Device::cpu);
  CHECK(contains(error_of<NonFiniteError>([&] { context.observe(1, in, broken); }), "layer 1: "));
  CHECK(layers.size() == 1);
  CHECK_THROWS_AS(check_length(source, 1025), UsageError);
  CHECK_THROWS_AS(check_length(source, 0), UsageError);
}
