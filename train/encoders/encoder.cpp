#include "train/encoders/encoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "autograd/initial_values.hpp"
#include "data/files/output.hpp"
#include "data/files/printable.hpp"
#include "data/tokenisers/byte_level_bpe.hpp"
#include "data/tokenisers/files.hpp"
#include "data/tokenisers/unigram.hpp"
#include "data/tokenisers/wordpiece.hpp"
#include "tensor/core/error.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "tensor/random/random.hpp"

namespace skytape::train {
namespace {

namespace fs = std::filesystem;
using data::Json;

constexpr std::size_t kLargestConfig = 256 << 20;  // bytes; ours has the vocabulary inside
constexpr const char* kPhase = "imported";         // of our own config.json

/// A configuration of ours is theirs, as far as we read it: one function understands both.
Json config_of(const EncoderFacts& facts) {
  const nn::BertConfig& model = facts.model;
  return {{"model_type", to_string(facts.kind)},        {"vocab_size", model.vocabulary},
          {"max_position_embeddings", model.positions}, {"type_vocab_size", model.types},
          {"num_hidden_layers", model.layers},          {"hidden_size", model.width},
          {"intermediate_size", model.ff_width},        {"num_attention_heads", model.heads},
          {"layer_norm_eps", model.norm_epsilon},       {"pad_token_id", facts.padding_id}};
}

bool is_ours(const Json& config) {
  return config.is_object() && data::member(config, "phase") == Json(kPhase);
}

/// A part of a configuration of ours. DataError naming `file` if it is not there.
const Json& part_of_copy(const Json& config, const char* part, const fs::path& file) {
  const Json& value = data::member(config, part);
  if (value.is_object()) return value;
  const std::string got =
      value.is_null() ? "nothing" : data::printable(data::json_text(value), 200);
  throw DataError(fmt::format("{}: {}: expected a JSON object, got {}", file.string(), part, got));
}

EncoderFacts facts_in(const Json& config, const fs::path& file) {
  return facts_of_huggingface(is_ours(config) ? part_of_copy(config, "encoder", file) : config,
                              file.string());
}

/// Reads the tokeniser in a configuration of ours.
std::shared_ptr<const data::Vocabulary> vocabulary_in(const Json& config, const fs::path& file) {
  const Json& tokeniser = part_of_copy(config, "tokeniser", file);
  try {
    return data::vocabulary_in(tokeniser);
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: tokeniser: {}", file.string(), error.what()));
  }
}

/// Finds tensors by their names in our files or in theirs.
class Tensors {
 public:
  /// `ours`: a copy of ours, whose tensors have our names.
  Tensors(const SafetensorsFile& weights, bool ours, EncoderKind kind, const fs::path& folder)
      : ours_(ours), kind_(kind), folder_(folder) {
    for (const auto& [name, tensor] : weights.tensors) {
      if (!tensors_.emplace(name, &tensor).second) fail(name, "is there twice");
    }
    for (const auto& tensor : weights.foreign) foreign_.emplace(tensor.name, tensor.kind);
  }

