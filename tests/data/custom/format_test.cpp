// The format of a file of custom data is found by its name and by its first line.
#include "data/custom/format.hpp"

#include <algorithm>

#include "data/files/csv.hpp"
#include "data/files/digest.hpp"
#include "data/files/json.hpp"
#include "tensor/core/error.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::data;
using data::synthetic::error_of;

namespace {

const std::vector<std::string> kLabels = {"neg", "pos"};

/// "tsv", "csv", "jsonl", or "?" where it is refused.
std::string format_after(RecordFormat trained, std::string_view line) {
  std::string found = "?";
  const std::string error = error_of<UsageError>([&] {
    found = to_string(format_in(line, {"there", trained, kLabels}));
  });
  if (found == "?") CHECK(error.find("--format") != std::string::npos);
  return found;
}

}  // namespace

TEST_CASE("endings say the format, whatever is packed; others say nothing") {
  CHECK(format_of("a/own.csv") == RecordFormat::csv);
  CHECK(format_of("own.csv.gz") == RecordFormat::csv);
  CHECK(format_of("own.tsv") == RecordFormat::tsv);
  for (const char* name : {"own.jsonl", "own.ndjson", "own.json", "own.json.gz"}) {
    CHECK(format_of(name) == RecordFormat::jsonl);
  }
  for (const char* name : {"own", "own.txt", "own.gz"}) CHECK_FALSE(format_of(name).has_value());
  CHECK(parse_format("csv") == RecordFormat::csv);
  CHECK(error_of<UsageError>([] { (void)parse_format("json"); }).find("jsonl") !=
        std::string::npos);
}

TEST_CASE("the first line tells formats apart, and what could be two things is refused") {
  if (!can_read_csv()) {
    MESSAGE("skipped: built without libcsv");
    return;
  }
  using enum RecordFormat;
  for (const RecordFormat trained : {tsv, csv, jsonl}) {
    CAPTURE(to_string(trained));
    CHECK(format_after(trained, R"({"label": "neg", "text": "bad"})") == "jsonl");
    CHECK(format_after(trained, R"({"text": "bad"})") == "jsonl");
    CHECK(format_after(trained, R"({"clip": "bad"})") == "?");
    CHECK(format_after(trained, "neg\tbad, dull") == "tsv");
    CHECK(format_after(trained, "bad dull poor") == "tsv");
    // A label and a text as CSV has them, or the names of columns.
    CHECK(format_after(trained, "neg,bad dull") == (trained == csv ? "csv" : "?"));
    CHECK(format_after(trained, "\"neg\",\"bad, dull\"") == (trained == csv ? "csv" : "?"));
    CHECK(format_after(trained, "label,text") == (trained == csv ? "csv" : "?"));
    // A text with commas, which only CSV could take for fields.
    CHECK(format_after(trained, "bad, dull and poor") == (trained == csv ? "?" : "tsv"));
    CHECK(format_after(trained, "") == "tsv");
  }
  CHECK(format_after(csv, "\"bad, dull\"") == "csv");
  CHECK(format_after(tsv, "{ this is a text") == "tsv");
  CHECK(format_after(jsonl, "{ this is broken") == "?");
}

TEST_CASE("a first line of names shows what divides the fields, whatever training's files had") {
  if (!can_read_csv()) return;
  FormatHints hints{"there", RecordFormat::csv, kLabels, {"stars", "clip", ""}, '|'};
  CHECK(delimiter_of("id,stars,clip", hints) == ',');
  CHECK(delimiter_of("clip;id", hints) == ';');
  CHECK(delimiter_of("id\tclip", hints) == '\t');
  CHECK(delimiter_of("label|text", hints) == '|');
  CHECK(delimiter_of("clip|mood,text", hints) == '|');  // training's own comes first
  CHECK(format_in("clip;id", {"there", RecordFormat::csv, kLabels, hints.columns, ';'}) ==
        RecordFormat::csv);
  // Without names a label in front shows it, where training's delimiter divides nothing.
  CHECK(delimiter_of("neg;bad, dull", hints) == ';');
  CHECK(delimiter_of("neg\tbad", hints) == '\t');
  CHECK(delimiter_of("neg|bad; dull", hints) == '|');
  hints.trained = RecordFormat::tsv;
  for (const char* line : {"", "neg;bad, dull", "clip", "{\"clip\": 1, \"text\": 2}"}) {
    CAPTURE(line);
    CHECK(delimiter_of(line, hints) == '|');
  }
}

TEST_CASE("a preview shows the first line that is not blank and hands out every byte") {
  const std::string long_text(100'000, 'x');
  for (const std::string& rest : {std::string(), std::string("\n"), "\r\n" + long_text}) {
    for (const char* front : {"\xEF\xBB\xBF \n\r\n", "", "\n", "\t\n \t"}) {
      const std::string text = front + ("neg\tbad" + rest);
      const auto inner = open_memory(as_bytes(text));
      Preview preview(*inner);
      CHECK(preview.first_line() == "neg\tbad");
      const auto bytes = read_all(preview, "", 1 << 20);
      CHECK(std::string(bytes.begin(), bytes.end()) == text);
    }
  }
  const auto nothing = open_memory(as_bytes(" \n\n"));
  CHECK(Preview(*nothing).first_line().empty());
}

TEST_CASE("a preview waits for as many bytes as are asked for, however slowly they come") {
  struct Slow : ByteStream {
    std::string_view left = "abcd";
    size_t read(std::span<uint8_t> buffer) override {
      if (left.empty() || buffer.empty()) return 0;
      buffer[0] = static_cast<uint8_t>(left[0]);
      left.remove_prefix(1);
      return 1;
    }
  } slow;
  Preview preview(slow);
  CHECK(preview.front(3) == "abc");
  CHECK(preview.front(9) == "abcd");
  CHECK(read_all(preview, "", 9).size() == 4);
}

TEST_CASE("a set says which format its examples had") {
  const auto of = [](const char* text) { return trained_format(parse_json(text)); };
  CHECK(of(R"({"sources": [{"file": "train.csv.gz"}]})") == RecordFormat::csv);
  CHECK(of(R"({"sources": [{"file": "own.txt"}]})") == RecordFormat::tsv);
  CHECK(of(R"({"sources": [{"file": "own.txt", "format": "jsonl"}]})") == RecordFormat::jsonl);
  CHECK(of("{}") == RecordFormat::tsv);
}
