#include "train/encoders/as_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "tensor/kernels/elementwise.hpp"
#include "train/config/keys.hpp"

namespace skytape::train {
namespace {

using data::Json;

constexpr const char* kTokens = "model.embeddings.word_embeddings.weight";
constexpr const char* kPositions = "model.embeddings.position_embeddings.weight";
constexpr const char* kScores = "masked_head.bias";
constexpr const char* kTypes = "model.embeddings.token_type_embeddings.weight";

const Tensor& value_of(const Encoder& encoder, const char* name) {
  const Parameter* const found = encoder.model->parameters().find(name);
  ENSURE(found != nullptr, "encoder: no tensor ", name);
  return found->value;
}

/// Rearranges rows of the V tokens as rows of a run's ids: [V, E] -> [V + 2, E], or one row more.
/// Spare rows of the table, which no token has, are left out.
Tensor token_rows(const Encoder& encoder, const Tensor& table, bool cls) {
  const std::int64_t entries = encoder.vocabulary->size();
  const std::int64_t ids = entries + (cls ? 3 : 2);
  Tensor rows = empty_like(table, {ids, table.size(1)});
  const auto put = [&](std::int64_t at, std::int64_t from, std::int64_t count) {
    Tensor place = rows.slice(at, at + count);
    place.copy_from(table.slice(from, from + count));
  };
  put(0, encoder.facts.padding_id, 1);
  put(1, 0, entries);
  put(entries + 1, encoder.hidden, 1);
  if (cls) put(entries + 2, encoder.first, 1);
  return rows;
}

/// -> [nominal length, E]. `with_type`: the first type's row is added.
Tensor position_rows(const Encoder& encoder, std::int64_t nominal_length, bool with_type) {
  const Tensor& table = value_of(encoder, kPositions);
  const std::int64_t first = encoder.facts.first_position();
  const std::int64_t count = std::min(encoder.facts.longest(), nominal_length);
  const Tensor own = table.slice(first, first + count);
  Tensor rows = zeros_like(table, {nominal_length, table.size(1)});
  Tensor place = rows.slice(0, count);
  place.copy_from(with_type ? tensor::add(own, value_of(encoder, kTypes).slice(0, 1)) : own);
  return rows;
}

/// The scores' bias, [V] -> [V + 2], or one more. Rows that stand for a token a second time are
/// never predicted: a softmax over all would count this token twice.
Tensor score_rows(const Encoder& encoder, const Tensor& bias, bool cls) {
  constexpr double kNever = -1e4;  // whose exponential is 0, and finite, as weights are
  const std::int64_t entries = encoder.vocabulary->size();
  Tensor rows = Tensor::full({entries + (cls ? 3 : 2)}, kNever, bias.dtype(), bias.device());
  Tensor place = rows.slice(1, entries + 1);
  place.copy_from(bias.slice(0, entries));
  return rows;
}

constexpr std::int64_t kTypesOfPairs = 2;  // rows that a run's table has

}  // namespace

Json settings_of(const EncoderFacts& facts) {
  const nn::BertConfig& model = facts.model;
  Json settings = Json::object();
  for (const KeyInfo& key : recipe_keys()) {  // it has none of what we add to an encoder
    if (key.category == Category::encoder) settings[std::string(key.key)]["value"] = key.standard;
  }
  const auto set = [&](const char* key, auto value) {
    settings[key]["value"] = fmt::format("{}", value);
  };
  set("layers", model.layers);
  set("width", model.width);
  set("ff_width", model.ff_width);
  set("heads", model.heads);
  set("norm", "post");
  set("norm_epsilon", model.norm_epsilon);
  set("token_types", model.types >= kTypesOfPairs ? 1 : 0);
  set("max_length", facts.longest());
  return settings;
}

Json tokens_of(const Encoder& encoder) {
  Json tokeniser = Json::object();
  data::put_vocabulary(*encoder.vocabulary, tokeniser);
  Json config = Json::object();
  config["model"] = {{"tokens", encoder.vocabulary->kind()}};
  config["data_provenance"] = std::move(tokeniser);
  return config;
}

std::vector<NamedTensor> tensors_of(const Encoder& encoder, const nn::ModelConfig& model) {
  const bool cls = model.pooling == nn::Pooling::cls;
  const std::int64_t types = value_of(encoder, kTypes).size(0);
  const bool takes_types = model.token_types && types >= kTypesOfPairs;
  std::vector<NamedTensor> tensors;
  for (const Parameter& p : encoder.model->parameters().parameters()) {
    if (p.name == kTokens) {
      tensors.emplace_back(p.name, token_rows(encoder, p.value, cls));
    } else if (p.name == kPositions) {
      tensors.emplace_back(p.name, position_rows(encoder, model.nominal_length, !takes_types));
    } else if (p.name != kTypes) {
      tensors.emplace_back(p.name, p.value);
    } else {
      const std::int64_t used = takes_types ? kTypesOfPairs : 1;
      if (takes_types) tensors.emplace_back(p.name, p.value.slice(0, used));
      if (types > used) {  // for the reader's eyes: the model has no use for them
        tensors.emplace_back("model.embeddings.token_type_embeddings.other_rows",
                             p.value.slice(used, types));
      }
    }
  }
  for (const auto& [name, tensor] : encoder.head) {
    tensors.emplace_back(name, name == kScores ? score_rows(encoder, tensor, cls) : tensor);
  }
  return tensors;
}

}  // namespace skytape::train
