#include "train/run/init.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "attention/registry.hpp"
#include "data/files/digest.hpp"
#include "data/files/printable.hpp"
#include "data/masking.hpp"
#include "tensor/core/error.hpp"
#include "train/config/run_config.hpp"
#include "train/encoders/as_run.hpp"
#include "train/formats/safetensors.hpp"
#include "train/process/progress.hpp"
#include "train/run/checkpoint.hpp"
#include "train/run/run_folder.hpp"

namespace skytape::train {
namespace {

using data::Json;

constexpr const char* kTokens = "model.embeddings.word_embeddings.weight";

/// The encoder's own tensors are the same under every method; a method's are named ".attn.".
bool of_method(const std::string& name) { return name.find(".mha.attn.") != name.npos; }
bool of_encoder(const std::string& name) { return name.starts_with("model."); }
/// The head of masked-token prediction, which a pre-training takes over.
bool of_masked_head(const std::string& name) { return name.starts_with("masked_head."); }
/// The heads of nn::Model, which lists show as a whole.
bool of_head(const std::string& name) {
  return of_masked_head(name) || name.starts_with("seq_classifer.");
}
/// Tables that the settings say alone: nothing in them was learned.
bool computed(const std::string& name) {
  return name == "model.rotary_angles" || name == "model.embeddings.position_waves" ||
         name == "masked_head.grey";
}
/// Positions are told in several ways, and not every method takes each: another way starts fresh.
/// So do the two texts of a pair, which most encoders have not met.
bool of_places(const std::string& name) {
  return name == "model.embeddings.position_embeddings.weight" ||
         name == "model.embeddings.end_position_embeddings.weight" ||
         name == "model.embeddings.token_type_embeddings.weight";
}

/// A projection that models have under every method, and that this one does not read.
bool idle_under(const attention::Spec& method, const std::string& name) {
  const bool of_keys = name.find(".mha.W_k.") != name.npos;
  const bool of_queries = name.find(".mha.W_q.") != name.npos;
  return method.values_only ? of_keys || of_queries : method.shared_qk && of_keys;
}

/// Returns the name that lists show for a tensor: a head of ours as a whole, a layer's part for all
/// layers.
std::string part_of(const std::string& name) {
  if (of_head(name)) return name.substr(0, name.find('.'));
  static constexpr std::string_view kLayer = "transformer_";
  std::string part = name;
  if (const std::size_t at = part.find(kLayer); at != part.npos) {
    const std::size_t begin = at + kLayer.size();
    const std::size_t end = std::min(part.find_first_not_of("0123456789", begin), part.size());
    if (end > begin) part.replace(begin, end - begin, "*");
  }
  for (const std::string_view ending : {".weight", ".bias"}) {
    if (part.ends_with(ending)) return part.substr(0, part.size() - ending.size());
  }
  return part;
}

/// "seq_classifer, model.transformer_*.mha.attn.E", each part once.
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  std::set<std::string> said;
  for (const std::string& name : names) {
    const std::string part = data::printable(part_of(name), 200);
    if (!said.insert(part).second) continue;
    text += (text.empty() ? "" : ", ") + part;
  }
  return text.empty() ? "nothing" : text;
}

/// The config.json that a checkpoint of ours keeps; null in other programs' files.
Json config_in(const SafetensorsFile& weights) {
  const auto found = weights.metadata.find("skytape.config");
  return found == weights.metadata.end() ? Json() : data::try_parse_json(found->second);
}

/// The first word or integer that two vocabularies have at the same row, but not in common.
std::string first_other_entry(const Json& there, const Json& here) {
  for (std::size_t i = 0; i < there.size() && i < here.size(); ++i) {
    if (there[i] != here[i]) {
      return fmt::format("entry {} of its vocabulary is {}, this run's is {}", i + 1,
                         data::printable(data::json_text(there[i]), 200),
                         data::printable(data::json_text(here[i]), 200));
    }
  }
  return {};
}

/// In words, why rows of the two embeddings stand for different tokens; empty if they do not, or if
/// the file does not say.
std::string other_tokens(const Json& there, const Json& here) {
  const auto kind = [](const Json& config) {
    const Json& tokens = data::member(config, "model", "tokens");
    return tokens.is_string() ? tokens.get<std::string>() : "";
  };
  if (kind(there).empty()) return {};  // not ours, or of an older program
  if (kind(there) != kind(here)) {
    return fmt::format("its rows are {}, this run's are {}", data::printable(kind(there)),
                       kind(here));
  }
  const Json& old_words = data::member(there, "data_provenance", "vocabulary");
  const Json& new_words = data::member(here, "data_provenance", "vocabulary");
  if (!old_words.is_array() || !new_words.is_array()) return {};
  const std::string other = first_other_entry(old_words, new_words);
  if (!other.empty()) return other;
  for (const char* key : {"lower_case", "strip_accents", "split_cjk", "merges", "space_in_front"}) {
    if (data::member(there, "data_provenance", key) != data::member(here, "data_provenance", key)) {
      return fmt::format("its texts are cut into tokens by another \"{}\"", key);
    }
  }
  return {};
}

/// On what a checkpoint was trained, how long and how far; null of weights that are not ours.
Json training_facts(const SafetensorsFile& weights, const std::filesystem::path& file) {
  if (config_in(weights).is_null()) return {};
  const CheckpointFacts saved = read_facts(weights, file);
  return {{"task", data::member(saved.config, "data").value("name", "")},
          {"attention", saved.config.value("attention", "")},
          {"steps", saved.state.step},
          {"tokens", saved.state.tokens},
          {"train_seconds", saved.state.train_seconds}};
}

/// Weights to start from, by the names of a model's own, and what is known of them.
struct Source {
  SafetensorsFile weights;
  Json tokens;                      // which ones rows stand for, as in a config.json; null: unknown
  std::string history;              // in words; empty: unknown
  std::vector<std::string> unused;  // tensors that no model of ours has
  const attention::Spec* method;    // that trained them; null: unknown
};

Source open_encoder(const std::filesystem::path& folder, const nn::Model& model,
                    const Json& config) {
  const Parameter& any = model.parameters().parameters().front();
  const Encoder encoder = load_encoder(folder, {.dtype = any.value.dtype()});
  const bool cls = model.config().pooling == nn::Pooling::cls;
  const std::int64_t nominal = model.config().nominal_length;
  const std::int64_t tokens =
      data::member(config, "model").value("max_length", nominal) + (cls ? 1 : 0);
  const std::int64_t longest = encoder.facts.longest();
  if (std::min(tokens, nominal) > longest) {
    throw UsageError(fmt::format(
        "--init {}: it has positions for {} tokens; expected max_length of at most {}{}",
        folder.string(), longest, longest - (cls ? 1 : 0),
        cls ? ", as pooling=cls puts one in front" : ""));
  }
  const nn::BertConfig& facts = encoder.facts.model;
  return {{{}, tensors_of(encoder, model.config()), {}},
          tokens_of(encoder),
          fmt::format("{}, {} layers, width {}", to_string(encoder.facts.kind), facts.layers,
                      facts.width),
          encoder.unused,
          nullptr};
}

bool was_pretrained(const SafetensorsFile& weights) {
  const Json config = config_in(weights);
  return !config.is_null() && is_pretraining(config);
}

/// "trained on text with softmax, 500 steps in 5 min".
std::string training_text(const Json& facts) {
  const auto name = [&](const char* key) {
    return data::printable(facts.at(key).get<std::string>(), 200);
  };
  return fmt::format("trained on {} with {}, {} steps in {}", name("task"), name("attention"),
                     grouped(facts.at("steps").get<std::int64_t>()),
                     duration_text(facts.at("train_seconds").get<double>()));
}

/// The method of a config.json; null if it names none of ours.
const attention::Spec* method_in(const Json& config) {
  const Json& name = data::member(config, "attention");
  const auto& methods = attention::registry();
  const auto found =
      std::find_if(methods.begin(), methods.end(), [&](const auto& m) { return name == m.name; });
  return found == methods.end() ? nullptr : &*found;
}

Source open_source(const std::filesystem::path& file, const nn::Model& model, const Json& config) {
  if (std::filesystem::is_directory(file)) return open_encoder(file, model, config);
  Source source{read_weights(file), {}, {}, {}, nullptr};
  source.tokens = config_in(source.weights);
  source.method = method_in(source.tokens);
  const Json facts = training_facts(source.weights, file);
  if (!facts.is_null()) {
    source.history = (was_pretrained(source.weights) ? "pre-" : "") + training_text(facts);
  }
  return source;
}

/// A checksum over names and bytes.
std::string checksum_of(const std::vector<NamedTensor>& tensors) {
  std::uint64_t sum = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto* const bytes = static_cast<const std::uint8_t*>(tensor.raw());
    sum = data::checksum(data::as_bytes(name), sum);
    sum = data::checksum({bytes, tensor.bytes()}, sum);
  }
  return data::to_hex(sum);
}

}  // namespace

