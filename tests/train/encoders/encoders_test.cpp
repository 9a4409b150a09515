// Pre-trained encoders: their outputs are compared with those of Hugging Face's Transformers
// (tests/goldens), the copy that import makes, and folders that are broken.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/unicode.hpp"
#include "tests/train/cli/program.hpp"
#include "train/encoders/encoder.hpp"
#include "train/encoders/texts.hpp"

using namespace skytape;
using namespace skytape::train;
using namespace skytape::test;
using data::Json;
using data::synthetic::error_of;
using data::synthetic::Folder;
using data::synthetic::read_file;

namespace {

namespace fs = std::filesystem;

const fs::path kEncoders = "tests/goldens/encoders";  // from the repository's root

std::vector<EncoderText> texts_of(const Encoder& encoder, const fs::path& file,
                                  std::int64_t longest) {
  std::istringstream lines(read_file(file));
  std::vector<EncoderText> texts;
  for (std::string line; std::getline(lines, line);) {
    texts.push_back(read_text(encoder, line, "texts", longest));
  }
  return texts;
}

/// Largest difference over the largest value, where `mask` has tokens: [B, N] of [B, N, E].
double difference(const Tensor& got, const Tensor& want, const std::vector<double>& mask) {
  REQUIRE(got.shape() == want.shape());
  const std::vector<double> a = got.to_vector(), b = want.to_vector();
  const std::size_t channels = a.size() / mask.size();
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (mask[i / channels] == 0) continue;
    worst = std::max(worst, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return worst / largest;
}

/// A folder of one of the encoders, to be damaged.
fs::path copied(const Folder& folder, const char* name) {
  fs::copy(kEncoders / name, folder.path() / name, fs::copy_options::recursive);
  return folder.path() / name;
}

/// Returns the error of loading when a key of config.json has another value; null: when it is not
/// there.
std::string error_with(const fs::path& encoder, const char* key, const Json& value) {
  const std::string before = read_file(encoder / "config.json");
  Json config = data::parse_json(before);
  config.erase(key);
  if (!value.is_null()) config[key] = value;
  std::ofstream(encoder / "config.json") << data::json_text(config);
  const std::string error = error_of<DataError>([&] { (void)load_encoder(encoder); });
  std::ofstream(encoder / "config.json") << before;
  return error;
}

/// A post-processor of a tokenizer.json that puts two tokens around a text.
Json processor(const char* type, const char* first, std::int32_t first_id, const char* last,
               std::int32_t last_id) {
  if (std::string(type) != "TemplateProcessing") {
    return {{"type", type},
            {"cls", Json::array({first, first_id})},
            {"sep", Json::array({last, last_id})}};
  }
  const auto piece = [](const char* kind, const char* id) {
    return Json{{kind, {{"id", id}, {"type_id", 0}}}};
  };
  const auto token = [](const char* text, std::int32_t id) {
    return Json{{"id", text}, {"ids", Json::array({id})}, {"tokens", Json::array({text})}};
  };
  Json made = {{"type", type}};
  made["single"] = Json::array(
      {piece("SpecialToken", first), piece("Sequence", "A"), piece("SpecialToken", last)});
  made["special_tokens"] = {{first, token(first, first_id)}, {last, token(last, last_id)}};
  return made;
}

}  // namespace

TEST_CASE("encoders give the outputs of Transformers on ragged texts, in f32 and f64") {
  if (!unicode_or_skip()) return;
  const struct {
    const char* name;
    std::int64_t longest;
  } cases[] = {{"bert", 24}, {"roberta", 40}};
  for (const auto& c : cases) {
    CAPTURE(c.name);
    const fs::path folder = kEncoders / c.name;
    const SafetensorsFile want = read_safetensors(folder / "outputs.safetensors");
    const std::vector<double> mask = want.find("attention_mask")->to_vector();
    for (const DType dtype : {DType::f32, DType::f64}) {
      CAPTURE(name(dtype));
      const Encoder encoder = load_encoder(folder, {dtype});
      CHECK(encoder.facts.longest() == c.longest);
      const std::vector<EncoderText> texts = texts_of(encoder, folder / "texts.txt", c.longest);
      CHECK(std::count_if(texts.begin(), texts.end(), [](const auto& t) { return t.cut; }) >= 1);
      const Encodings got = encode_texts(encoder, texts);
      CHECK(got.ids.to_vector() == want.find("input_ids")->to_vector());
      CHECK(got.mask.to_vector() == mask);
      const bool wide = dtype == DType::f64;
      const Tensor& hidden = *want.find(wide ? "f64" : "f32");
      CHECK(difference(got.hidden, hidden, mask) < (wide ? 1e-10 : 1e-5));
      // Behind a text's end, too: the same width, the same padding.
      const std::vector<double> all(mask.size(), 1);
      CHECK(difference(got.hidden, hidden, all) < (wide ? 1e-10 : 1e-5));

      const std::vector<double> rows = got.hidden.to_vector(), pooled = got.pooled.to_vector();
      const std::size_t n = texts.size(), channels = pooled.size() / n, width = mask.size() / n;
      for (std::size_t b = 0; b < n; ++b) {
        for (std::size_t e = 0; e < channels; ++e) {
          double sum = 0;
          for (std::size_t i = 0; i < texts[b].ids.size(); ++i) {
            sum += rows[(b * width + i) * channels + e];
          }
          CHECK(pooled[b * channels + e] ==
                doctest::Approx(sum / static_cast<double>(texts[b].ids.size())).epsilon(1e-4));
        }
      }
    }
  }
}

TEST_CASE("an encoder's output for a text does not depend on the other texts") {
  if (!unicode_or_skip()) return;
  const Encoder encoder = load_encoder(kEncoders / "roberta", {DType::f64});
  const std::vector<EncoderText> texts = texts_of(encoder, kEncoders / "roberta/texts.txt", 40);
  const Encodings together = encode_texts(encoder, texts);
  for (std::size_t b = 0; b < texts.size(); ++b) {
    const Encodings alone = encode_texts(encoder, {texts[b]});
    const auto row = static_cast<std::int64_t>(b);
    CHECK(difference(alone.pooled, together.pooled.slice(row, row + 1), {1}) < 1e-12);
  }
}

TEST_CASE("other attention methods take the place of softmax, and say what starts fresh") {
  if (!unicode_or_skip()) return;
  const std::vector<std::string> own = {"model.transformer_0.mha.attn.E",
                                        "model.transformer_1.mha.attn.E"};
  const Encoder exact = load_encoder(kEncoders / "bert");
  CHECK(exact.fresh.empty());
  CHECK(exact.unused == std::vector<std::string>{"embeddings.position_ids", "pooler.dense.bias",
                                                 "pooler.dense.weight"});
  const Encoder other = load_encoder(
      kEncoders / "bert", {.attention = "linformer", .attention_options = {{"features", "4"}}});
  CHECK_FALSE(other.fresh.empty());
  for (const std::string& name : other.fresh) CHECK(contains(name, ".mha.attn."));
  const std::vector<EncoderText> texts = {read_text(exact, "the river", "x", 24)};
  const Encodings a = encode_texts(exact, texts), b = encode_texts(other, texts);
  CHECK(difference(a.hidden, b.hidden, std::vector<double>(texts[0].ids.size(), 1)) > 1e-3);
  CHECK(contains(
      error_of<UsageError>([] { (void)load_encoder(kEncoders / "bert", {.attention = "sofmax"}); }),
      "did you mean 'softmax'?"));
}

TEST_CASE("the copy of an encoder gives the same bits") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  for (const char* name : {"bert", "roberta"}) {
    const Encoder encoder = load_encoder(kEncoders / name);
    const fs::path copy = folder.path() / "copies" / name;
    save_encoder(encoder, copy);
    const Encoder again = load_encoder(copy);
    CHECK(again.unused.empty());
    const auto texts = texts_of(encoder, kEncoders / name / "texts.txt", 20);
    const auto texts_again = texts_of(again, kEncoders / name / "texts.txt", 20);
    const Encodings want = encode_texts(encoder, texts), got = encode_texts(again, texts_again);
    CHECK(got.ids.to_vector() == want.ids.to_vector());
    CHECK(got.hidden.to_vector() == want.hidden.to_vector());
    CHECK(contains(error_of<UsageError>([&] { save_encoder(encoder, copy); }), "is there already"));
  }
}