  [[nodiscard]] std::string name_of(const std::string& parameter) const {
    return ours_ ? parameter : huggingface_name(kind_, parameter);
  }
  [[nodiscard]] bool contains(const std::string& parameter) const {
    const std::string name = name_of(parameter);
    return tensors_.contains(name) || foreign_.contains(name);
  }
  /// The tensor of a parameter. DataError if it is missing or has another shape.
  [[nodiscard]] const Tensor& get(const std::string& parameter, const Shape& shape) {
    const std::string name = name_of(parameter);
    const auto found = tensors_.find(name);
    if (const auto other = foreign_.find(name); other != foreign_.end()) {
      fail(name, fmt::format("is {}, expected F32, F64, BF16 or F16", other->second));
    }
    if (found == tensors_.end()) {
      throw DataError(fmt::format("{}: no tensor {}", folder_.string(), name));
    }
    const Tensor& tensor = *found->second;
    if (tensor.dtype() == DType::i32) fail(name, "has integers, expected F32, F64, BF16 or F16");
    if (tensor.shape() != shape) {
      throw DataError(
          join(folder_.string(), ": tensor ", name, " is ", tensor, ", config.json says ", shape));
    }
    used_.insert(name);
    return tensor;
  }
  /// Its values in `dtype`. DataError also if one is not finite.
  [[nodiscard]] Tensor values(const std::string& parameter, const Shape& shape, DType dtype) {
    Tensor values = get(parameter, shape).to(dtype);
    if (tensor::all_finite(values)) return values;
    const std::vector<double> all = values.to_vector();
    const auto bad =
        std::find_if_not(all.begin(), all.end(), [](double x) { return std::isfinite(x); });
    fail(name_of(parameter), fmt::format("has a value that is not finite in {} (element {})",
                                         name(dtype), bad - all.begin()));
  }
  /// Returns whether two parameters have the same bits; the first is then used.
  [[nodiscard]] bool same(const std::string& parameter, const std::string& other) {
    const auto a = tensors_.find(name_of(parameter)), b = tensors_.find(name_of(other));
    if (a == tensors_.end() || b == tensors_.end()) return false;
    const Tensor &x = *a->second, &y = *b->second;
    if (x.dtype() != y.dtype() || x.shape() != y.shape()) return false;
    if (x.bytes() > 0 && std::memcmp(x.raw(), y.raw(), x.bytes()) != 0) return false;
    used_.insert(a->first);
    return true;
  }
  [[nodiscard]] std::vector<std::string> unused() const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) {
      if (!used_.contains(name)) names.push_back(data::printable(name, 200));
    }
    for (const auto& [name, kind] : foreign_) {
      names.push_back(fmt::format("{} ({})", data::printable(name, 200), kind));
    }
    return names;
  }

 private:
  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    throw DataError(
        fmt::format("{}: tensor {} {}", folder_.string(), data::printable(name, 200), what));
  }

  bool ours_;
  EncoderKind kind_;
  fs::path folder_;
  std::map<std::string, const Tensor*> tensors_;
  std::map<std::string, std::string> foreign_;  // kinds by name
  std::set<std::string> used_;
};

/// Refuses a file that does not fit before memory is taken for what config.json claims.
void check_sizes(Tensors& tensors, const nn::BertConfig& model) {
  const auto table = [&](const char* name, std::int64_t rows) {
    (void)tensors.get(fmt::format("model.embeddings.{}_embeddings.weight", name),
                      {rows, model.width});
  };
  table("word", model.vocabulary);
  table("position", model.positions);
  table("token_type", model.types);
  for (int l = 0; l < model.layers; ++l) {
    (void)tensors.get(fmt::format("model.transformer_{}.mlpblock.0.weight", l),
                      {model.ff_width, model.width});
  }
}

bool has_head(const Tensors& tensors, const nn::BertConfig& model) {
  const std::vector<HeadTensor> wanted = head_tensors(model);
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](const HeadTensor& tensor) { return tensors.contains(tensor.name); });
}

/// Returns whether the decoder of the head is the embedding. `tied`: config.json says that one that
/// is not stored is.
bool has_tied_head(Tensors& tensors, bool tied) {
  const auto same = [&](const char* decoder, const char* other, bool otherwise) {
    return tensors.contains(decoder) ? tensors.same(decoder, other) : otherwise;
  };
  const bool weight =
      same("masked_head.decoder.weight", "model.embeddings.word_embeddings.weight", tied);
  return same("masked_head.decoder.bias", "masked_head.bias", true) && weight;
}

