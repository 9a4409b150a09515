#include "data/tasks/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <tuple>

#include "data/cache/cache.hpp"
#include "data/files/json.hpp"
#include "data/random.hpp"
#include "data/tasks/build.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

constexpr size_t kMaxDocument = 16 << 20;  // bytes; the longest review has 13,704

struct Review {
  ReviewName name;
  std::vector<uint8_t> bytes;
};

/// Facts of the official archive: copies with replaced reviews circulate.
struct KnownSplit {
  size_t documents;
  uint64_t bytes;
};
constexpr KnownSplit kTrain{25000, 33132823}, kTest{25000, 32350685};

/// A whole non-negative decimal number, or -1.
int parse_number(std::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 ? value : -1;
}

/// The tree itself, or the archive that lies in the given folder.
std::filesystem::path find_reviews(const std::filesystem::path& from) {
  if (!std::filesystem::is_directory(from)) return from;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(from)) {
    if (entry.path().filename() == "aclImdb_v1.tar.gz") return entry.path();
  }
  return from;
}

/// Writes one split in a seeded order; returns its facts for the provenance.
Json write_reviews(std::vector<Review>& reviews, const KnownSplit& known, bool train,
                   const PrepareOptions& options, CacheWriter& out) {
  // Sorted first, so that folders and archives of any order give the same set.
  std::sort(reviews.begin(), reviews.end(), [](const Review& a, const Review& b) {
    return std::tie(a.name.label, a.name.id, a.name.rating) <
           std::tie(b.name.label, b.name.id, b.name.rating);
  });
  Sha256 digest;
  uint64_t bytes = 0;
  for (const Review& review : reviews) {
    digest.update(review.bytes);
    bytes += review.bytes.size();
  }
  const bool official = reviews.size() == known.documents && bytes == known.bytes;
  if (!official) {
    warn(options, fmt::format("{}: {} documents of {} bytes, the official set has {} of {}",
                              train ? "train" : "test", reviews.size(), bytes, known.documents,
                              known.bytes));
  }
  const Permutation order(reviews.size(), options.data_seed, train ? 0 : 1);
  for (size_t i = 0; i < reviews.size(); ++i) {
    const Review& review = reviews[order(i)];
    out.add(review.name.label, review.bytes);
  }
  return {{"documents", reviews.size()},
          {"bytes", bytes},
          {"sha256_sorted_contents", digest.hex()},
          {"official", official}};
}

}  // namespace

bool parse_review_name(std::string_view path, ReviewName& name) {
  const std::string_view file = leaf(path), folder = parent(path);
  const std::string_view split = parent(path.substr(0, path.rfind('/')));
  const bool labelled =
      (folder == "neg" || folder == "pos") && (split == "train" || split == "test");
  const size_t underscore = file.find('_');
  if (!labelled || !file.ends_with(".txt") || underscore == std::string_view::npos) return false;
  name.train = split == "train";
  name.label = folder == "pos";
  name.id = parse_number(file.substr(0, underscore));
  name.rating = parse_number(file.substr(underscore + 1, file.size() - underscore - 5));
  if (name.id < 0 || name.rating < 0) return false;
  const int low = name.label ? 7 : 1, high = name.label ? 10 : 4;
  if (name.rating < low || name.rating > high) {
    throw DataError(fmt::format("{}: rating {} in folder {}, expected {}..{}", printable(path, 200),
                                name.rating, folder, low, high));
  }
  return true;
}

void build_text(const TaskInfo& task, const PrepareOptions& options, CacheSet& set) {
  const auto from = find_reviews(options.from);
  std::vector<Review> train, test;
  ReviewName name;
  visit_files(
      from, [&](const SourceFile& file) { return parse_review_name(file.path, name); },
      [&](const SourceFile& file, ByteStream& stream) {
        Review review{name, read_all(stream, file.shown, kMaxDocument)};
        if (review.bytes.empty()) return warn(options, file.shown + ": empty review, skipped");
        (name.train ? train : test).push_back(std::move(review));
        const size_t done = train.size() + test.size();
        if (done % 1000 == 0) {
          progress(options, "reading reviews", static_cast<int64_t>(done), 50000);
        }
      });
  if (train.empty() || test.empty()) {
    throw DataError(
        fmt::format("{}: no {{train,test}}/{{neg,pos}}/<id>_<rating>.txt for split {} in "
                    "{}; get aclImdb_v1.tar.gz from {}",
                    task.name, train.empty() ? "train" : "test", from.string(), task.source));
  }
  const auto train_facts = write_reviews(train, kTrain, true, options, set.split("train"));
  const auto test_facts = write_reviews(test, kTest, false, options, set.split("test"));
  set.provenance = json_text({{"how", "read"},
                              {"train", train_facts},
                              {"test", test_facts},
                              {"data_seed", options.data_seed}});
}

TaskInfo text_task() {
  return {.name = "text",
          .description = "is a movie review positive? byte by byte (IMDb)",
          .tokens = TokenKind::bytes,
          .labels = {"negative", "positive"},
          .max_length = 4000,
          .nominal_length = 4096,
          .token_offset = 1,
          .benchmark = true,
          .held_out = 0.1,
          .source = "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
          .source_sha256 = "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
          .build = build_text};
}

}  // namespace skytape::data