TEST_CASE("configurations that are no BERT or RoBERTa encoder are refused by key") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const fs::path bert = copied(folder, "bert");
  CHECK(error_with(bert, "initializer_range", 0.5).empty());
  CHECK(contains(error_with(bert, "model_type", "gpt2"),
                 "model_type: expected bert, roberta or xlm-roberta"));
  CHECK(contains(error_with(bert, "model_type", 7), "model_type: expected bert, roberta"));
  CHECK(contains(error_with(bert, "hidden_act", "gelu_new"), "hidden_act: expected \"gelu\""));
  CHECK(error_with(bert, "hidden_act", std::string(30'000, 'x')).size() < 500);
  CHECK(contains(error_with(bert, "position_embedding_type", "relative_key"), "\"absolute\""));
  CHECK(contains(error_with(bert, "is_decoder", true), "is_decoder: expected false"));
  CHECK(contains(error_with(bert, "num_attention_heads", 5), "a divisor of hidden_size = 24"));
  CHECK(contains(error_with(bert, "num_attention_heads", 0), "a whole number in 1..24, got 0"));
  CHECK(contains(error_with(bert, "hidden_size", -1), "hidden_size: expected a whole number"));
  CHECK(contains(error_with(bert, "hidden_size", 1e30), "hidden_size: expected a whole number"));
  CHECK(contains(error_with(bert, "layer_norm_eps", "small"), "layer_norm_eps: expected a number"));
  CHECK(contains(error_with(bert, "layer_norm_eps", 0), "layer_norm_eps: expected a number"));
  CHECK(contains(error_with(bert, "pad_token_id", 5000), "pad_token_id"));
  // A configuration that fits neither the tensors nor the vocabulary.
  CHECK(contains(error_with(bert, "vocab_size", 50),
                 "vocab_size is 50, but the vocabulary next to it"));
  CHECK(contains(
      error_with(bert, "max_position_embeddings", 512),
      "tensor embeddings.position_embeddings.weight is f32[24, 24]@cpu, config.json says "));
  CHECK(contains(error_with(bert, "intermediate_size", 1 << 20),
                 "encoder.layer.0.intermediate.dense"));
  CHECK(contains(error_with(bert, "num_hidden_layers", 3),
                 "no tensor encoder.layer.2.intermediate.dense.weight"));
}

TEST_CASE("a configuration of BERT's first release does not say what it is, and need not") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const fs::path bert = copied(folder, "bert");
  const Json first = {{"attention_probs_dropout_prob", 0.1},
                      {"hidden_act", "gelu"},
                      {"hidden_dropout_prob", 0.1},
                      {"hidden_size", 24},
                      {"initializer_range", 0.02},
                      {"intermediate_size", 40},
                      {"max_position_embeddings", 24},
                      {"num_attention_heads", 3},
                      {"num_hidden_layers", 2},
                      {"type_vocab_size", 2},
                      {"vocab_size", 74}};
  const auto error_of_config = [&](const Json& config) {
    std::ofstream(bert / "config.json") << data::json_text(config);
    return error_of<DataError>([&] { (void)load_encoder(bert); });
  };
  CHECK(error_of_config(first).empty());
  CHECK(holds_encoder(bert));
  CHECK(load_encoder(bert).facts.kind == EncoderKind::bert);
  CHECK(load_encoder(bert).facts.model.width == 24);
  // Models of other kinds have these keys, too, and one that only some of them has is none of
  // BERT's.
  const auto refused = [&](const char* key, const Json& value) {
    Json config = first;
    config.erase(key);
    if (!value.is_null()) config[key] = value;
    const std::string error = error_of_config(config);
    CAPTURE(error);
    CHECK(contains(error, "model_type: expected bert, roberta or xlm-roberta, got nothing"));
    CHECK_FALSE(holds_encoder(bert));
  };
  refused("embedding_size", 12);
  refused("architectures", Json::array({"ElectraModel"}));
  refused("type_vocab_size", nullptr);
  refused("max_position_embeddings", nullptr);
  Json named = first;
  named["architectures"] = Json::array({"BertForMaskedLM"});
  CHECK(error_of_config(named).empty());
}

TEST_CASE("what a configuration does not say has the library's defaults") {
  const Json least = {{"model_type", "bert"}};
  const EncoderFacts bert = facts_of_huggingface(least, "config.json");
  CHECK(bert.model.vocabulary == 30522);
  CHECK(bert.model.layers == 12);
  CHECK(bert.model.width == 768);
  CHECK(bert.model.ff_width == 3072);
  CHECK(bert.model.positions == 512);
  CHECK(bert.model.types == 2);
  CHECK(bert.model.norm_epsilon == 1e-12);
  CHECK(bert.padding_id == 0);
  const EncoderFacts roberta =
      facts_of_huggingface({{"model_type", "roberta"}, {"pad_token_id", nullptr}}, "config.json");
  CHECK(roberta.model.vocabulary == 50265);
  CHECK(roberta.padding_id == 1);
  CHECK_NOTHROW((void)facts_of_huggingface({{"model_type", "bert"}, {"hidden_act", "gelu_python"}},
                                           "config.json"));
}

TEST_CASE("an embedding may have more rows than the vocabulary has entries") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const fs::path bert = copied(folder, "bert");
  // The last entry, which none of the texts has, is no entry any more.
  std::string vocabulary = read_file(bert / "vocab.txt");
  vocabulary.resize(vocabulary.rfind('\n', vocabulary.size() - 2) + 1);
  std::ofstream(bert / "vocab.txt") << vocabulary;
  const Encoder padded = load_encoder(bert), whole = load_encoder(kEncoders / "bert");
  CHECK(padded.vocabulary->size() + 1 == padded.facts.model.vocabulary);
  const auto texts = texts_of(whole, kEncoders / "bert" / "texts.txt", 20);
  CHECK(encode_texts(padded, texts).hidden.to_vector() ==
        encode_texts(whole, texts).hidden.to_vector());
  const fs::path copy = folder.path() / "copy";
  save_encoder(padded, copy);
  CHECK(load_encoder(copy).vocabulary->size() == padded.vocabulary->size());
}

