// Runs that start from a pre-trained encoder: the same outputs as `skytape encode` before training,
// another method in the place of softmax, what starts fresh, and encoders that do not fit.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "data/files/json.hpp"
#include "data/unicode/unicode.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/difference.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/unicode.hpp"
#include "tests/train/cli/program.hpp"
#include "train/encoders/as_run.hpp"
#include "train/encoders/texts.hpp"
#include "train/run/init.hpp"

using namespace skytape;
using namespace skytape::train;
using namespace skytape::test;
using data::Json;
using data::synthetic::error_of;
using data::synthetic::Folder;
using data::synthetic::read_file;

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

const fs::path kEncoders = "tests/goldens/encoders";  // from the repository's root

/// The model that a run with this encoder has.
nn::ModelConfig model_like(const EncoderFacts& facts) {
  nn::ModelConfig config;
  config.attention = "softmax";
  config.vocabulary = facts.model.vocabulary + 2;
  config.classes = 2;
  config.nominal_length = 64;
  config.layers = facts.model.layers;
  config.width = facts.model.width;
  config.ff_width = facts.model.ff_width;
  config.heads = facts.model.heads;
  config.head_width = facts.model.width / facts.model.heads;
  config.norm = nn::Norm::post;
  config.norm_epsilon = facts.model.norm_epsilon;
  config.pooling = nn::Pooling::mean;
  return config;
}

/// A config.json of a run on that encoder's tokens.
Json config_like(const Encoder& encoder, std::int64_t max_length) {
  Json config = tokens_of(encoder);
  config["model"]["max_length"] = max_length;
  return config;
}

/// The ids of texts as a run has them.
nn::ModelInput input_of(const std::vector<EncoderText>& texts, std::int64_t width) {
  std::vector<std::int32_t> ids;
  std::vector<double> mask;
  for (const EncoderText& text : texts) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i) {
      const bool token = i < text.ids.size();
      ids.push_back(token ? text.ids[i] + 1 : 0);
      mask.push_back(token ? 1 : 0);
    }
  }
  const Shape shape = {std::ssize(texts), width};
  nn::ModelInput input;
  input.ids[0] = Tensor::from(ids, shape, DType::i32, Device::cpu);
  input.mask[0] = Tensor::from(mask, shape, DType::f64, Device::cpu);
  return input;
}

/// A small model of one layer.
nn::ModelConfig small_model() {
  nn::ModelConfig config;
  config.attention = "linformer";
  config.attention_options = {{"features", "3"}};
  config.vocabulary = 11;
  config.classes = 2;
  config.nominal_length = 16;
  config.layers = 1;
  config.width = 8;
  config.ff_width = 12;
  config.heads = 2;
  config.head_width = 4;
  config.pooling = nn::Pooling::mean;
  return config;
}

/// The weights that a model begins with, as another program's file has them.
std::vector<NamedTensor> weights_of(const nn::ModelConfig& config) {
  const nn::Model model(config, DType::f32, Device::cpu, 3);
  std::vector<NamedTensor> weights;
  for (const Parameter& p : model.parameters().parameters()) weights.emplace_back(p.name, p.value);
  return weights;
}

/// A folder of the BERT encoder, with the head that predicts hidden tokens.
fs::path with_head(const Folder& folder) {
  const fs::path copy = folder.path() / "headed";
  fs::copy(kEncoders / "bert", copy, fs::copy_options::recursive);
  std::vector<NamedTensor> tensors = read_huggingface_weights(copy).tensors;
  const auto add = [&](const std::string& name, const Shape& shape) {
    Tensor values = Tensor::empty(shape, DType::f32, Device::cpu);
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      values.data<float>()[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i + 1)));
    }
    tensors.emplace_back("cls.predictions." + name, values);
  };
  const std::int64_t entries = load_encoder(copy).facts.model.vocabulary;
  add("transform.dense.weight", {24, 24});
  add("transform.dense.bias", {24});
  add("transform.LayerNorm.weight", {24});
  add("transform.LayerNorm.bias", {24});
  add("bias", {entries});
  write_safetensors(copy / "model.safetensors", tensors, {});
  return copy;
}

}  // namespace

