#include "nn/layers/layers.hpp"

#include <cmath>

namespace skytape::nn {

Linear::Linear(ParameterStore& store, const std::string& name, std::int64_t in, std::int64_t out) {
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  weight = &store.add(name + ".weight", {out, in}, uniform_init(bound));
  bias = &store.add(name + ".bias", {out}, uniform_init(bound));
}

Var Linear::operator()(Var x) const {
  return linear(x, x.tape().parameter(*weight), x.tape().parameter(*bias));
}

Var Linear::without_bias(Var x) const { return linear(x, x.tape().parameter(*weight), Var()); }

Var Linear::of_combined(Var rows, Var sums) const {
  return without_bias(rows) + sums * rows.tape().parameter(*bias);
}

LayerNorm::LayerNorm(ParameterStore& store, const std::string& name, std::int64_t width) {
  weight = &store.add(name + ".weight", {width}, constant_init(1));
  bias = &store.add(name + ".bias", {width}, constant_init(0));
}

Var LayerNorm::operator()(Var x) const {
  return layer_norm(x, x.tape().parameter(*weight), x.tape().parameter(*bias));
}

Embedding::Embedding(ParameterStore& store, const std::string& name, std::int64_t vocabulary,
                     std::int64_t nominal_length, std::int64_t width, Positions kind,
                     bool both_ends) {
  const Initialiser start = normal_init(kEmbeddingDeviation);
  tokens = &store.add(name + ".word_embeddings.weight", {vocabulary, width}, start);
  if (kind == Positions::learned) {
    positions = &store.add(name + ".position_embeddings.weight", {nominal_length, width}, start);
  } else if (kind == Positions::sinusoidal) {
    positions = &store.add(name + ".position_waves", {nominal_length, width},
                           sinusoidal_positions(), false);
  }
  if (both_ends) {
    from_end = &store.add(name + ".end_position_embeddings.weight", {nominal_length, width}, start);
  }
}

Var Embedding::operator()(Tape& tape, const Tensor& ids, const Tensor& mask) const {
  Var x = embedding(tape.parameter(*tokens), ids);  // [B, N, E]
  const std::int64_t n = ids.size(1);
  for (const Parameter* table : {positions, from_end}) {
    ENSURE(table == nullptr || n <= table->shape[0], "embedding: ", n,
           " positions, but the table has ", table == nullptr ? 0 : table->shape[0]);
  }
  if (positions != nullptr) x = x + narrow(tape.parameter(*positions), 0, 0, n);  // [N, E]
  if (from_end != nullptr) x = x + embedding(tape.parameter(*from_end), to_last_token(mask));
  return x;
}

}  // namespace skytape::nn