TEST_CASE("an encoder with a tokenizer.json alone is read") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const fs::path bert = copied(folder, "bert");
  const Encoder whole = load_encoder(bert);
  Json vocabulary = Json::object();
  for (std::int32_t i = 0; i < whole.vocabulary->size(); ++i) {
    const std::string entry = whole.vocabulary->entry(i);
    const Json before = data::member(vocabulary, entry);  // of two alike the last is read
    if (!before.is_null()) vocabulary["[unread " + entry + "]"] = before;
    vocabulary[entry] = i;
  }
  Json tokenizer = {{"normalizer", {{"type", "BertNormalizer"}}},
                    {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                    {"model", {{"type", "WordPiece"}, {"vocab", vocabulary}}}};
  tokenizer["post_processor"] =
      processor("BertProcessing", "[CLS]", whole.first, "[SEP]", whole.last);
  fs::remove(bert / "vocab.txt");
  std::ofstream(bert / "tokenizer.json") << data::json_text(tokenizer);
  const Encoder encoder = load_encoder(bert);
  const fs::path texts = kEncoders / "bert" / "texts.txt";
  for (std::size_t i = 0; i < texts_of(whole, texts, 20).size(); ++i) {
    CHECK(texts_of(encoder, texts, 20)[i].ids == texts_of(whole, texts, 20)[i].ids);
  }
  const Json foreign = {{"model", {{"type", "WordLevel"}, {"vocab", Json::array()}}}};
  std::ofstream(bert / "tokenizer.json") << data::json_text(foreign);
  CHECK(contains(error_of<DataError>([&] { (void)load_encoder(bert); }),
                 "model.type: expected WordPiece, BPE or Unigram"));
}

