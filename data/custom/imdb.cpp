#include "data/custom/imdb.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "data/files/digest.hpp"
#include "data/files/json.hpp"
#include "data/files/printable.hpp"
#include "data/files/source.hpp"
#include "data/prepare.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/suggest.hpp"

namespace skytape::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kArchive = "aclImdb_v1.tar.gz";
constexpr std::size_t kMaxReview = 16 << 20;  // bytes; the longest has 13,704
constexpr std::int64_t kOfficial = 50000;     // reviews of both splits

/// Metadata of the official archive: copies with replaced reviews circulate.
struct KnownSplit {
  std::size_t documents;
  std::uint64_t bytes;
};
constexpr KnownSplit kTrain{25000, 33132823}, kTest{25000, 32350685};

/// The name of the folder above that of the file.
std::string_view split_folder(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == path.npos ? std::string_view() : parent(path.substr(0, slash));
}

bool lies_in_a_class(std::string_view path) {
  const std::string_view folder = parent(path), split = split_folder(path);
  return (folder == "neg" || folder == "pos") && (split == "train" || split == "test");
}

/// The tree itself, or the archive in the given folder.
fs::path find_reviews(const fs::path& from) {
  if (!fs::is_directory(from)) return from;
  for (fs::recursive_directory_iterator at(from); at != fs::recursive_directory_iterator();
       advance(at)) {
    if (at->path().filename() == kArchive) return at->path();
  }
  return from;
}

/// Says what a folder or an archive may hold, for one that holds no review.
struct OtherFiles {
  std::int64_t count = 0;
  std::string first = {};      // its path
  std::string otherwise = {};  // what is to be done with them
};

/// DataError unless both splits have both classes.
void require_all_classes(const Reviews& reviews, const fs::path& from, const OtherFiles& files) {
  std::vector<std::string> missing;
  for (const auto& [split, name] : {std::pair(&reviews.train, "train"), {&reviews.test, "test"}}) {
    for (int label = 0; label < 2; ++label) {
      const bool there = std::any_of(split->begin(), split->end(), [label](const Review& review) {
        return review.name.label == label;
      });
      if (!there) missing.push_back(fmt::format("{}/{}", name, label == 0 ? "neg" : "pos"));
    }
  }
  if (missing.empty()) return;
  const bool none = reviews.train.empty() && reviews.test.empty();
  if (none && files.count > 0 && !files.otherwise.empty()) {
    throw DataError(fmt::format("{}: none of {} in it ({}{}) is a review of IMDb; {}",
                                from.string(),
                                files.count == 1 ? "1 file" : fmt::format("{} files", files.count),
                                files.first, files.count > 1 ? ", …" : "", files.otherwise));
  }
  const std::string what = none ? fmt::format("none of {} files is a review of IMDb", files.count)
                                : "no reviews in " + listed(missing);
  throw DataError(
      fmt::format("{}: {}; expected {{train,test}}/{{neg,pos}}/<id>_<rating>.txt, as in {} from {}",
                  from.string(), what, kArchive, kReviewsSource));
}

void sort_reviews(std::vector<Review>& reviews) {
  const auto key = [](const Review& review) {
    return std::tie(review.name.label, review.name.id, review.name.rating);
  };
  std::sort(reviews.begin(), reviews.end(),
            [&](const Review& a, const Review& b) { return key(a) < key(b); });
  const auto twice =
      std::adjacent_find(reviews.begin(), reviews.end(),
                         [&](const Review& a, const Review& b) { return key(a) == key(b); });
  if (twice == reviews.end()) return;
  // Sorted, as either may have been found first.
  const auto [first, second] = std::minmax(twice->place, std::next(twice)->place);
  throw DataError(
      fmt::format("{} and {}: one review twice, expected a single copy of IMDb", first, second));
}

}  // namespace

bool parse_review_name(std::string_view path, ReviewName& name) {
  const std::string_view file = leaf(path), folder = parent(path);
  const std::size_t underscore = file.find('_');
  if (!lies_in_a_class(path) || !file.ends_with(".txt") || underscore == file.npos) return false;
  name.train = split_folder(path) == "train";
  name.label = folder == "pos";
  name.id = number_in<int>(file.substr(0, underscore)).value_or(-1);
  name.rating =
      number_in<int>(file.substr(underscore + 1, file.size() - underscore - 5)).value_or(-1);
  if (name.id < 0 || name.rating < 0) return false;
  const int low = name.label ? 7 : 1, high = name.label ? 10 : 4;
  if (name.rating < low || name.rating > high) {
    throw DataError(fmt::format("{}: rating {} in folder {}, expected {}..{}", printable(path, 200),
                                name.rating, folder, low, high));
  }
  return true;
}

bool may_hold_reviews(const fs::path& from) {
  if (!fs::is_directory(from)) return is_archive(from);
  for (const fs::path& tree : {from, from / "aclImdb"}) {
    for (const char* folder : {"train/neg", "train/pos", "test/neg", "test/pos"}) {
      if (fs::is_directory(tree / folder)) return true;
    }
  }
  return fs::exists(from / kArchive);
}

Reviews read_reviews(const PrepareOptions& options, const std::string& otherwise) {
  const fs::path from = find_reviews(options.from);
  Reviews reviews;
  ReviewName name;
  OtherFiles all{.otherwise = otherwise};
  std::int64_t others = 0;
  std::string other;  // the first of them
  const auto wanted = [&](const SourceFile& file) {
    if (all.count++ == 0) all.first = printable(file.path);
    if (parse_review_name(file.path, name)) return true;
    if (parent(file.path) == "unsup" && split_folder(file.path) == "train") ++reviews.unlabelled;
    if (lies_in_a_class(file.path) && others++ == 0) other = file.shown;
    return false;
  };
  visit_files(from, wanted, [&](const SourceFile& file, ByteStream& stream) {
    const std::vector<std::uint8_t> bytes = read_all(stream, file.shown, kMaxReview);
    if (bytes.empty()) return options.warn(file.shown + ": empty review, skipped");
    (name.train ? reviews.train : reviews.test)
        .push_back({name, {bytes.begin(), bytes.end()}, file.shown});
    const auto done = static_cast<std::int64_t>(reviews.train.size() + reviews.test.size());
    if (done % 1000 == 0) options.progress("reading reviews", done, kOfficial);
  });
  if (others > 0) {
    options.warn(
        fmt::format("{} files next to the reviews are left out, as they are not called "
                    "<id>_<rating>.txt: {}{}",
                    others, other, others > 1 ? ", …" : ""));
  }
  require_all_classes(reviews, from, all);
  sort_reviews(reviews.train);
  sort_reviews(reviews.test);
  return reviews;
}

Json review_facts(const std::vector<Review>& reviews, bool train, const PrepareOptions& options) {
  Sha256 digest;
  std::uint64_t bytes = 0;
  for (const Review& review : reviews) {
    digest.update(as_bytes(review.text));
    bytes += review.text.size();
  }
  const KnownSplit& known = train ? kTrain : kTest;
  const bool official = reviews.size() == known.documents && bytes == known.bytes;
  if (!official) {
    options.warn(fmt::format("{}: {} documents of {} bytes, the official set has {} of {}",
                             train ? "train" : "test", reviews.size(), bytes, known.documents,
                             known.bytes));
  }
  return {{"documents", reviews.size()},
          {"bytes", bytes},
          {"sha256_sorted_contents", digest.hex()},
          {"official", official}};
}

}  // namespace skytape::data
