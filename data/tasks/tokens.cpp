#include "data/tasks/tokens.hpp"

#include <fmt/format.h>

#include "data/cache/cache.hpp"
#include "data/files/output.hpp"
#include "data/tokenisers/sentencepiece.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {

TokenChoice chosen_tokens(const PrepareOptions& options) {
  const std::string tokens = options.tokens.empty() ? "bytes" : options.tokens;
  TokenChoice choice = parse_token_choice(tokens);
  if (options.learn_tokens.empty()) return choice;
  (void)parse_sentencepiece_training(options.learn_tokens);
  if (choice.kind != SentencePiece::kKind) {
    throw UsageError(fmt::format(
        "--learn-tokens: expected with --tokens sentencepiece:FILE, got --tokens {}", tokens));
  }
  if (std::filesystem::exists(choice.from) && !options.force) {
    throw UsageError(
        fmt::format("--learn-tokens: {} is there already; without this flag it is used, and "
                    "--force replaces it",
                    choice.from.string()));
  }
  return choice;
}

std::shared_ptr<const Vocabulary> given_vocabulary(const TokenChoice& choice,
                                                   const PrepareOptions& options) {
  if (choice.from.empty() || !options.learn_tokens.empty()) return nullptr;
  auto vocabulary = read_vocabulary(choice);
  if (vocabulary->size() > kMostStored) {
    throw DataError(fmt::format("{}: {} tokens, but a set stores at most {}", choice.from.string(),
                                vocabulary->size(), kMostStored));
  }
  return vocabulary;
}

std::shared_ptr<const Vocabulary> learn_vocabulary(const TokenChoice& choice,
                                                   const PrepareOptions& options,
                                                   const std::vector<std::string>& texts,
                                                   CacheSet& set) {
  const std::string model =
      learn_sentencepiece(parse_sentencepiece_training(options.learn_tokens), texts);
  set.companion = std::make_unique<OutputFile>(choice.from);
  set.companion->write(model);
  return std::make_shared<SentencePiece>(model, choice.from.string());
}

}  // namespace skytape::data