TEST_CASE("tokenisers with other tokens around a text, or that cut or pad its front, are refused") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const fs::path bert = copied(folder, "bert");
  const Encoder whole = load_encoder(bert);
  Json vocabulary = Json::object();
  std::string lines;
  for (std::int32_t i = 0; i < whole.vocabulary->size(); ++i) {
    std::string entry = whole.vocabulary->entry(i);
    if (vocabulary.contains(entry)) entry += std::to_string(i);
    vocabulary[entry] = i;
    lines += entry + "\n";
  }
  std::ofstream(bert / "vocab.txt") << lines;
  for (const bool alone : {false, true}) {
    CAPTURE(alone);
    if (alone) fs::remove(bert / "vocab.txt");
    const auto error_of_processor = [&](const Json& processor) {
      const Json tokenizer = {{"normalizer", {{"type", "BertNormalizer"}}},
                              {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                              {"post_processor", processor},
                              {"model", {{"type", "WordPiece"}, {"vocab", vocabulary}}}};
      std::ofstream(bert / "tokenizer.json") << data::json_text(tokenizer);
      return error_of<DataError>([&] { (void)load_encoder(bert); });
    };
    const auto refused = [&](const Json& processor) {
      const std::string error = error_of_processor(processor);
      CAPTURE(error);
      CHECK(contains(error, "tokenizer.json: post_processor: expected BertProcessing, "));
      CHECK(contains(error, fmt::format("puts [CLS] ({}) in front of a text and [SEP] ({}) behind",
                                        whole.first, whole.last)));
    };
    for (const char* type : {"BertProcessing", "RobertaProcessing", "TemplateProcessing"}) {
      CAPTURE(type);
      const auto made = [&](std::int32_t first, std::int32_t last) {
        return processor(type, "[CLS]", first, "[SEP]", last);
      };
      CHECK(error_of_processor(made(whole.first, whole.last)) == "");
      refused(made(whole.first + 1, whole.last));
      refused(made(whole.first, whole.first));
    }
    refused(nullptr);
    refused({{"type", "ByteLevel"}});
    const Json good = processor("TemplateProcessing", "[CLS]", whole.first, "[SEP]", whole.last);
    Json other = good;
    other["single"].erase(0);
    refused(other);
    other = good;
    other["single"].push_back(good["single"][2]);
    refused(other);
    for (std::size_t i = 0; i < 3; ++i) {
      other = good;
      other["single"][i].begin().value()["type_id"] = 1;
      refused(other);
    }
    CHECK(error_of_processor(good) == "");
  }
  for (const char* of : {"truncation_side", "padding_side"}) {
    for (const char* side : {"left", "right"}) {
      Json config = data::parse_json(read_file(kEncoders / "bert" / "tokenizer_config.json"));
      config[of] = side;
      std::ofstream(bert / "tokenizer_config.json") << data::json_text(config);
      const std::string error = error_of<DataError>([&] { (void)load_encoder(bert); });
      CAPTURE(error);
      CHECK(contains(error, fmt::format("tokenizer_config.json: {}: expected \"right\"", of)) ==
            (std::string(side) == "left"));
    }
  }
}

