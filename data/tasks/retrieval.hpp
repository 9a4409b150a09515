// Retrieval: do two papers of the ACL Anthology Network cite each other? Two byte-level documents.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace skytape::data {

class ByteStream;

/// One line of the official files: `label id1 id2 text1 text2`, tab separated, no quoting. The
/// id-only form has the first three columns.
struct RetrievalLine {
  int label = 0;
  std::string_view id1, id2;      // ACL Anthology ids
  std::string_view text1, text2;  // empty in the id-only form; text2 keeps further tabs
};

/// Calls `each` for every line; DataError with file and line: missing columns, label not 0 or 1.
void read_pairs(ByteStream& stream, const std::string& name, bool with_texts,
                const std::function<void(const RetrievalLine&)>& each);

}  // namespace skytape::data
