#include "data/custom/documents.hpp"

#include <fmt/format.h>

#include <vector>

#include "data/custom/encoding.hpp"
#include "data/files/source.hpp"

namespace skytape::data {
namespace {

constexpr std::size_t kLooksAhead = 16 << 20;  // bytes before it is known what ends a document

struct Line {
  std::string text;
  std::int64_t number;
};

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\v\f\r") == line.npos; }

/// Puts lines together to documents.
class Documents {
 public:
  Documents(const std::string& name,
            const std::function<void(const std::string&, const std::string&)>& visit)
      : name_(name), visit_(visit) {}

  /// A document of this line alone.
  void add_whole(const Line& line) { visit_(line.text, fmt::format("{}:{}", name_, line.number)); }

  /// Appends a line to a document. False if that is too long.
  [[nodiscard]] bool add_part(const Line& line) {
    if (text_.empty()) {
      place_ = fmt::format("{}:{}", name_, line.number);
    } else {
      text_ += '\n';
    }
    text_ += line.text;
    return text_.size() <= kMaxText;
  }

  void end_document() {
    if (!text_.empty()) visit_(text_, place_);
    text_.clear();
  }

 private:
  const std::string& name_;
  const std::function<void(const std::string&, const std::string&)>& visit_;
  std::string text_, place_;
};

}  // namespace

void read_documents(ByteStream& stream, const std::string& name,
                    const std::function<void(const std::string&, const std::string&)>& visit) {
  enum class Ends { unknown, at_lines, at_blanks };
  Ends ends = Ends::unknown;
  Documents documents(name, visit);
  std::vector<Line> ahead;  // while it is unknown what ends a document
  std::size_t bytes_ahead = 0;
  bool blank_before = false;
  LineReader lines(stream, name, kMaxText);
  const auto join = [&](const Line& line) {
    if (!documents.add_part(line)) {
      lines.fail(
          fmt::format("a document of more than {} bytes, expected blank lines between "
                      "documents",
                      kMaxText));
    }
  };
  for (std::string_view view; lines.next(view);) {
    if (lines.line_number() == 1) {
      refuse_utf16(view, name);
      if (view.starts_with(kByteOrderMark)) view.remove_prefix(kByteOrderMark.size());
    }
    if (is_blank(view)) {
      blank_before = true;
      continue;
    }
    const Line line{std::string(view), lines.line_number()};
    const bool started = ends != Ends::unknown || !ahead.empty();
    if (ends == Ends::unknown && blank_before && started) {
      ends = Ends::at_blanks;
      for (const Line& early : ahead) join(early);
      ahead.clear();
    }
    if (ends == Ends::at_blanks && blank_before) documents.end_document();
    blank_before = false;
    switch (ends) {
      case Ends::at_lines:
        documents.add_whole(line);
        break;
      case Ends::at_blanks:
        join(line);
        break;
      case Ends::unknown:
        ahead.push_back(line);
        bytes_ahead += line.text.size();
        if (bytes_ahead <= kLooksAhead) break;
        ends = Ends::at_lines;
        for (const Line& early : ahead) documents.add_whole(early);
        ahead.clear();
    }
  }
  for (const Line& early : ahead) documents.add_whole(early);
  documents.end_document();
}

}  // namespace skytape::data
