// Custom data, the user's own examples, row by row, from TSV, CSV and JSON Lines.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "data/files/columns.hpp"

namespace skytape::data {

class ByteStream;

enum class RecordFormat { tsv, csv, jsonl };

/// A row: an example as its file has it.
struct Record {
  std::string label;  // empty: the row has a text only
  std::string text;
  std::string place;        // "own.tsv:7", for messages
  std::string second = {};  // the other text of a pair

  /// The text; of a pair both, with a tab between.
  [[nodiscard]] std::string texts() const { return second.empty() ? text : text + "\t" + second; }
};

/// Takes the message about a broken row, which is left out; none: it is thrown.
using BrokenRow = std::function<void(const std::string& message)>;
/// Reads one row, which is broken where `read` throws DataError.
void read_row(const BrokenRow& broken, const std::function<void()>& read);

struct RecordOptions {
  RecordFormat format = RecordFormat::tsv;
  bool header = false;       // the first row names the columns, even if none of the names is usual
  bool need_label = true;    // false: rows may have a text alone
  bool pairs = false;        // texts are two with a tab between: a row with one tab has no label
  bool one_text = false;     // the second text of a pair's usual columns is not read
  ColumnNames columns = {};  // TSV and CSV find label and texts by them; JSON Lines its members
  bool may_lack_header = false;  // columns are named, but a file may have examples alone
  char delimiter = ',';          // of CSV
  BrokenRow broken = {};
};

/// The columns of a file, and the way in which they were found.
struct FoundColumns {
  ColumnNames names;             // empty: by their places, label and text
  bool recognised = false;       // a first row was taken for names without being called so
  std::string unread = {};       // the other text of a pair that `one_text` leaves out
  std::int64_t blank_lines = 0;  // that were left out
};

/// Passes every row that is not empty to `visit`: `label<TAB>text`; label and text in the first two
/// fields of CSV; {"label": …, "text": "…"} of JSON Lines, where a number or truth value is a
/// label, too; with a first row that names columns, what stands in these. A byte order mark is left
/// out. DataError with file and line.
FoundColumns read_records(ByteStream& stream, const std::string& name, const RecordOptions& options,
                          const std::function<void(Record&)>& visit);

}  // namespace skytape::data
