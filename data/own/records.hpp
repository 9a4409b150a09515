// The user's own examples, row by row, from TSV, CSV and JSON Lines.
#pragma once

#include <functional>
#include <string>

namespace skytape::data {

class ByteStream;

enum class RecordFormat { tsv, csv, jsonl };

struct Record {
  std::string label;  // empty: the row has a text only
  std::string text;
  std::string place;        // "own.tsv:7", for messages
  std::string second = {};  // the other text of a pair, which files of GLUE alone have
};

struct RecordOptions {
  RecordFormat format = RecordFormat::tsv;
  bool header = false;     // the first row names the columns: CSV finds label and text by it
  bool need_label = true;  // false: rows may have a text alone
  bool pairs = false;      // texts are two with a tab between: a row with one tab has no label
};

/// Passes every row that is not empty to `visit`: `label<TAB>text`; label and text in the first two
/// fields of CSV; {"label": …, "text": "…"} of JSON Lines, where a number or truth value is a label,
/// too. A byte order mark is left out. DataError with file and line.
void read_records(ByteStream& stream, const std::string& name, const RecordOptions& options,
                  const std::function<void(Record&)>& visit);

}  // namespace skytape::data
