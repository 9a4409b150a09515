#include "nn/embedding/embedding.hpp"

#include <algorithm>

#include "autograd/ops.hpp"
#include "nn/embedding/ngrams.hpp"

namespace skytape::nn {
namespace {

constexpr std::int64_t kGreys = 256;  // ids behind them stand for no grey: level 0

Initialiser grey_levels() {
  return [](const Shape& shape, const Random&) {
    Tensor levels = Tensor::zeros(shape, DType::f64, Device::cpu);  // [V, 1]
    for (std::int64_t id = 0; id < std::min(kGreys, shape[0]); ++id) {
      levels.data<double>()[id] = 2.0 * static_cast<double>(id) / (kGreys - 1) - 1;
    }
    return levels;
  };
}

}  // namespace

Embedding::Embedding(ParameterStore& store, const std::string& name, const EmbeddingConfig& config)
    : longest_ngram_(config.ngrams) {
  const Initialiser start = normal_init(kEmbeddingDeviation);
  const Shape by_place = {config.nominal_length, config.width};
  tokens = &store.add(name + ".word_embeddings.weight", {config.vocabulary, config.width}, start);
  if (config.positions == Positions::learned) {
    positions = &store.add(name + ".position_embeddings.weight", by_place, start);
  } else if (config.positions == Positions::sinusoidal) {
    positions = &store.add(name + ".position_waves", by_place, sinusoidal_positions(), false);
  }
  if (config.both_ends) {
    from_end = &store.add(name + ".end_position_embeddings.weight", by_place, start);
  }
  if (config.intensity) {
    const Initialiser high = normal_init(5 * kEmbeddingDeviation);
    slope = &store.add(name + ".intensity.weight", {1, config.width}, high);
    constant = &store.add(name + ".intensity.bias", {config.width}, high);
    levels_ = &store.add(name + ".intensity_levels", {config.vocabulary, 1}, grey_levels(), false);
  }
  if (config.ngrams > 0) {
    ngrams =
        &store.add(name + ".ngram_embeddings.weight", {config.ngram_rows, config.width}, start);
  }
}

Var Embedding::operator()(Tape& tape, const Tensor& ids, const Tensor& mask) const {
  Var vectors = tape.parameter(*tokens);  // [V, E]
  if (slope != nullptr) {
    vectors =
        vectors + tape.parameter(*levels_) * tape.parameter(*slope) + tape.parameter(*constant);
  }
  Var x = embedding(vectors, ids);  // [B, N, E]
  const std::int64_t n = ids.size(1);
  for (const Parameter* table : {positions, from_end}) {
    ENSURE(table == nullptr || n <= table->shape[0], "embedding: ", n,
           " positions, but the table has ", table == nullptr ? 0 : table->shape[0]);
  }
  if (positions != nullptr) x = x + narrow(tape.parameter(*positions), 0, 0, n);  // [N, E]
  if (from_end != nullptr) x = x + embedding(tape.parameter(*from_end), to_last_token(mask));
  if (ngrams != nullptr) {
    const Tensor slots = ngram_slots(ids, longest_ngram_, ngrams->shape[0]);  // [G, B, N]
    x = add_rows_at(x, tape.parameter(*ngrams), slots);
  }
  return x;
}

}  // namespace skytape::nn
