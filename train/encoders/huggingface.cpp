#include "train/encoders/huggingface.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "data/files/printable.hpp"
#include "data/tokenisers/files.hpp"
#include "tensor/core/error.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;
using data::Json;

constexpr std::size_t kLargestIndex = 64 << 20;  // bytes

/// Reads keys of a config.json; every refusal names the file.
class Config {
 public:
  Config(const Json& values, std::string file) : values_(values), file_(std::move(file)) {
    if (!values.is_object()) fail("expected a JSON object");
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(fmt::format("{}: {}", file_, what));
  }
  [[noreturn]] void fail(const char* key, const std::string& expected) const {
    const Json& value = find(key);
    const std::string got =
        value.is_null() ? "nothing" : data::printable(data::json_text(value), 200);
    fail(fmt::format("{}: expected {}, got {}", key, expected, got));
  }

  /// `otherwise`: where nothing, or null, stands there.
  [[nodiscard]] std::int64_t natural(const char* key, std::int64_t low, std::int64_t high,
                                     std::int64_t otherwise) const {
    const Json& value = find(key);
    if (value.is_null()) return otherwise;
    const bool natural = value.is_number_unsigned();
    const auto number = natural ? value.get<std::uint64_t>() : 0;
    if (!natural || number < static_cast<std::uint64_t>(low) ||
        number > static_cast<std::uint64_t>(high)) {
      fail(key, fmt::format("a whole number in {}..{}", low, high));
    }
    return static_cast<std::int64_t>(number);
  }
  [[nodiscard]] double real(const char* key, double low, double high, double otherwise) const {
    const Json& value = find(key);
    if (value.is_null()) return otherwise;
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!(number >= low && number <= high)) fail(key, fmt::format("a number in {}..{}", low, high));
    return number;
  }
  [[nodiscard]] bool flag(const char* key, bool otherwise) const {
    const Json& value = find(key);
    if (!value.is_null() && !value.is_boolean()) fail(key, "true or false");
    return value.is_null() ? otherwise : value.get<bool>();
  }
  /// The key must have this value, or be absent.
  void require(const char* key, const Json& wanted) const {
    const Json& value = find(key);
    if (!value.is_null() && value != wanted) fail(key, data::json_text(wanted));
  }
  [[nodiscard]] const Json& find(const char* key) const { return data::member(values_, key); }

 private:
  const Json& values_;
  std::string file_;
};

bool replace_ending(std::string& name, std::string_view ending, std::string_view by) {
  if (!name.ends_with(ending)) return false;
  name.replace(name.size() - ending.size(), ending.size(), by);
  return true;
}

/// The name of a tensor without what depends on how it was saved.
std::string plain_name(std::string name) {
  for (const std::string_view prefix : {"bert.", "roberta."}) {
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
  }
  (void)(replace_ending(name, "LayerNorm.gamma", "LayerNorm.weight") ||
         replace_ending(name, "LayerNorm.beta", "LayerNorm.bias"));
  return name;
}

void append(SafetensorsFile& all, const fs::path& file) {
  const SafetensorsFile read = read_safetensors(file);
  for (const auto& [name, tensor] : read.tensors) {
    all.tensors.emplace_back(plain_name(name), tensor);
  }
  for (const auto& [name, kind] : read.foreign) all.foreign.push_back({plain_name(name), kind});
}

/// The files that an index names, each once.
std::set<std::string> shards_of(const fs::path& index) {
  const Json json = data::read_json_file(index, kLargestIndex);
  const auto refuse = [&](const std::string& part, const Json& got) {
    throw DataError(fmt::format("{}: expected {{\"weight_map\": {{tensor: file}}}}, got {}{}",
                                index.string(), part, data::printable(data::json_text(got), 200)));
  };
  const Json& map = data::member(json, "weight_map");
  if (!map.is_object()) refuse("weight_map: ", map);
  std::set<std::string> files;
  for (const auto& [tensor, file] : map.items()) {
    if (!file.is_string()) refuse(data::printable(tensor) + ": ", file);
    files.insert(file.get<std::string>());
  }
  for (const std::string& file : files) {
    const bool plain = !file.empty() && file != "." && file != ".." &&
                       fs::path(file).filename() == file && data::printable_whole(file) == file;
    if (!plain) {
      throw DataError(fmt::format("{}: '{}': expected the name of a file in the same folder",
                                  index.string(), data::printable(file, 200)));
    }
  }
  return files;
}

}  // namespace

std::string_view to_string(EncoderKind kind) {
  return kind == EncoderKind::bert ? "bert" : "roberta";
}

Json type_of_huggingface(const Json& values) {
  const Json& type = data::member(values, "model_type");
  if (!type.is_null()) return type;
  // BERT's first release does not say it, nor what the model is a part of. Others that have all of
  // these keys name their architecture, or put embeddings of another width in front.
  for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
                          "intermediate_size", "max_position_embeddings", "type_vocab_size"}) {
    if (data::member(values, key).is_null()) return nullptr;
  }
  for (const Json& name : data::member(values, "architectures")) {
    if (!name.is_string() || !name.get<std::string>().starts_with("Bert")) return nullptr;
  }
  return values.contains("embedding_size") ? Json(nullptr) : Json("bert");
}