TEST_CASE("before training a run's model encodes as the encoder that it starts from does") {
  if (!unicode_or_skip()) return;
  const struct {
    const char* name;
    std::int64_t longest;
  } cases[] = {{"bert", 24}, {"roberta", 40}};
  for (const auto& c : cases) {
    CAPTURE(c.name);
    const Encoder encoder = load_encoder(kEncoders / c.name, {DType::f64});
    std::istringstream lines(read_file(kEncoders / c.name / "texts.txt"));
    std::vector<EncoderText> texts;
    for (std::string line; std::getline(lines, line);) {
      texts.push_back(read_text(encoder, line, "texts", c.longest));
    }
    const Encodings want = encode_texts(encoder, texts);

    nn::Model model(model_like(encoder.facts), DType::f64, Device::cpu, 3);
    const std::string said =
        load_initial_weights(kEncoders / c.name, model, config_like(encoder, c.longest));
    CHECK(contains(said, "fresh: seq_classifer; not used: "));
    const std::string width_text = std::to_string(encoder.facts.model.width);
    CHECK(contains(said, std::string(c.name) + ", 2 layers, width " + width_text));
    const std::int64_t width = want.ids.size(1);
    const nn::ModelInput input = input_of(texts, width);
    Tape tape(Tape::Mode::eval);
    const std::vector<double> got = model.encode(tape, input, 0, {}).value().to_vector();
    const std::vector<double> hidden = want.hidden.to_vector(), mask = want.mask.to_vector();
    const std::size_t channels = got.size() / mask.size();
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      worst = std::max(worst, std::abs(got[i] - mask[i / channels] * hidden[i]));
    }
    CHECK(worst < 1e-10);
  }
}

TEST_CASE("the two texts of a pair have the encoder's token types") {
  if (!unicode_or_skip()) return;
  const Encoder encoder = load_encoder(kEncoders / "bert", {DType::f64});
  std::vector<EncoderText> pair = {read_text(encoder, "the river", "text", 24)};
  const auto first = std::ssize(pair[0].ids);  // [CLS] the river [SEP]
  const std::vector<std::int32_t> second = read_text(encoder, "a mill", "text", 24).ids;
  pair[0].ids.insert(pair[0].ids.end(), second.begin() + 1, second.end());
  const auto width = std::ssize(pair[0].ids);
  nn::BertInput theirs = pad_texts(encoder, pair, 0, 1, width);
  for (std::int64_t i = first; i < width; ++i) theirs.types.data<std::int32_t>()[i] = 1;

  nn::ModelConfig config = model_like(encoder.facts);
  config.token_types = true;
  config.separator = encoder.vocabulary->end_of_text() + 1;
  nn::Model model(config, DType::f64, Device::cpu, 3);
  CHECK(contains(load_initial_weights(kEncoders / "bert", model, config_like(encoder, 24)),
                 "fresh: seq_classifer; not used: "));
  Tape tape(Tape::Mode::eval);
  const Tensor want = encoder.model->encode(tape, theirs, {}).value();
  const Tensor got = model.encode(tape, input_of(pair, width), 0, {}).value();
  CHECK(test::largest_difference(got, want) < 1e-10);
  theirs.types = Tensor::zeros(theirs.types.shape(), DType::i32, Device::cpu);
  const Tensor single = encoder.model->encode(tape, theirs, {}).value();
  CHECK(test::largest_difference(got, single) > 1e-3);
}

