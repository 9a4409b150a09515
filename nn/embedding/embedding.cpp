#include "nn/embedding/embedding.hpp"

#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "nn/embedding/lookup.hpp"
#include "nn/embedding/ngrams.hpp"
#include "nn/embedding/patches.hpp"

namespace skytape::nn {

Embedding::Embedding(ParameterStore& store, const std::string& name, const ModelConfig& config)
    : longest_ngram_(config.ngrams),
      separator_(config.separator),
      patch_side_(config.patch),
      columns_(config.columns) {
  const Initialiser start = normal_init(kEmbeddingDeviation);
  const Initialiser high = normal_init(5 * kEmbeddingDeviation);
  const Shape by_place = {config.nominal_length, config.width};
  tokens = &store.add(name + ".word_embeddings.weight", {config.token_rows(), config.width}, start);
  if (config.positions == Positions::learned) {
    positions = &store.add(name + ".position_embeddings.weight", by_place, start);
  } else if (config.positions == Positions::sinusoidal) {
    positions = &store.add(name + ".position_waves", by_place, sinusoidal_positions(), false);
  }
  if (config.both_ends) {
    from_end = &store.add(name + ".end_position_embeddings.weight", by_place, start);
  }
  if (config.token_types) {
    types = &store.add(name + ".token_type_embeddings.weight", {2, config.width}, start);
  }
  if (config.patch > 0) {
    const std::int64_t pixels = config.patch * config.patch;  // T
    patches = &store.add(name + ".patch.weight", {pixels, config.width}, high);
    constant = &store.add(name + ".patch.bias", {config.width}, high);
    waves_ = &store.add(name + ".patch_waves", {pixels, pixels}, patch_waves(), false);
  }
  if (config.ngrams > 0) {
    ngrams = &store.add(name + ".ngram_embeddings.weight", {config.ngram_rows, config.width},
                        normal_init(config.ngram_deviation));
  }
}

void Embedding::require_places(std::int64_t n) const {
  for (const Parameter* table : {positions, from_end}) {
    if (table == nullptr) continue;
    ENSURE(n <= table->shape[0], "embedding: ", n, " positions, but the table has ",
           table->shape[0]);
  }
}

Var Embedding::dropped(Tape& tape, const Tensor& ids, const Tensor& mask,
                       const Dropout& dropout) const {
  const bool more = types != nullptr || patches != nullptr || ngrams != nullptr ||
                    (positions != nullptr && from_end != nullptr);
  if (more) return skytape::dropout((*this)(tape, ids, mask), dropout);
  require_places(ids.size(1));
  Parameter* const second = positions != nullptr ? positions : from_end;
  return look_up(tape.parameter(*tokens), second == nullptr ? Var() : tape.parameter(*second),
                 {ids, from_end == nullptr ? Tensor() : to_last_token(mask), dropout});
}

Var Embedding::operator()(Tape& tape, const Tensor& ids, const Tensor& mask) const {
  Var x = embedding(tape.parameter(*tokens), ids);  // [B, N, E]
  const std::int64_t n = ids.size(1);
  require_places(n);
  if (positions != nullptr) x = x + narrow(tape.parameter(*positions), 0, 0, n);  // [N, E]
  if (from_end != nullptr) x = x + embedding(tape.parameter(*from_end), to_last_token(mask));
  if (types != nullptr) {
    x = x + embedding(tape.parameter(*types), token_types(ids, separator_));
  }
  if (patches != nullptr) {
    const Tensor intensities = patch_intensities(ids, columns_, patch_side_, tokens->value.dtype());
    const Var map = matmul(tape.parameter(*waves_), tape.parameter(*patches));  // [T, E]
    x = x + matmul(tape.constant(intensities), map) + tape.parameter(*constant);
  }
  if (ngrams != nullptr) {
    const Tensor slots = ngram_slots(ids, longest_ngram_, ngrams->shape[0]);  // [G, B, N]
    x = add_rows_at(x, tape.parameter(*ngrams), slots);
  }
  return x;
}

}  // namespace skytape::nn