/// Takes the head that predicts hidden tokens, if the file has all of it and this program's head
/// can be it; says otherwise why it is not used.
void take_head(Tensors& tensors, DType dtype, Encoder& encoder) {
  const nn::BertConfig& model = encoder.facts.model;
  const bool whole = has_head(tensors, model);
  const bool tied = has_tied_head(tensors, encoder.facts.tied);
  if (whole && tied) {
    for (const HeadTensor& tensor : head_tensors(model)) {
      encoder.head.emplace_back(tensor.name, tensors.values(tensor.name, tensor.shape, dtype));
    }
  }
  encoder.unused = tensors.unused();
  if (!whole || tied) return;
  const std::string name = encoder.facts.kind == EncoderKind::bert ? "cls.predictions" : "lm_head";
  std::erase_if(encoder.unused,
                [&](const std::string& unused) { return unused.starts_with(name + "."); });
  encoder.unused.push_back(name + " (its decoder is not the embedding)");
}

/// The weights that an encoder of that kind has before its training.
void start_as_bert(nn::BertEncoder& model, EncoderKind kind, std::uint64_t seed) {
  constexpr double kDeviation = 0.02;
  const Random random = fork(Random{seed, {}}, Purpose::initialise);
  std::uint64_t number = 0;
  for (Parameter& p : model.parameters().parameters()) {
    ++number;
    if (huggingface_name(kind, p.name).empty()) continue;  // a method's own
    const Tensor start = p.shape.rank() > 1
                             ? normal_init(kDeviation)(p.shape, random.fork(number))
                             : constant_init(p.name.ends_with("weight") ? 1 : 0)(p.shape, random);
    p.value.copy_from(start.to(p.value.dtype()).to(p.value.device()));
  }
}

std::int32_t require_entry(const Encoder& encoder, const std::string& entry) {
  for (std::int64_t i = 0; i < encoder.vocabulary->size(); ++i) {
    if (encoder.vocabulary->entry(static_cast<std::int32_t>(i)) == entry) {
      return static_cast<std::int32_t>(i);
    }
  }
  throw DataError(
      fmt::format("{}: the vocabulary has no entry {}", encoder.folder.string(), entry));
}

/// Finds the tokens around every text and the one that stands for hidden tokens.
void find_special(Encoder& encoder) {
  const bool bert = encoder.vocabulary->kind() == data::WordPiece::kKind;
  encoder.first = require_entry(encoder, bert ? "[CLS]" : "<s>");
  encoder.last = require_entry(encoder, bert ? "[SEP]" : "</s>");
  encoder.hidden = require_entry(encoder, bert ? "[MASK]" : "<mask>");
}

std::shared_ptr<const data::Vocabulary> vocabulary_of(const data::TokenizerJson& json) {
  if (json.model_type() == "WordPiece") return data::wordpiece_of(json);
  if (json.model_type() == "BPE") return data::byte_level_bpe_of(json);
  if (json.model_type() == "Unigram") return data::unigram_of(json);
  json.refuse("model.type", "WordPiece, BPE or Unigram", Json(json.model_type()));
}

/// Reads the tokeniser that Transformers saved in the encoder's folder.
void read_tokeniser(Encoder& encoder) {
  const bool bert = encoder.facts.kind == EncoderKind::bert;
  const fs::path& folder = encoder.folder;
  const fs::path json = folder / "tokenizer.json";
  const auto read_lists = [&]() -> std::shared_ptr<const data::Vocabulary> {
    if (bert) return data::read_wordpiece(folder / "vocab.txt");
    return data::read_byte_level_bpe(folder);
  };
  const data::TokeniserConfig config(folder);
  // Padded at the left, texts of BERT's would begin at other positions.
  for (const char* side : {"truncation_side", "padding_side"}) config.require(side, "right");
  if (!fs::exists(json)) {
    encoder.vocabulary = read_lists();
    return find_special(encoder);
  }
  const data::TokenizerJson whole(json);  // today's Transformers save it alone
  const bool alone = !fs::exists(folder / (bert ? "vocab.txt" : "vocab.json"));
  encoder.vocabulary = alone ? vocabulary_of(whole) : read_lists();
  find_special(encoder);
  const auto token = [&](std::int32_t number) {
    return data::SpecialToken{encoder.vocabulary->entry(number), number};
  };
  whole.require_ends(token(encoder.first), token(encoder.last));
}

}  // namespace