std::filesystem::path checkpoint_in(const std::filesystem::path& run) {
  if (std::filesystem::is_directory(run) && holds_encoder(run)) return run;
  std::filesystem::path file = std::filesystem::is_directory(run) ? last_file(run) : run;
  if (!std::filesystem::exists(file) &&
      std::filesystem::exists(last_file(run / kPretrainingFolder))) {
    file = last_file(run / kPretrainingFolder);
  }
  if (!std::filesystem::exists(file)) {
    throw DataError(
        fmt::format("--init {}: no checkpoint there ({} is missing)", run.string(), file.string()));
  }
  return file;
}

std::int64_t embedding_rows(const std::filesystem::path& file) {
  if (std::filesystem::is_directory(file)) return 0;
  const SafetensorsFile weights =
      read_safetensors(file, [](const std::string& name) { return name == kTokens; });
  const Tensor* const table = weights.find(kTokens);
  return table != nullptr && table->rank() == 2 ? table->size(0) : 0;
}

Json init_settings(const std::filesystem::path& file) {
  if (std::filesystem::is_directory(file)) return settings_of(encoder_facts(file));
  const Json config = config_in(read_safetensors(file, [](const std::string&) { return false; }));
  return config.is_object() ? data::member(config, "settings") : Json();
}

Json init_facts(const std::filesystem::path& file) {
  if (std::filesystem::is_directory(file)) {
    std::vector<NamedTensor> tensors;
    const Encoder encoder = load_encoder(file);
    for (const Parameter& p : encoder.model->parameters().parameters()) {
      tensors.emplace_back(p.name, p.value);
    }
    tensors.insert(tensors.end(), encoder.head.begin(), encoder.head.end());
    return {{"init", checksum_of(tensors)}};
  }
  const SafetensorsFile weights = read_weights(file);
  Json facts = {{"init", checksum_of(weights.tensors)}};
  if (was_pretrained(weights)) facts["pretraining"] = training_facts(weights, file);
  return facts;
}

