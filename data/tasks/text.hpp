// Byte-level text: IMDb reviews. A byte b is the token b; ids are b + 1, so that 0 stays free for
// padding.
#pragma once

namespace skytape::data {

class CacheSet;
struct PrepareOptions;
struct TaskInfo;

/// Reads the tree `aclImdb/{train,test}/{neg,pos}/*.txt` from a folder or an archive. Both splits
/// are stored in a seeded random order: the held-out dev set is the end of train.
void build_text(const TaskInfo& task, const PrepareOptions& options, CacheSet& set);

}  // namespace skytape::data
