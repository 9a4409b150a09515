// Byte-level text: IMDb reviews. A byte b is the token b; ids are b + 1, so that 0 stays free for
// padding.
#pragma once

#include <string_view>

namespace skytape::data {

class CacheSet;
struct PrepareOptions;
struct TaskInfo;

/// Where a review lies says what it is: `…/{train,test}/{neg,pos}/<id>_<rating>.txt`.
struct ReviewName {
  bool train = false;
  int label = 0;  // 0 negative (ratings 1..4), 1 positive (7..10)
  int id = 0;
  int rating = 0;
};

/// True if the path is that of a labelled review. DataError if the rating contradicts the folder.
[[nodiscard]] bool parse_review_name(std::string_view path, ReviewName& name);

/// Reads the tree `aclImdb/{train,test}/{neg,pos}/*.txt` from a folder or an archive. Both splits
/// are stored in a seeded random order: the held-out dev set is the end of train.
void build_text(const TaskInfo& task, const PrepareOptions& options, CacheSet& set);

}  // namespace skytape::data
