// Texts without labels, for language models: the user's files, or IMDb's reviews.
#pragma once

#include <string_view>

namespace skytape::data {

class CacheSet;
struct PrepareOptions;
struct TaskInfo;

/// Of as many documents, in the order of the files, one goes to dev and one to test.
inline constexpr int kDocumentsOfBlock = 20;

/// Reads the documents (read_documents) of a file, or of the .txt files of a folder or an archive.
/// Each split is one long sequence, its documents with the end of a text between them, cut into
/// sequences of `options.length` tokens. IMDb's test reviews stay out, and with them its lists of
/// addresses. DataError for a corpus with fewer documents than a block has.
void build_corpus(const TaskInfo& task, const PrepareOptions& options, CacheSet& set);

}  // namespace skytape::data
