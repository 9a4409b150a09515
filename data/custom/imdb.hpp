// IMDb's labelled reviews (Maas et al. 2011): aclImdb_v1.tar.gz, or the folder that it unpacks to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/json_fwd.hpp"

namespace skytape::data {

struct PrepareOptions;

inline constexpr const char* kReviewsSource =
    "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz";

/// The split, label and rating that a review's path states:
/// `…/{train,test}/{neg,pos}/<id>_<rating>.txt`.
struct ReviewName {
  bool train = false;
  int label = 0;  // 0 negative (ratings 1..4), 1 positive (7..10)
  int id = 0;
  int rating = 0;
};

/// True if the path is that of a labelled review. DataError if the rating contradicts the folder.
[[nodiscard]] bool parse_review_name(std::string_view path, ReviewName& name);

struct Review {
  ReviewName name;
  std::string text;
  std::string place;  // its path, for messages
};

/// Each split sorted by label, id and rating: folders and archives of any order give the same.
struct Reviews {
  std::vector<Review> train, test;
  std::int64_t unlabelled = 0;  // files of train/unsup, which are not read
};

/// True for an archive, and for a folder with reviews or their archive.
[[nodiscard]] bool may_hold_reviews(const std::filesystem::path& from);

/// Reads `options.from`: the archive, a folder with the archive at any depth, or one with the
/// unpacked files. Empty reviews and files with other names are left out and said. DataError: a
/// class of a split without reviews, two reviews of one name, an archive that is broken.
/// `otherwise`: what is to be done with files that are no reviews at all.
[[nodiscard]] Reviews read_reviews(const PrepareOptions& options,
                                   const std::string& otherwise = {});

/// {"documents", "bytes", "sha256_sorted_contents", "official"} of a split as read_reviews() gives
/// it; says so if it is not the official one.
[[nodiscard]] Json review_facts(const std::vector<Review>& reviews, bool train,
                                const PrepareOptions& options);

}  // namespace skytape::data
