// The normalisers of a tokenizer.json: what becomes of a text before it is cut into tokens.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/files/json_fwd.hpp"

namespace skytape::data {

/// A normaliser's steps in their order, each a function of the whole text.
class Normaliser {
 public:
  /// `spec`: the member "normalizer": null, an object with a "type", or a sequence of such.
  /// DataError naming `source` and the type that is not supported.
  Normaliser(const Json& spec, const std::string& source);

  [[nodiscard]] std::u32string operator()(std::u32string text) const;

 private:
  void add(const Json& spec, const std::string& source);

  std::vector<std::function<std::u32string(const std::u32string&)>> steps_;
};

/// DataError naming `source` if a table of normal forms would lead SentencePiece's library, which
/// does not check, beyond the table's end.
void require_sound_charsmap(const std::string& bytes, const std::string& source);

}  // namespace skytape::data
