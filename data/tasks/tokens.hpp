// Reads --tokens and --learn-tokens, for the tasks that heed them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/prepare.hpp"
#include "data/tokenisers/vocabulary.hpp"

namespace skytape::data {

class CacheSet;

/// UsageError for an unknown kind, or a vocabulary that cannot be learnt or would replace a file.
[[nodiscard]] TokenChoice chosen_tokens(const PrepareOptions& options);

/// The vocabulary in files; null where there are none, or where they are to be learnt.
/// DataError if it is broken, or larger than a set can store.
[[nodiscard]] std::shared_ptr<const Vocabulary> given_vocabulary(const TokenChoice& choice,
                                                                 const PrepareOptions& options);

/// Learns SentencePiece's model from texts. Its file appears with the set.
[[nodiscard]] std::shared_ptr<const Vocabulary> learn_vocabulary(
    const TokenChoice& choice, const PrepareOptions& options, const std::vector<std::string>& texts,
    CacheSet& set);

}  // namespace skytape::data
