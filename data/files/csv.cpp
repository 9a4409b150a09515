#include "data/files/csv.hpp"

#include <fmt/format.h>

#include "data/files/source.hpp"
#include "tensor/core/error.hpp"

#ifdef SKYTAPE_HAVE_CSV
#include <csv.h>
#endif

namespace skytape::data {

#ifdef SKYTAPE_HAVE_CSV
namespace {

/// Rows that are complete. Nothing is thrown here: the callers are libcsv's C functions.
struct Rows {
  std::vector<std::vector<std::string>> done;
  std::vector<std::string> fields;  // of the row being read
};

void end_of_field(void* text, std::size_t bytes, void* rows) {
  static_cast<Rows*>(rows)->fields.emplace_back(static_cast<const char*>(text), bytes);
}

void end_of_row(int, void* to) {
  auto& rows = *static_cast<Rows*>(to);
  rows.done.push_back(std::move(rows.fields));
  rows.fields.clear();
}

class Parser {
 public:
  Parser() {
    ENSURE(csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI) == 0, "csv: libcsv does not start");
  }
  ~Parser() { csv_free(&parser_); }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;
  csv_parser* get() { return &parser_; }

 private:
  csv_parser parser_{};
};

}  // namespace

bool can_read_csv() { return true; }

void read_csv(
    ByteStream& stream, const std::string& name,
    const std::function<void(std::int64_t row, std::vector<std::string>& fields)>& visit) {
  Parser parser;
  Rows rows;
  std::int64_t row = 0;
  const auto hand_out = [&] {
    for (std::vector<std::string>& fields : rows.done) visit(++row, fields);
    rows.done.clear();
  };
  const auto fail = [&] {
    throw DataError(
        fmt::format("{}: row {}: {}", name, row + 1, csv_strerror(csv_error(parser.get()))));
  };
  std::vector<std::uint8_t> block(1 << 16);
  std::size_t since_row = 0;  // bytes of a row that does not end
  for (std::size_t got; (got = stream.read(block)) > 0;) {
    const bool whole =
        csv_parse(parser.get(), block.data(), got, end_of_field, end_of_row, &rows) == got;
    since_row = rows.done.empty() ? since_row + got : 0;
    hand_out();
    if (!whole) fail();
    if (since_row > kMaxLine) {
      throw DataError(fmt::format("{}: row {} is longer than {} bytes (a quote that never closes?)",
                                  name, row + 1, kMaxLine));
    }
  }
  if (csv_fini(parser.get(), end_of_field, end_of_row, &rows) != 0) {
    throw DataError(fmt::format("{}: row {}: a quote that never closes", name, row + 1));
  }
  hand_out();
}
#else
bool can_read_csv() { return false; }

void read_csv(ByteStream&, const std::string& name,
              const std::function<void(std::int64_t, std::vector<std::string>&)>&) {
  throw DataError(
      fmt::format("{}: this build reads no CSV: install libcsv-dev and type make, or bring label, "
                  "tab, text (.tsv) or JSON Lines (.jsonl)",
                  name));
}
#endif

}  // namespace skytape::data
