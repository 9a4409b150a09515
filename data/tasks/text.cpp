// Byte-level text: IMDb reviews. A byte b is the token b; ids are b + 1, so that 0 stays free for
// padding.
#include "data/cache/cache.hpp"
#include "data/custom/imdb.hpp"
#include "data/files/digest.hpp"
#include "data/files/json.hpp"
#include "data/prepare.hpp"
#include "data/random.hpp"

namespace skytape::data {
namespace {

/// Writes one split in a seeded order; returns its metadata for the provenance.
Json write_reviews(const std::vector<Review>& reviews, bool train, const PrepareOptions& options,
                   CacheWriter& out) {
  const Json facts = review_facts(reviews, train, options);
  const Permutation order(reviews.size(), options.data_seed, train ? 0 : 1);
  for (size_t i = 0; i < reviews.size(); ++i) {
    const Review& review = reviews[order(i)];
    out.add(review.name.label, as_bytes(review.text));
  }
  return facts;
}

/// Reads the tree `aclImdb/{train,test}/{neg,pos}/*.txt` from a folder or an archive. Both splits
/// are stored in a seeded random order: the held-out dev set is the end of train.
void build_text(const TaskInfo&, const PrepareOptions& options, CacheSet& set) {
  const Reviews reviews = read_reviews(options);
  const Json train_facts = write_reviews(reviews.train, true, options, set.split("train"));
  const Json test_facts = write_reviews(reviews.test, false, options, set.split("test"));
  set.provenance = json_text({{"how", "read"},
                              {"train", train_facts},
                              {"test", test_facts},
                              {"data_seed", options.data_seed}});
}

}  // namespace

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
          .source = kReviewsSource,
          .source_sha256 = "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
          .build = build_text};
}

}  // namespace skytape::data