TEST_CASE("an XLM-RoBERTa is a RoBERTa with the pieces of Unigram in a tokenizer.json") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const fs::path roberta = copied(folder, "roberta");
  for (const char* file : {"vocab.json", "merges.txt"}) fs::remove(roberta / file);
  Json config = data::parse_json(read_file(roberta / "config.json"));
  config["model_type"] = "xlm-roberta";
  std::ofstream(roberta / "config.json") << data::json_text(config);
  Json tokenizer = data::parse_json(read_file("tests/goldens/tokenisers/unigram/tokenizer.json"));
  tokenizer["pre_tokenizer"] = {{"type", "Metaspace"}};
  tokenizer["post_processor"] = processor("RobertaProcessing", "<s>", 1, "</s>", 2);
  std::ofstream(roberta / "tokenizer.json") << data::json_text(tokenizer);
  const Encoder encoder = load_encoder(roberta);
  CHECK(encoder.facts.kind == EncoderKind::roberta);
  const auto ids = read_text(encoder, "the film", "x", 20).ids;
  REQUIRE(ids.size() == 4);
  CHECK(encoder.vocabulary->entry(ids[0]) == "<s>");
  CHECK(encoder.vocabulary->entry(ids[1]) == "▁the");
  CHECK(encoder.vocabulary->entry(ids[3]) == "</s>");
  save_encoder(encoder, folder.path() / "copy");
  CHECK(read_text(load_encoder(folder.path() / "copy"), "the film", "x", 20).ids == ids);
}

