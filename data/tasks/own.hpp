// The user's own examples (task tsv): labels and texts from one file, or split already.
#pragma once

#include <cstddef>
#include <filesystem>

namespace skytape::data {

class CacheSet;
struct PrepareOptions;
struct TaskInfo;

inline constexpr std::size_t kMaxClasses = 1000;  // more is a file whose columns are swapped

/// One file of records, split 80/10/10 by a seeded permutation; or a folder with a file for each of
/// train, dev and test, taken as they are. Labels may be any words; sorted (as numbers if all are),
/// they become the classes 0, 1, …. What is odd but usable is a warning: classes with a single
/// example, labels that training never shows, texts longer than a run reads.
/// A folder in the layout of GLUE has train.tsv and dev.tsv: the second is the test split, whose
/// labels are public, and a twentieth of the first the dev split. The texts of a pair make one
/// sequence, with the tokens' end of a text between them (bytes: a tab).
/// IMDb's archive, or the folder that it unpacks to: its test split is test, a twentieth of its
/// train split dev; the classes are neg and pos.
void build_own(const TaskInfo& task, const PrepareOptions& options, CacheSet& set);

/// Writes the splits as files that build_own reads again: `{train,dev,test}.tsv`, or `.jsonl` where
/// a text has line ends. Of words and integers what the model reads.
void export_own(const TaskInfo& task, const std::filesystem::path& root,
                const std::filesystem::path& dir);

}  // namespace skytape::data