TEST_CASE("rows of an encoder's tables come to stand where a run's ids and places look for them") {
  if (!unicode_or_skip()) return;
  const Encoder encoder = load_encoder(kEncoders / "roberta", {DType::f64});
  nn::ModelConfig config = model_like(encoder.facts);
  config.pooling = nn::Pooling::cls;
  nn::Model model(config, DType::f64, Device::cpu, 3);
  (void)load_initial_weights(kEncoders / "roberta", model, config_like(encoder, 39));
  const auto row = [](const Tensor& table, std::int64_t i) {
    return table.slice(i, i + 1).to_vector();
  };
  const auto theirs = [&](const char* part) -> const Tensor& {
    return encoder.model->parameters()
        .find(std::string("model.embeddings.") + part + "_embeddings.weight")
        ->value;
  };
  const Tensor& words = model.parameters().find("model.embeddings.word_embeddings.weight")->value;
  const std::int64_t entries = encoder.facts.model.vocabulary;
  REQUIRE(words.size(0) == entries + 3);
  CHECK(row(words, 0) == row(theirs("word"), encoder.facts.padding_id));
  CHECK(row(words, 1) == row(theirs("word"), 0));
  CHECK(row(words, entries) == row(theirs("word"), entries - 1));
  CHECK(row(words, entries + 1) == row(theirs("word"), encoder.hidden));
  CHECK(row(words, entries + 2) == row(theirs("word"), encoder.first));
  CHECK(encoder.vocabulary->entry(encoder.hidden) == "<mask>");
  const Tensor& places =
      model.parameters().find("model.embeddings.position_embeddings.weight")->value;
  const std::vector<double> position = row(theirs("position"), 2),
                            type = row(theirs("token_type"), 0);
  const std::vector<double> first = row(places, 0);
  for (std::size_t i = 0; i < first.size(); ++i) {
    CHECK(first[i] == doctest::Approx(position[i] + type[i]).epsilon(1e-12));
  }
  CHECK(row(places, 40) == std::vector<double>(first.size(), 0));
}

TEST_CASE("the head that predicts hidden tokens comes along where the file has it") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const fs::path headed = with_head(folder);
  const Encoder encoder = load_encoder(headed);
  REQUIRE(encoder.head.size() == 5);
  const fs::path copy = folder.path() / "copy";
  save_encoder(encoder, copy);
  for (const fs::path& from : {headed, copy}) {
    nn::ModelConfig config = model_like(encoder.facts);
    config.objective = nn::Objective::predict_masked;
    nn::Model model(config, DType::f32, Device::cpu, 3);
    CHECK(
        contains(load_initial_weights(from, model, config_like(encoder, 24)), "fresh: nothing; "));
    const std::vector<double> bias = model.parameters().find("masked_head.bias")->value.to_vector();
    CHECK(bias[1] == doctest::Approx(std::sin(0.7)).epsilon(1e-6));
    CHECK(bias[static_cast<std::size_t>(encoder.hidden) + 1] ==
          doctest::Approx(std::sin(0.7 * (encoder.hidden + 1))).epsilon(1e-6));
  }
  // A run of the task has no use for it.
  nn::Model task(model_like(encoder.facts), DType::f32, Device::cpu, 3);
  CHECK(contains(load_initial_weights(copy, task, config_like(encoder, 24)), "masked_head"));
}

TEST_CASE("hidden tokens are predicted among the encoder's, each counted once") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const fs::path headed = with_head(folder);
  const Encoder encoder = load_encoder(headed, {DType::f64});
  const nn::ModelInput input = input_of({read_text(encoder, "the river", "text", 24)}, 4);
  for (const nn::Pooling pooling : {nn::Pooling::mean, nn::Pooling::cls}) {
    nn::ModelConfig config = model_like(encoder.facts);
    config.objective = nn::Objective::predict_masked;
    config.pooling = pooling;
    nn::Model model(config, DType::f64, Device::cpu, 3);
    (void)load_initial_weights(headed, model, config_like(encoder, 23));
    nn::MaskedTargets targets;
    const auto one = [](double value, DType type) {
      return Tensor::full({1, 1}, value, type, Device::cpu);
    };
    targets.at[0] = one(2, DType::i32);
    targets.weight[0] = one(1, DType::f64);
    double sum = 0;  // of the probabilities of all tokens
    for (int token = 0; token < encoder.vocabulary->size(); ++token) {
      targets.ids[0] = one(token + 1, DType::i32);
      Tape tape(Tape::Mode::eval);
      sum += std::exp(-model.masked_loss(tape, input, targets, {}).loss.value().item());
    }
    CHECK(sum == doctest::Approx(1).epsilon(1e-10));
  }
}