EncoderFacts facts_of_huggingface(const Json& values, const std::string& file) {
  const Config config(values, file);
  EncoderFacts facts;
  const Json type = type_of_huggingface(values);
  if (type == "roberta" || type == "xlm-roberta") {  // which differ in their tokens alone
    facts.kind = EncoderKind::roberta;
  } else if (type != "bert") {
    config.fail("model_type", "bert, roberta or xlm-roberta");
  }
  // "gelu_python" is the exact GELU, written out.
  if (config.find("hidden_act") != "gelu_python") config.require("hidden_act", "gelu");
  config.require("position_embedding_type", "absolute");
  config.require("is_decoder", false);
  config.require("add_cross_attention", false);
  // Missing keys have the library's defaults, which are BERT's base model.
  const bool roberta = facts.kind == EncoderKind::roberta;
  nn::BertConfig& model = facts.model;
  model.vocabulary = config.natural("vocab_size", 1, data::kMostEntries, roberta ? 50265 : 30522);
  model.positions = config.natural("max_position_embeddings", 4, 1 << 20, 512);
  model.types = config.natural("type_vocab_size", 1, 1024, 2);
  model.layers = static_cast<int>(config.natural("num_hidden_layers", 1, 1000, 12));
  model.width = config.natural("hidden_size", 1, 1 << 16, 768);
  model.ff_width = config.natural("intermediate_size", 1, 1 << 20, 3072);
  model.heads = config.natural("num_attention_heads", 1, model.width, 12);
  if (model.width % model.heads != 0) {
    config.fail("num_attention_heads", fmt::format("a divisor of hidden_size = {}", model.width));
  }
  model.norm_epsilon = config.real("layer_norm_eps", 1e-20, 0.1, 1e-12);
  facts.padding_id = config.natural("pad_token_id", 0, model.vocabulary - 1, roberta ? 1 : 0);
  facts.tied = config.flag("tie_word_embeddings", true);
  if (facts.longest() < 3) {
    config.fail("max_position_embeddings", fmt::format("at least {}", facts.first_position() + 3));
  }
  return facts;
}

SafetensorsFile read_huggingface_weights(const fs::path& folder) {
  const fs::path whole = folder / "model.safetensors";
  const fs::path index = folder / "model.safetensors.index.json";
  SafetensorsFile weights;
  if (fs::exists(whole)) {
    append(weights, whole);
  } else if (fs::exists(index)) {
    for (const std::string& file : shards_of(index)) append(weights, folder / file);
  } else {
    throw DataError(
        fmt::format("{}: neither model.safetensors nor model.safetensors.index.json is there",
                    folder.string()));
  }
  return weights;
}

std::vector<HeadTensor> head_tensors(const nn::BertConfig& model) {
  return {{"masked_head.dense.weight", {model.width, model.width}},
          {"masked_head.dense.bias", {model.width}},
          {"masked_head.norm.weight", {model.width}},
          {"masked_head.norm.bias", {model.width}},
          {"masked_head.bias", {model.vocabulary}}};
}

std::string huggingface_name(EncoderKind kind, const std::string& parameter) {
  const bool bert = kind == EncoderKind::bert;
  constexpr std::string_view kHead = "masked_head.";
  if (parameter.starts_with(kHead)) {
    std::string name = parameter.substr(kHead.size());
    if (name.starts_with("norm.")) name.replace(0, 4, bert ? "LayerNorm" : "layer_norm");
    if (!bert) return "lm_head." + name;
    const bool transforms = name != "bias" && !name.starts_with("decoder.");
    return (transforms ? "cls.predictions.transform." : "cls.predictions.") + name;
  }
  constexpr std::pair<std::string_view, std::string_view> kParts[] = {
      {".mha.W_q", ".attention.self.query"},      {".mha.W_k", ".attention.self.key"},
      {".mha.W_v", ".attention.self.value"},      {".mha.ff", ".attention.output.dense"},
      {".norm1", ".attention.output.LayerNorm"},  {".mlpblock.0", ".intermediate.dense"},
      {".mlpblock.3", ".output.dense"},           {".norm2", ".output.LayerNorm"},
      {"embeddings.norm", "embeddings.LayerNorm"}};
  if (parameter.find(".mha.attn.") != parameter.npos) return {};
  std::string name = parameter.substr(std::string_view("model.").size());
  constexpr std::string_view kLayer = "transformer_";
  if (name.starts_with(kLayer)) name.replace(0, kLayer.size(), "encoder.layer.");
  const std::size_t last = name.rfind('.');
  for (const auto& [ours, theirs] : kParts) {
    const std::string_view front = std::string_view(name).substr(0, last);
    if (!front.ends_with(ours)) continue;
    name.replace(last - ours.size(), ours.size(), theirs);
    break;
  }
  return name;
}

}  // namespace skytape::train