TEST_CASE("folders with missing or broken files are refused with the file") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const auto error = [](const fs::path& encoder) {
    return error_of<DataError>([&] { (void)load_encoder(encoder); });
  };
  const auto without = [&](const char* name, const char* file) {
    fs::remove_all(folder.path() / name);
    const fs::path encoder = copied(folder, name);
    fs::remove(encoder / file);
    return error(encoder);
  };
  CHECK(contains(error(folder.path() / "none"), "config.json"));
  CHECK(contains(without("bert", "config.json"), "config.json"));
  CHECK(contains(without("bert", "vocab.txt"), "vocab.txt"));
  CHECK(contains(without("bert", "model.safetensors"), "neither model.safetensors nor"));
  CHECK(contains(without("roberta", "merges.txt"), "merges.txt"));
  CHECK(contains(without("roberta", "model-00002-of-00002.safetensors"), "model-00002-of-00002"));

  const auto with = [&](const char* name, const std::string& file, const std::string& bytes) {
    const fs::path encoder = folder.path() / name;
    fs::remove_all(encoder);
    (void)copied(folder, name);
    folder.write(std::string(name) + "/" + file, bytes);
    return error(encoder);
  };
  const std::string index = "model.safetensors.index.json";
  CHECK(contains(with("bert", "config.json", "[]"), "expected a JSON object"));
  CHECK(contains(with("bert", "config.json", "{"), "not readable JSON"));
  CHECK(contains(with("bert", "model.safetensors", "x"), "shorter than 8 bytes"));
  CHECK(contains(with("bert", "vocab.txt", "[PAD]\n"), "no entry [UNK]"));
  CHECK(contains(with("bert", "vocab.txt", "\xEF\xBB\xBF[PAD]\n[UNK]\n"),
                 "vocab.txt:1: a byte order mark, expected an entry without one"));
  const std::string empty = R"({"model": {"type": "Unigram", "vocab": []}})";
  fs::remove(folder.path() / "roberta" / "vocab.json");
  folder.write("roberta/tokenizer.json", empty);
  CHECK(contains(error(folder.path() / "roberta"),
                 "tokenizer.json: an empty vocabulary, expected pieces and their scores"));
  CHECK(contains(with("roberta", index, "{}"), "expected {\"weight_map\""));
  CHECK(contains(with("roberta", index, "{\"weight_map\": {\"a\": 1}}"),
                 index + ": expected {\"weight_map\": {tensor: file}}, got a: 1"));
  CHECK(contains(with("roberta", index, "{\"weight_map\": [1]}"),
                 index + ": expected {\"weight_map\": {tensor: file}}, got weight_map: [1]"));
  for (const auto& [file, shown] : {std::pair("../bert/model.safetensors", "../bert/model."),
                                    {"", "''"},
                                    {".", "'.'"},
                                    {"..", "'..'"},
                                    {"a\\u0000b", "'a?b'"},
                                    {"\\u001b[2J", "'?[2J'"}}) {
    const std::string refused =
        with("roberta", index, R"({"weight_map": {"a": ")" + std::string(file) + "\"}}");
    CAPTURE(refused);
    CHECK(contains(refused, shown));
    CHECK(contains(refused, "expected the name of a file in the same folder"));
  }
  CHECK(contains(
      with("roberta", index, "{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\"}}"),
      "no tensor "));
  CHECK(contains(with("bert", "config.json", R"({"phase": "imported"})"),
                 "config.json: encoder: expected a JSON object, got nothing"));
  Json copy = {{"phase", "imported"}, {"encoder", {{"model_type", "bert"}}}};
  CHECK(contains(with("bert", "config.json", data::json_text(copy)),
                 "config.json: tokeniser: expected a JSON object, got nothing"));
  copy["tokeniser"] = Json::array();
  CHECK(contains(with("bert", "config.json", data::json_text(copy)),
                 "config.json: tokeniser: expected a JSON object, got []"));
  copy["tokeniser"] = Json::object();
  CHECK(contains(with("bert", "config.json", data::json_text(copy)),
                 "config.json: tokeniser: provenance of the data: no vocabulary: key 'tokens'"));
}