TEST_CASE("a head of hidden tokens whose decoder is not the embedding starts fresh") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const fs::path headed = with_head(folder);
  const std::vector<NamedTensor> before = read_huggingface_weights(headed).tensors;
  const auto tensor = [&](const std::string& name) {
    for (const auto& [known, value] : before) {
      if (known == name) return value;
    }
    return Tensor();
  };
  const std::string config_before = read_file(headed / "config.json");
  const auto said_with = [&](std::vector<NamedTensor> more, const Json& tied) {
    more.insert(more.end(), before.begin(), before.end());
    write_safetensors(headed / "model.safetensors", more, {});
    Json changed = data::parse_json(config_before);
    if (!tied.is_null()) changed["tie_word_embeddings"] = tied;
    folder.write("headed/config.json", data::json_text(changed));
    const Encoder encoder = load_encoder(headed);
    nn::ModelConfig config = model_like(encoder.facts);
    config.objective = nn::Objective::predict_masked;
    nn::Model model(config, DType::f32, Device::cpu, 3);
    return load_initial_weights(headed, model, config_like(encoder, 24));
  };
  const Tensor words = tensor("embeddings.word_embeddings.weight");
  const Tensor bias = tensor("cls.predictions.bias");
  const std::string decoder = "cls.predictions.decoder.";
  const char* const loaded = "fresh: nothing; not used: embeddings.position_ids, pooler.dense";
  const char* const fresh =
      "fresh: masked_head; not used: embeddings.position_ids, pooler.dense, "
      "cls.predictions (its decoder is not the embedding)";
  for (const Json& tied : {Json(), Json(true)}) {
    CHECK(contains(said_with({}, tied), loaded));
    CHECK(
        contains(said_with({{decoder + "weight", words}, {decoder + "bias", bias}}, tied), loaded));
    CHECK(contains(said_with({{decoder + "weight", tensor::add(words, words)}}, tied), fresh));
    CHECK(contains(said_with({{decoder + "bias", tensor::add(bias, bias)}}, tied), fresh));
    CHECK(contains(said_with({{decoder + "weight", words.to(DType::f64)}}, tied), fresh));
  }
  CHECK(contains(said_with({}, false), fresh));
  CHECK(contains(said_with({{decoder + "weight", words}}, false), loaded));
  CHECK(contains(said_with({{decoder + "weight", tensor::add(words, words)}}, false), fresh));
  CHECK(contains(error_of<DataError>([&] { (void)said_with({}, "no"); }),
                 "tie_word_embeddings: expected true or false, got \"no\""));
}

