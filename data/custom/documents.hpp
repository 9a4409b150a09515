// The documents of a text file.
#pragma once

#include <functional>
#include <string>

namespace skytape::data {

class ByteStream;

/// A document or a line beyond so many bytes is refused; a long novel has 3 MB.
inline constexpr std::size_t kMaxText = 64 << 20;

/// Passes every document of a file to `visit`, with the place where it begins ("a.txt:7"). A blank
/// line between two lines ends a document; a file whose first 16 MB have none has one a line. A
/// byte order mark is left out. DataError with file and line.
void read_documents(
    ByteStream& stream, const std::string& name,
    const std::function<void(const std::string& text, const std::string& place)>& visit);

}  // namespace skytape::data