std::string pretraining_text(const Json& facts) { return "pre-" + training_text(facts); }

std::string load_initial_weights(const std::filesystem::path& file, nn::Model& model,
                                 const Json& config) {
  const Source from = open_source(file, model, config);
  const SafetensorsFile& weights = from.weights;
  const bool predicts = model.config().objective == nn::Objective::predict_masked;
  const auto taken = [&](const std::string& name) {
    return of_encoder(name) || (predicts && of_masked_head(name));
  };
  const attention::Spec& method = attention::find(model.config().attention);
  const std::string other = other_tokens(from.tokens, config);
  std::vector<std::string> fresh, untrained, unused = from.unused;
  std::size_t loaded = 0;
  for (Parameter& p : model.parameters().parameters()) {
    if (computed(p.name)) continue;
    const Tensor* const source = taken(p.name) ? weights.find(p.name) : nullptr;
    const bool optional = !of_encoder(p.name) || of_method(p.name) || !p.trainable ||
                          of_places(p.name) || p.name.starts_with("model.pooling.");
    if (source == nullptr || (source->shape() != p.shape && of_method(p.name))) {
      if (const std::string kind = weights.foreign_kind(p.name); taken(p.name) && !kind.empty()) {
        throw DataError(fmt::format("--init {}: tensor {} is {}, expected numbers like {}",
                                    file.string(), p.name, kind, join(p.value)));
      }
      if (!optional) {
        throw DataError(fmt::format("--init {}: no tensor {}", file.string(), p.name));
      }
      fresh.push_back(p.name);
      continue;
    }
    const bool of_tokens = p.name == kTokens && !other.empty();
    const bool numbers_alike = (source->dtype() == DType::i32) == (p.value.dtype() == DType::i32);
    if (source->shape() != p.shape || !numbers_alike || of_tokens) {
      throw DataError(join("--init ", file.string(), ": tensor ", p.name, " is ", *source,
                           ", this run's is ", p.value, of_tokens ? "; " + other : ""));
    }
    p.value.copy_from(source->to(p.value.dtype()).to(p.value.device()));
    if (idle_under(method, p.name)) {
      unused.push_back(p.name);
    } else if (from.method != nullptr && idle_under(*from.method, p.name)) {
      untrained.push_back(p.name);
    } else {
      ++loaded;
    }
  }
  for (const auto& [name, tensor] : weights.tensors) {
    if (computed(name)) continue;
    if (!taken(name) || model.parameters().find(name) == nullptr) unused.push_back(name);
  }
  for (const auto& [name, kind] : weights.foreign) {
    unused.push_back(fmt::format("{} ({})", name, kind));
  }
  const std::string& history = from.history;
  const std::string idle = untrained.empty() ? ""
                                             : fmt::format(", and {}, which {} did not train",
                                                           listed(untrained), from.method->name);
  return fmt::format("started from {}{}: {} tensors loaded{}; fresh: {}; not used: {}",
                     file.string(), history.empty() ? "" : fmt::format(" ({})", history), loaded,
                     idle, listed(fresh), listed(unused));
}

}  // namespace skytape::train