TEST_CASE(
    "what only a method, a head or another pooling has starts fresh, and tables are not told") {
  const Folder folder;
  const fs::path file = folder.path() / "w.safetensors";
  const auto said = [&](const nn::ModelConfig& config) {
    nn::Model model(config, DType::f32, Device::cpu, 5);
    return load_initial_weights(file, model, Json::object());
  };
  write_safetensors(file, weights_of(small_model()), {});
  CHECK(embedding_rows(file) == 11);
  nn::ModelConfig other = small_model();
  other.attention_options = {{"features", "5"}};
  other.pooling = nn::Pooling::attention;
  CHECK(contains(said(other), "fresh: model.transformer_*.mha.attn.E, model.pooling"));

  nn::ModelConfig turned = small_model();
  turned.attention = "softmax";
  turned.attention_options = {};
  turned.positions = nn::Positions::rotary;
  write_safetensors(file, weights_of(turned), {});
  other.attention = "softmax";
  other.attention_options = {};
  CHECK(said(other).ends_with("not used: seq_classifer"));
  other.attention = "reformer";
  CHECK(contains(said(other), "not used: model.transformer_*.mha.W_k, seq_classifer"));
  other.attention = "vmean";
  CHECK(said(other).ends_with(
      "not used: model.transformer_*.mha.W_q, model.transformer_*.mha.W_k, seq_classifer"));
  other.attention = "softmax";
  turned.nominal_length = 32;
  CHECK(contains(said(turned), "fresh: seq_classifer; not used: seq_classifer"));

  // Kinds of numbers that are none of ours do not matter where nothing is taken.
  std::vector<NamedTensor> whole = weights_of(turned);
  whole.emplace_back("other", Tensor::full({2}, 1, DType::f32, Device::cpu));
  write_safetensors(file, whole, {});
  std::string bytes = read_file(file);
  for (const char* name : {"seq_classifer.mlpblock.2.bias", "\"other\""}) {
    bytes.replace(bytes.find("\"F32\"", bytes.find(name)), 5, "\"U32\"");
  }
  bytes.replace(bytes.find("skytape.checksum"), 7, "another");
  folder.write("w.safetensors", bytes);
  CHECK(said(turned).ends_with("not used: seq_classifer, other (U32)"));
  whole = weights_of(turned);
  for (auto& [name, tensor] : whole) {
    if (name == "model.norm.weight") tensor = Tensor::zeros({8}, DType::i32, Device::cpu);
  }
  write_safetensors(file, whole, {});
  CHECK(contains(error_of<DataError>([&] { (void)said(turned); }),
                 "tensor model.norm.weight is i32[8]@cpu, this run's is f32[8]@cpu"));
}

TEST_CASE("the checksum of the first weights is of all their names and numbers") {
  const Folder folder;
  const Tensor one = Tensor::full({2}, 1, DType::f32, Device::cpu);
  const Tensor two = Tensor::full({2}, 2, DType::f32, Device::cpu);
  const auto checksum = [&](const std::vector<NamedTensor>& tensors) {
    write_safetensors(folder.path() / "w.safetensors", tensors, {});
    return init_facts(folder.path() / "w.safetensors").at("init").get<std::string>();
  };
  const std::string sum = checksum({{"a", one}, {"b", two}});
  CHECK(checksum({{"a", one}, {"b", two}, {"train.sums", two}}) == sum);
  CHECK(checksum({{"a", one}, {"c", two}}) != sum);
  CHECK(checksum({{"a", two}, {"b", two}}) != sum);
  CHECK(checksum({{"a", one}, {"b", one}}) != sum);

  if (!unicode_or_skip()) return;
  const fs::path headed = with_head(folder);
  const std::string of_encoder = init_facts(headed).at("init").get<std::string>();
  const std::vector<NamedTensor> tensors = read_huggingface_weights(headed).tensors;
  for (const char* name : {"embeddings.LayerNorm.bias", "cls.predictions.bias"}) {
    CAPTURE(name);
    std::vector<NamedTensor> changed = tensors;
    for (auto& [known, tensor] : changed) {
      if (known == name) tensor = tensor::affine(tensor, 2);
    }
    write_safetensors(headed / "model.safetensors", changed, {});
    CHECK(init_facts(headed).at("init") != of_encoder);
  }
}

