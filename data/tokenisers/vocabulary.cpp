#include "data/tokenisers/vocabulary.hpp"

#include <fmt/format.h>

#include "data/tokenisers/byte_level_bpe.hpp"
#include "data/tokenisers/files.hpp"
#include "data/tokenisers/sentencepiece.hpp"
#include "data/tokenisers/unigram.hpp"
#include "data/tokenisers/units.hpp"
#include "data/tokenisers/wordpiece.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"

namespace skytape::data {
namespace {

struct Kind {
  std::string_view name;
  std::string_view behind_it;  // what follows the colon; empty: there is none
};
constexpr Kind kKinds[] = {{"bytes", ""},
                           {"words", ""},
                           {"integers", ""},
                           {SentencePiece::kKind, "FILE"},
                           {WordPiece::kKind, "FILE"},
                           {ByteLevelBpe::kKind, "FOLDER"},
                           {Unigram::kKind, "FILE"}};

std::string shown(const Kind& kind) {
  return kind.behind_it.empty() ? std::string(kind.name)
                                : fmt::format("{}:{}", kind.name, kind.behind_it);
}

}  // namespace

TokenChoice parse_token_choice(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const std::string from = colon == text.npos ? "" : text.substr(colon + 1);
  std::vector<std::string> known;
  for (const Kind& kind : kKinds) {
    known.push_back(shown(kind));
    if (name != kind.name) continue;
    if (from.empty() == kind.behind_it.empty() && (colon == text.npos || !from.empty())) {
      return {name, from};
    }
    throw UsageError(fmt::format("--tokens: expected {}, got '{}'", known.back(), text));
  }
  throw UsageError(unknown_name("kind of tokens", text, known));
}

std::shared_ptr<const Vocabulary> read_vocabulary(const TokenChoice& choice) {
  if (choice.kind == WordPiece::kKind) return read_wordpiece(choice.from);
  if (choice.kind == ByteLevelBpe::kKind) return read_byte_level_bpe(choice.from);
  if (choice.kind == Unigram::kKind) return unigram_of(TokenizerJson(choice.from));
  ENSURE(choice.kind == SentencePiece::kKind, "vocabulary: ", choice.kind, " has no files");
  return read_sentencepiece(choice.from);
}

std::vector<std::int32_t> encode_pair(const Vocabulary& vocabulary, std::string_view first,
                                      std::string_view second, const std::string& place) {
  std::vector<std::int32_t> tokens = vocabulary.encode(first, place);
  if (second.empty()) return tokens;
  if (vocabulary.end_of_text() >= 0) tokens.push_back(vocabulary.end_of_text());
  const std::vector<std::int32_t> rest = vocabulary.encode(second, place);
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  return tokens;
}

void put_vocabulary(const Vocabulary& vocabulary, Json& provenance) {
  provenance["tokens"] = vocabulary.kind();
  vocabulary.put(provenance);
}

bool has_vocabulary(const Json& provenance) {
  return provenance.is_object() && provenance.contains("vocabulary");
}

std::shared_ptr<const Vocabulary> vocabulary_in(const Json& provenance) {
  try {
    const auto kind = provenance.at("tokens").get<std::string>();
    if (kind == WordPiece::kKind) return wordpiece_in(provenance);
    if (kind == ByteLevelBpe::kKind) return byte_level_bpe_in(provenance);
    if (kind == SentencePiece::kKind) return sentencepiece_in(provenance);
    if (kind == Unigram::kKind) return unigram_in(provenance);
    const auto unit = find_token_unit(kind);
    if (!unit) throw DataError(fmt::format("provenance of the data: unknown tokens '{}'", kind));
    return std::make_shared<UnitVocabulary>(
        *unit, provenance.at("vocabulary").get<std::vector<std::string>>());
  } catch (const JsonError& broken) {
    throw DataError(fmt::format("provenance of the data: no vocabulary: {}", problem_of(broken)));
  }
}

std::string take_vocabulary(Json& provenance) {
  if (!has_vocabulary(provenance)) return {};
  const std::string kind = provenance.value("tokens", "");
  const std::size_t entries = member(provenance, "vocabulary").size();
  const auto counted = [](std::string_view name) { return name == "words" || name == "integers"; };
  for (const char* key : {"vocabulary", "merges", "model", "added_tokens"}) provenance.erase(key);
  return fmt::format("{} as tokens: {} different ones{}\n", kind, entries,
                     counted(kind) ? ", and one that stands for all others" : "");
}

}  // namespace skytape::data