bool holds_encoder(const fs::path& folder) {
  const fs::path file = folder / "config.json";
  if (!fs::is_regular_file(file)) return false;
  const Json config = data::read_json_file(file, kLargestConfig);
  return config.is_object() && (is_ours(config) || !type_of_huggingface(config).is_null());
}

EncoderFacts encoder_facts(const fs::path& folder) {
  const fs::path file = folder / "config.json";
  return facts_in(data::read_json_file(file, kLargestConfig), file);
}

Encoder load_encoder(const fs::path& folder, const EncoderChoice& choice) {
  const fs::path file = folder / "config.json";
  const Json json = data::read_json_file(file, kLargestConfig);
  const bool ours = is_ours(json);
  Encoder encoder;
  encoder.facts = facts_in(json, file);
  encoder.folder = folder;
  const EncoderKind kind = encoder.facts.kind;
  if (ours) {
    encoder.vocabulary = vocabulary_in(json, file);
    find_special(encoder);
  } else {
    read_tokeniser(encoder);
  }
  SafetensorsFile weights;
  if (!choice.untrained) {
    weights =
        ours ? read_safetensors(folder / "last.safetensors") : read_huggingface_weights(folder);
  }
  const std::int64_t rows = encoder.facts.model.vocabulary;
  if (encoder.vocabulary->size() > rows) {  // fewer: the embedding has spare rows
    throw DataError(
        fmt::format("{}: vocab_size is {}, but the vocabulary next to it has {} entries",
                    file.string(), rows, encoder.vocabulary->size()));
  }

  nn::BertConfig& config = encoder.facts.model;
  config.attention = choice.attention;
  config.attention_options = choice.attention_options;
  Tensors tensors(weights, ours, kind, folder);
  if (!choice.untrained) check_sizes(tensors, config);
  encoder.model =
      std::make_unique<nn::BertEncoder>(config, choice.dtype, choice.device, choice.seed);
  if (choice.untrained) {
    start_as_bert(*encoder.model, kind, choice.seed);
    return encoder;
  }
  for (Parameter& p : encoder.model->parameters().parameters()) {
    if (huggingface_name(kind, p.name).empty()) {
      encoder.fresh.push_back(p.name);
    } else {
      p.value.copy_from(tensors.values(p.name, p.shape, choice.dtype).to(choice.device));
    }
  }
  take_head(tensors, choice.dtype, encoder);
  return encoder;
}

void save_encoder(const Encoder& encoder, const fs::path& folder) {
  Json tokeniser = Json::object();
  data::put_vocabulary(*encoder.vocabulary, tokeniser);
  const Json config = {{"phase", kPhase},
                       {"from", encoder.folder.filename().string()},
                       {"encoder", config_of(encoder.facts)},
                       {"tokeniser", tokeniser}};
  if (fs::exists(folder)) {
    throw UsageError(fmt::format("--out {}: it is there already", folder.string()));
  }
  std::vector<NamedTensor> tensors;
  for (const Parameter& p : encoder.model->parameters().parameters()) {
    tensors.emplace_back(p.name, p.value);
  }
  tensors.insert(tensors.end(), encoder.head.begin(), encoder.head.end());
  data::make_folder(folder);
  try {
    write_safetensors(folder / "last.safetensors", tensors, {{"format", "skytape"}});
    // Last: a folder without it is no encoder.
    data::write_file(folder / "config.json",
                     data::json_text(config, {.indent = 1, .ascii = true}) + "\n");
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);  // it would refuse the next try
    throw;
  }
}

}  // namespace skytape::train