TEST_CASE("encoders that do not fit a run are refused with what differs") {
  if (!unicode_or_skip()) return;
  const fs::path bert = kEncoders / "bert";
  const Encoder encoder = load_encoder(bert);
  const auto error_with = [&](const auto& change) {
    nn::ModelConfig config = model_like(encoder.facts);
    change(config);
    nn::Model model(config, DType::f32, Device::cpu, 3);
    return error_of<DataError>(
        [&] { (void)load_initial_weights(bert, model, config_like(encoder, 24)); });
  };
  CHECK(contains(error_with([](nn::ModelConfig& c) { c.width = 48; }),
                 "tensor model.embeddings.word_embeddings.weight is f32[76, 24]@cpu, this run's is "
                 "f32[76, 48]@cpu"));
  CHECK(contains(error_with([](nn::ModelConfig& c) { c.vocabulary += 5; }),
                 "this run's is f32[81, 24]"));
  CHECK(contains(error_with([](nn::ModelConfig& c) { c.layers = 3; }),
                 "no tensor model.transformer_2."));
  CHECK(contains(error_with([](nn::ModelConfig& c) { c.norm = nn::Norm::pre; }),
                 "no tensor model.norm.weight"));
  CHECK(contains(error_with([](nn::ModelConfig& c) { c.ff_width = 32; }), "mlpblock"));

  nn::Model model(model_like(encoder.facts), DType::f32, Device::cpu, 3);
  const auto error_on = [&](Json config) {
    return error_of<DataError>([&] { (void)load_initial_weights(bert, model, config); });
  };
  Json other = config_like(encoder, 24);
  Json words = other["data_provenance"]["vocabulary"];
  Json changed = Json::array();
  for (std::size_t i = 0; i < words.size(); ++i) {
    changed.push_back(i == 20 ? Json("elsewhere") : words[i]);
  }
  other["data_provenance"]["vocabulary"] = changed;
  CHECK(contains(error_on(other), "entry 21 of its vocabulary is "));
  CHECK(contains(error_on(other), "this run's is \"elsewhere\""));
  other = config_like(encoder, 24);
  other["data_provenance"]["lower_case"] = false;
  CHECK(contains(error_on(other), "by another \"lower_case\""));
  other["model"]["tokens"] = "bytes";
  CHECK(contains(error_on(other), "its rows are wordpiece, this run's are bytes"));
  CHECK(contains(error_of<UsageError>(
                     [&] { (void)load_initial_weights(bert, model, config_like(encoder, 25)); }),
                 "positions for 24 tokens; expected max_length of at most 24"));
  nn::ModelConfig first = model_like(encoder.facts);
  first.pooling = nn::Pooling::cls;
  nn::Model with_cls(first, DType::f32, Device::cpu, 3);
  CHECK(contains(error_of<UsageError>(
                     [&] { (void)load_initial_weights(bert, with_cls, config_like(encoder, 24)); }),
                 "expected max_length of at most 23, as pooling=cls puts one in front"));
  // A run of fewer positions reads no more of longer texts.
  nn::ModelConfig few = model_like(encoder.facts);
  few.nominal_length = 16;
  nn::Model shorter(few, DType::f32, Device::cpu, 3);
  CHECK(contains(load_initial_weights(bert, shorter, config_like(encoder, 25)), "tensors loaded"));
}

