// The facts of a set without which its numbers mean nothing.
#pragma once

namespace skytape::data {

/// Keys of a provenance that decide which class a number is, and which ids a text becomes.
inline constexpr const char* kMeanings[] = {
    "labels",       "pairs",      "tokens",        "vocabulary", "merges",        "model",
    "added_tokens", "lower_case", "strip_accents", "split_cjk",  "space_in_front"};

}  // namespace skytape::data