TEST_CASE("import and encode, as a person types them") {
  if (!program_or_skip() || !unicode_or_skip()) return;
  const Folder folder;
  const std::string copy = (folder.path() / "copy").string();
  const std::string out = (folder.path() / "out.safetensors").string();
  const std::string bert = fs::absolute(kEncoders / "bert").string();
  const Finished imported = run_program(folder.path(), {"import", "--from", bert, "--out", copy});
  CAPTURE(imported.err);
  REQUIRE(imported.code == 0);
  CHECK(contains(imported.err, "bert, 2 layers, width 24, 3 heads"));
  CHECK(contains(imported.err, "not used: embeddings.position_ids, pooler.dense.bias"));
  CHECK(run_program(folder.path(), {"import", "--from", bert, "--out", copy}).code == 2);
  CHECK(fs::exists(fs::path(copy) / "config.json"));

  // On a full disk nothing is left that would refuse the next try.
  const std::string full = (folder.path() / "full").string();
  const Finished failed =
      run_program(folder.path(), {"import", "--from", bert, "--out", full}, {.largest_file = 4096});
  CAPTURE(failed.err);
  CHECK(failed.code == 1);
  CHECK(contains(failed.err, "full/last.safetensors: cannot write to it"));
  CHECK_FALSE(fs::exists(full));
  CHECK(run_program(folder.path(), {"import", "--from", bert, "--out", full}).code == 0);

  const auto encode = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"encode", "--model",  copy, "--out",
                                          out,      "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(folder.path(), arguments);
  };
  const std::string texts = fs::absolute(kEncoders / "bert/texts.txt").string();
  const Finished f = encode({"--text", texts, "--precision", "fp64"});
  CAPTURE(f.err);
  REQUIRE(f.code == 0);
  CHECK(contains(f.err, "1 of 6 texts are longer"));
  CHECK(contains(f.out, "out.safetensors: 6 texts, 24 tokens wide"));
  const SafetensorsFile got = read_safetensors(out);
  const SafetensorsFile want = read_safetensors(kEncoders / "bert/outputs.safetensors");
  const std::vector<double> mask = want.find("attention_mask")->to_vector();
  CHECK(difference(*got.find("last_hidden_state"), *want.find("f64"), mask) < 1e-10);
  CHECK(got.find("input_ids")->to_vector() == want.find("input_ids")->to_vector());
  CHECK(got.find("attention_mask")->to_vector() == mask);
  CHECK(got.find("pooled")->shape() == Shape{6, 24});

  const Finished shorter = encode({"--text", texts, "--max-length", "8"});
  CHECK(shorter.code == 0);
  CHECK(read_safetensors(out).find("input_ids")->shape() == Shape{6, 8});

  const struct {
    std::vector<std::string> flags;
    int code;
    const char* part;
  } bad[] = {
      {{"--text", texts, "--precision", "bf16"}, 2, "unknown precision 'bf16'"},
      {{"--text", texts, "--max-length", "25"}, 2, "--max-length: expected at most 24"},
      {{"--text", texts, "--max-length", "2"}, 2, "--max-length: expected at least 3"},
      {{"--text", folder.write("empty", "").string()}, 3, "empty: no text in it"},
      {{"--text", folder.write("latin", "a\ncaf\xE9\n").string()}, 3, "latin:2: byte 4"},
      {{"--text", folder.write("long", std::string(17 << 20, 'x')).string()}, 3, "long:1"},
      {{"--text", (folder.path() / "none").string()}, 3, "none"},
  };
  for (const auto& b : bad) {
    const Finished refused = encode(b.flags);
    CAPTURE(refused.err);
    CHECK(refused.code == b.code);
    CHECK(contains(refused.err, b.part));
  }
}

TEST_CASE("an encoding that is not finite is an error with the text's number") {
  if (!unicode_or_skip()) return;
  const Encoder encoder = load_encoder(kEncoders / "bert");
  Parameter& table = *encoder.model->parameters().find("model.embeddings.word_embeddings.weight");
  table.value[7].fill(std::nan(""));
  EncoderText sound, broken;
  sound.ids = {encoder.first, 6, encoder.last};
  broken.ids = {encoder.first, 6, 7, encoder.last};
  CHECK_NOTHROW((void)encode_texts(encoder, {sound, sound}));
  CHECK(contains(error_of<NonFiniteError>([&] {
                   (void)encode_texts(encoder, {sound, broken, sound});
                 }),
                 "text 2"));
}