TEST_CASE("an imported encoder is pre-trained further and fine-tuned, with other methods") {
  if (!program_or_skip() || !unicode_or_skip()) return;
  const Folder folder;
  const auto path = [&](const char* name) { return (folder.path() / name).string(); };
  const auto program = [&](Words words) { return run_program(folder.path(), words); };
  const std::string bert = fs::absolute(kEncoders / "bert").string();
  REQUIRE(program({"import", "--from", bert, "--out", path("bert")}).code == 0);
  const std::string tokens = "wordpiece:" + bert + "/vocab.txt";
  std::string texts, rows;
  for (int i = 0; i < 40; ++i) {
    texts += "The river follows the valley " + std::to_string(i) + ".\n";
    rows += i % 2 ? "ham\tthe river the river\n" : "spam\tthe mill the mill\n";
  }
  REQUIRE(program({"data", "--task", "corpus", "--from", folder.write("c.txt", texts).string(),
                   "--tokens", tokens, "--length", "24", "--data", path("data")})
              .code == 0);
  REQUIRE(program({"data", "--task", "tsv", "--from", folder.write("own.tsv", rows).string(),
                   "--tokens", tokens, "--data", path("data")})
              .code == 0);
  const auto start = [&](const char* command, const char* task, const char* run, Words more) {
    Words words = {command,   "--task",    task,  "--data",  path("data"),  "--out",
                   path(run), "--threads", "1",   "--steps", "6",           "--batch",
                   "4",       "--device",  "cpu", "--set",   "eval_every=3"};
    words.insert(words.end(), more.begin(), more.end());
    return program(words);
  };
  const Words linformer = {"--attention", "linformer", "--features", "6"};
  Words init = linformer;
  init.insert(init.end(), {"--init", path("bert")});

  const Finished shown = start("train", "tsv", "shown", [&] {
    Words words = init;
    words.push_back("--print-config");
    return words;
  }());
  CAPTURE(shown.err);
  CHECK(shown.code == 0);
  CHECK(contains(shown.out, "post             --init"));
  CHECK(contains(shown.out, "1e-12            --init"));

  const Finished pretrained = start("pretrain", "corpus", "further", init);
  CAPTURE(pretrained.err);
  REQUIRE(pretrained.code == 0);
  CHECK(contains(pretrained.err, "bert, 2 layers, width 24"));
  CHECK(contains(pretrained.err,
                 "fresh: model.transformer_*.mha.attn.E, masked_head; not used: nothing\n"));
  const Json config = data::parse_json(read_file(folder.path() / "further/config.json"));
  CHECK(config.at("model").at("norm") == "post");
  CHECK(config.at("model").at("layer_norm_epsilon") == 1e-12);

  // Stopped and resumed, it is the same run.
  Words stopped = init;
  stopped.insert(stopped.end(), {"--stop-after", "2"});
  REQUIRE(start("pretrain", "corpus", "parts", stopped).code == 0);
  Words resumed = init;
  resumed.push_back("--resume");
  const Finished rest = start("pretrain", "corpus", "parts", resumed);
  CAPTURE(rest.err);
  CHECK(rest.code == 0);
  CHECK(same_tensors(path("further") + "/last.safetensors", path("parts") + "/last.safetensors"));

  // The encoder itself, Hugging Face's folder, and the run on the corpus: all can be fine-tuned.
  for (const std::string& from : {path("bert"), bert, path("further")}) {
    CAPTURE(from);
    Words words = linformer;
    words.insert(words.end(), {"--init", from, "--force"});
    const Finished tuned = start("train", "tsv", "tuned", words);
    CAPTURE(tuned.err);
    CHECK(tuned.code == 0);
    CHECK(contains(tuned.err, "seq_classifer; not used: "));
    const Finished asked =
        program({"predict", "--run", path("tuned"), "--from",
                 folder.write("x.tsv", "the river\n").string(), "--device", "cpu"});
    CHECK(asked.code == 0);
  }
  for (const char* method : {"skyformer", "nystrom", "softmax"}) {
    CAPTURE(method);
    const Finished tuned = start("train", "tsv", method,
                                 {"--init", path("bert"), "--attention", method, "--set",
                                  "pooling=cls", "--set", "max_length=23"});
    CAPTURE(tuned.err);
    CHECK(tuned.code == 0);
    CHECK(contains(tuned.err, "fresh: seq_classifer; not used: "));
  }
  const Finished longer = start("train", "tsv", "longer", [&] {
    Words words = init;
    words.insert(words.end(), {"--set", "max_length=30"});
    return words;
  }());
  CHECK(longer.code == 2);
  CHECK(contains(longer.err, "positions for 24 tokens"));
  CHECK_FALSE(fs::exists(folder.path() / "longer"));
}
