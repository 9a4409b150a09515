#include "train/formats/html.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <map>

#include "tensor/core/error.hpp"

namespace skytape::train {
namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1b1b1b; --faint: #6b6b6b; --line: #d9d9d9; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181c; --ink: #e6e6e6; --faint: #a0a4ab; --line: #3a3e45; }
}
body { background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
       max-width: 72rem; margin: 0 auto; padding: 1rem; }
h1, h2 { line-height: 1.2; }
h2 { border-bottom: 1px solid var(--line); margin-top: 2.5rem; }
figure { margin: 1.5rem 0; }
figcaption { font-weight: 600; margin-bottom: .5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .75rem .25rem 0; text-align: left;
         vertical-align: top; }
td.number { text-align: right; }
.note, .facts { color: var(--faint); font-size: .9rem; }
img { max-width: 100%; height: auto; background: #ffffff; border-radius: 4px; }
@media print {
  :root { --paper: #ffffff; --ink: #000000; --faint: #444444; --line: #bbbbbb; }
  body { max-width: none; font-size: 10pt; }
  table { font-size: 7.5pt; }
  img, tr { break-inside: avoid; }
  .wide { overflow: visible; }
}
)";

}  // namespace

std::string html_escaped(std::string_view text) {
  const std::map<char, std::string_view> names = {
      {'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}, {'"', "&quot;"}};
  std::string out;
  for (const char c : text) {
    const auto name = names.find(c);
    out += name == names.end() ? std::string_view(&c, 1) : name->second;
  }
  return out;
}

std::string html_picture(const std::filesystem::path& svg, std::string_view title) {
  std::ifstream in(svg, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (!in || bytes.empty()) throw DataError(fmt::format("{}: cannot read it", svg.string()));
  std::string encoded;  // per cent, as addresses are
  for (const char c : bytes) {
    const auto code = static_cast<unsigned char>(c);
    const bool plain = code > ' ' && code < 0x7f &&
                       std::string_view("%#<>\"'\\`{|}^&").find(c) == std::string_view::npos;
    if (plain)
      encoded += c;
    else
      encoded += fmt::format("%{:02X}", code);
  }
  return fmt::format(
      "<figure><img alt=\"{}\" src=\"data:image/svg+xml;charset=utf-8,{}\"></figure>\n",
      html_escaped(title), encoded);
}

std::string html_page(std::string_view title, std::string_view body, int refresh_seconds) {
  const std::string refresh =
      refresh_seconds > 0
          ? fmt::format("<meta http-equiv=\"refresh\" content=\"{}\">\n", refresh_seconds)
          : "";
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n{}"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n{}</body>\n</html>\n",
      refresh, html_escaped(title), kStyle, body);
}

}  // namespace skytape::train
