// Pieces of a page that needs no other file.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace skytape::train {

/// Text with `<`, `>`, `&` and `"` written so that HTML shows them.
[[nodiscard]] std::string html_escaped(std::string_view text);

/// An SVG file as an <img> that contains the picture. DataError if it cannot be read.
[[nodiscard]] std::string html_picture(const std::filesystem::path& svg, std::string_view title);

/// The whole page: light or dark as the reader's system, readable on a phone and on paper. Above
/// zero, the browser loads it anew every `refresh_seconds`.
[[nodiscard]] std::string html_page(std::string_view title, std::string_view body,
                                    int refresh_seconds = 0);

}  // namespace skytape::train
