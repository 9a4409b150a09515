// Tiny synthetic data sets in the tasks' official file formats, for tests that read them as a user
// would.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace skytape::data::synthetic {

/// Paths inside a release, '/' between the parts, and what the files hold.
using Files = std::vector<std::pair<std::string, std::string>>;

/// listops-1000/basic_{train,val,test}.tsv with so many expressions each.
[[nodiscard]] Files listops_files(int examples);

/// aclImdb/{train,test}/{neg,pos}/<id>_<rating>.txt, `per_split` reviews in each split, alternately
/// negative and positive; besides, an unlabelled review and a file that is none.
[[nodiscard]] Files review_files(int per_split);

/// tsv_data/new_aan_pairs.{train,eval,test}.tsv with so many pairs each.
[[nodiscard]] Files pair_files(int pairs);

/// pathfinder32/curv_contour_length_14: images of noise in imgs/0, and their metadata.
[[nodiscard]] Files pathfinder_files(int images);

/// cifar-10-batches-bin/{data_batch_1..5,test_batch}.bin with so many records each.
[[nodiscard]] Files image_files(int per_file);

/// Colour records of CIFAR-10 with labels from `first_label` on; the planes of a label l are all
/// 20 l, 10 l and 20 l / 3.
[[nodiscard]] std::string image_records(int count, int first_label);

/// A gzip'd tar with the given entries.
void write_tar(const std::filesystem::path& path, const Files& files);

/// The files below `folder`.
void write_files(const std::filesystem::path& folder, const Files& files);

}  // namespace skytape::data::synthetic