TEST_CASE("a tensor of a foreign type is named where it is not used, and refused where it is") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const fs::path encoder = copied(folder, "bert");
  const std::string before = read_file(encoder / "model.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, before.data(), sizeof(length));
  const Json header = data::parse_json(before.substr(sizeof(length), length));
  const auto write = [&](const Json& changed, const std::string& more) {
    const std::string text = data::json_text(changed);
    const std::uint64_t bytes = text.size();
    std::string file(sizeof(bytes), '\0');
    std::memcpy(file.data(), &bytes, sizeof(bytes));
    std::ofstream(encoder / "model.safetensors", std::ios::binary)
        << file + text + before.substr(sizeof(length) + length) + more;
  };
  const auto end = static_cast<std::uint64_t>(before.size() - sizeof(length) - length);
  Json changed = header;
  changed["extra.mask"] = {{"dtype", "BOOL"},
                           {"shape", Json::array({3})},
                           {"data_offsets", Json::array({end, end + 3})}};
  write(changed, "\1\1\1");
  std::vector<std::string> unused = load_encoder(encoder).unused;
  CHECK(std::count(unused.begin(), unused.end(), "extra.mask (BOOL)") == 1);
  changed["\x1b[2J" + std::string(1000, 'x')] = changed["extra.mask"];  // as a file may say it
  changed.erase("extra.mask");
  write(changed, "\1\1\1");
  unused = load_encoder(encoder).unused;
  CHECK(std::any_of(unused.begin(), unused.end(), [](const std::string& name) {
    return name.starts_with("?[2Jx") && name.ends_with("x (BOOL)") && name.size() < 250;
  }));

  changed = header;
  const auto used =
      std::find_if(header.items().begin(), header.items().end(), [](const auto& member) {
        return member.key().find("encoder.layer.0.output.dense.weight") != std::string::npos;
      });
  const bool has_one = used != header.items().end();
  REQUIRE(has_one);
  for (const char* dtype : {"I32", "U32"}) {
    changed[used.key()]["dtype"] = dtype;
    write(changed, "");
    const std::string error = error_of<DataError>([&] { (void)load_encoder(encoder); });
    CAPTURE(error);
    CHECK(contains(error, "encoder.layer.0.output.dense.weight"));
    CHECK(contains(error, "expected F32, F64, BF16 or F16"));
  }
}

TEST_CASE("weights that are not finite, or become so in the precision asked for, are refused") {
  if (!unicode_or_skip()) return;
  const Folder folder;
  const fs::path encoder = copied(folder, "bert");
  const fs::path file = encoder / "model.safetensors";
  const SafetensorsFile before = read_safetensors(file);
  const auto error_of_value = [&](const std::string& ending, DType dtype, double value,
                                  DType precision) {
    std::vector<NamedTensor> tensors;
    for (const auto& [name, tensor] : before.tensors) {
      tensors.emplace_back(name, tensor.dtype() == DType::i32 ? tensor : tensor.to(dtype));
      if (!name.ends_with(ending)) continue;
      std::vector<double> values = tensor.to_vector();
      values.at(5) = value;
      tensors.back().second = Tensor::from(values, tensor.shape(), dtype, Device::cpu);
    }
    write_safetensors(file, tensors, {});
    return error_of<DataError>([&] { (void)load_encoder(encoder, {precision}); });
  };
  const std::string weight = "encoder.layer.1.attention.self.key.weight";
  const double infinite = std::numeric_limits<double>::infinity();
  for (const double bad : {std::nan(""), infinite, -infinite}) {
    CAPTURE(bad);
    const std::string error = error_of_value(weight, DType::f32, bad, DType::f32);
    CHECK(error == encoder.string() + ": tensor " + weight +
                       " has a value that is not finite in f32 (element 5)");
  }
  CHECK(contains(error_of_value(weight, DType::f64, 1e300, DType::f32), "not finite in f32"));
  CHECK(error_of_value(weight, DType::f64, 1e300, DType::f64).empty());
  CHECK(error_of_value("pooler.dense.bias", DType::f32, infinite, DType::f32).empty());  // unused
}
