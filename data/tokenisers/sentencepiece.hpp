// SentencePiece's tokens, by its library: pieces of a text in which a blank is a character (▁) as
// any other. A build without the library throws DataError that says how to get it.
#pragma once

#include <filesystem>
#include <memory>

#include "data/tokenisers/vocabulary.hpp"

namespace skytape::data {

/// Returns whether this build has the library.
[[nodiscard]] bool has_sentencepiece();

class SentencePiece final : public Vocabulary {
 public:
  static constexpr std::string_view kKind = "sentencepiece";

  /// `model`: the bytes of a model file. DataError naming `source` if they are none.
  SentencePiece(std::string model, const std::string& source);
  ~SentencePiece() override;

  [[nodiscard]] std::string_view kind() const override { return kKind; }
  [[nodiscard]] std::int64_t size() const override;
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text,
                                                 const std::string& place) const override;
  [[nodiscard]] std::string entry(std::int32_t token) const override;
  [[nodiscard]] std::string text_of(std::span<const std::int32_t> tokens) const override;
  [[nodiscard]] std::int32_t end_of_text() const override;
  void put(Json& provenance) const override;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
  std::string model_;
};

/// The kind and size of a model to be learnt: "unigram:8000" or "bpe:8000".
struct SentencePieceTraining {
  std::string kind = "unigram";
  std::int64_t pieces = 8000;
};
/// UsageError for anything else.
[[nodiscard]] SentencePieceTraining parse_sentencepiece_training(const std::string& text);

/// The bytes of a model that is learnt from texts: the same for the same texts. It has at most as
/// many pieces as asked for. DataError where the texts are too few or the number is too small.
[[nodiscard]] std::string learn_sentencepiece(const SentencePieceTraining& training,
                                              const std::vector<std::string>& texts);

[[nodiscard]] std::shared_ptr<const SentencePiece> read_sentencepiece(
    const std::filesystem::path& file);
/// The one that put() wrote. DataError or JsonError if it is broken.
[[nodiscard]] std::shared_ptr<const SentencePiece> sentencepiece_in(const Json& provenance);

}  // namespace skytape::data
