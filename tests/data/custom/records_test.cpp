// Rows of a user's own files: fields as they stand, columns by their names, what is broken.
#include "data/custom/records.hpp"

#include <string>
#include <utility>
#include <vector>

#include "data/custom/delimiter.hpp"
#include "data/custom/encoding.hpp"
#include "data/files/csv.hpp"
#include "data/files/digest.hpp"
#include "data/files/source.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::data;
using namespace skytape::data::synthetic;
using test::contains;

namespace {

using Fields = std::vector<std::string>;

/// Label, text and second text of every row; broken ones as their message.
struct Read {
  std::vector<Fields> rows;
  FoundColumns found;
  std::string error;
};

Read read(std::string_view text, RecordOptions options) {
  Read result;
  result.error = error_of([&] {
    result.found =
        read_records(*open_memory(as_bytes(text)), "own", options, [&](const Record& record) {
          result.rows.push_back({record.label, record.text, record.second});
        });
  });
  return result;
}

const RecordOptions kCsv{RecordFormat::csv};
const RecordOptions kJson{RecordFormat::jsonl};

}  // namespace

TEST_CASE("blanks and tabs around a field of CSV belong to it") {
  if (!can_read_csv()) return;
  CHECK(read("a, two \t\r\n\r\n   \n b ,\" x \"\n", kCsv).rows ==
        std::vector<Fields>{{"a", " two \t", ""}, {" b ", " x ", ""}});
}

TEST_CASE("a quoted field of nothing is an empty text, not a row that is left out") {
  if (!can_read_csv()) return;
  RecordOptions texts = kCsv;
  texts.need_label = false;
  CHECK(read("text\nbad film\n\"\"\ngood day\n", texts).error ==
        "own: row 3: empty text, expected label,text");
  CHECK(read("bad film\n\"\"\n", texts).error == "own: row 2: empty text, expected label,text");
  CHECK(read("text\nbad film\n\n \ngood day\n", texts).rows.size() == 3);
}

TEST_CASE("blank lines are left out and counted, in every format") {
  const auto blank = [](std::string_view text, RecordOptions options) {
    options.need_label = false;
    return read(text, options).found.blank_lines;
  };
  CHECK(blank("a\tb\n\n \t\nc\td\n", {}) == 2);
  CHECK(blank("{\"text\": \"a\"}\n\n \n{\"text\": \"b\"}\n", kJson) == 2);
  if (!can_read_csv()) return;
  CHECK(blank("a,b\n\n \ne,\"c\n\nd\"\n", kCsv) == 2);
  CHECK(blank("\r\na,b\r\n\r\nc,d\r\n", kCsv) == 2);
  CHECK(blank("a,b\r\nc,d\r\n", kCsv) == 0);
}

TEST_CASE("a quote out of place in CSV is named with row and character") {
  if (!can_read_csv()) return;
  const auto error = [](std::string_view text) { return read(text, kCsv).error; };
  CHECK(error("a,x\r\n\r\nb,caf\xC3\xA9 \"y\" z\r\n") ==
        "own: row 2: character 8 of 'b,café \"y\" z': a quote within a field; expected quotes "
        "around the whole field, and \"\" for each in it");
  CHECK(contains(error("a,x\na,\"foo\" bar\n"),
                 "row 2: character 8 of 'a,\"foo\" bar': text behind"));
  CHECK(contains(error("a,x\na,\"foo\nbar\n"), "row 2: its last quote never closes"));
}

TEST_CASE("broken rows are left out and told, those with a quote out of place too") {
  if (!can_read_csv()) return;
  std::vector<std::string> broken;
  RecordOptions options = kCsv;
  options.broken = [&](const std::string& message) { broken.push_back(message); };
  const Read csv = read("a,x\na,\"y\" z\na\n,w\nb,v\n", options);
  CHECK(csv.rows == std::vector<Fields>{{"a", "x", ""}, {"b", "v", ""}});
  REQUIRE(broken.size() == 3);
  CHECK(contains(broken[0], "own: row 2: character 6"));
  CHECK(contains(broken[1], "own: row 3: found 1 field separated by"));
  CHECK(contains(broken[2], "own: row 4: empty label"));
  for (const RecordFormat format : {RecordFormat::tsv, RecordFormat::jsonl}) {
    broken.clear();
    options.format = format;
    CHECK(read("nothing\n{\"label\": 1\n", options).rows.empty());
    CHECK(broken.size() == 2);
  }
}

TEST_CASE("a quote that never closes is told behind the broken rows before it") {
  if (!can_read_csv()) return;
  std::vector<std::string> broken;
  RecordOptions options = kCsv;
  options.broken = [&](const std::string& message) { broken.push_back(message); };
  const Read csv = read("a,x\n,w\nb,v\nc,\"never\nd,y\n", options);
  CHECK(csv.error.empty());
  CHECK(csv.rows == std::vector<Fields>{{"a", "x", ""}, {"b", "v", ""}});
  REQUIRE(broken.size() == 2);
  CHECK(contains(broken[0], "own: row 2: empty label"));
  CHECK(contains(broken[1],
                 "own: row 4: its last quote never closes, and the rest of the file "
                 "is inside it, 2 lines"));
}

TEST_CASE("a first row of usual names finds the columns, in every format") {
  const std::vector<Fields> wanted{{"1", "good film", ""}, {"0", "bad film", ""}};
  const Read tsv = read("text\tid\tLabel\ngood film\t7\t1\nbad film\t8\t0\n", {});
  CHECK(tsv.rows == wanted);
  CHECK(tsv.found.recognised);
  CHECK(tsv.found.names.label == "Label");
  CHECK(read("\xEF\xBB\xBFreview,class\ngood film,1\nbad film,0\n", kCsv).rows ==
        (can_read_csv() ? wanted : std::vector<Fields>{}));
  CHECK(read("{\"sentence\": \"good film\", \"category\": 1}\n"
             "{\"category\": 0, \"sentence\": \"bad film\"}\n",
             kJson)
            .rows == wanted);
  CHECK(read("{\"sentence\": \"good film\", \"label\": 1}\n", kJson).found.recognised);
  CHECK_FALSE(read("{\"text\": \"good film\", \"label\": 1}\n", kJson).found.recognised);
  // Pairs, and the rest of a line in a last column of texts.
  CHECK(read("label\tsentence1\tsentence2\n1\ta\tb\tc\n", {}).rows ==
        std::vector<Fields>{{"1", "a", "b\tc"}});
  CHECK(contains(read("text\tlabel\na\tb\t1\n", {}).error, "own:2: 3 fields, expected 2"));
  // If only one of both has a usual name, or neither has, the row is an example.
  CHECK(read("label\tclip\nneg\tx\n", {}).rows.size() == 2);
  CHECK(read("stars\tclip\nneg\tx\n", {}).rows.size() == 2);
}

TEST_CASE("columns are named by the user, by name or by number") {
  RecordOptions options;
  options.columns = {"stars", "clip", ""};
  CHECK(read("clip\tx\tstars\na b\t-\t5\n", options).rows == std::vector<Fields>{{"5", "a b", ""}});
  CHECK(contains(read("clip\tx\na b\t-\n", options).error, "no column 'stars' in clip,x"));
  options.columns = {"3", "1", "2"};
  CHECK(read("a b\tc\t5\n", options).rows == std::vector<Fields>{{"5", "a b", "c"}});
  CHECK(contains(read("a b\tc\n", options).error, "no column '3'"));
  options.columns = {"stars", "clip", "other"};
  options.format = RecordFormat::jsonl;
  CHECK(
      read("{\"stars\": 5, \"clip\": \"a\", \"other\": \"b\", \"text\": \"c\"}\n", options).rows ==
      std::vector<Fields>{{"5", "a", "b"}});
  CHECK(contains(read("{\"stars\": 5, \"clip\": \"a\"}\n", options).error, "\"other\""));
}

TEST_CASE("one column cannot be two things") {
  const auto error = [](std::string_view text, RecordFormat format, const ColumnNames& columns) {
    RecordOptions options{format};
    options.columns = columns;
    return read(text, options).error;
  };
  CHECK(error("a\tb\n", RecordFormat::tsv, {"1", "1", ""}) ==
        "own: column 'a' is both label and text, expected two columns");
  CHECK(contains(error("text\tl\nx\ty\n", RecordFormat::tsv, {"l", "text", "text"}),
                 "column 'text' is both text and second text"));
  CHECK(contains(error("{\"l\": 1, \"x\": \"a\"}\n", RecordFormat::jsonl, {"l", "x", "l"}),
                 "column 'l' is both label and second text"));
}

TEST_CASE("a name that stands twice is refused, unless another way says which column it is") {
  CHECK(read("{\"label\": 1, \"text\": \"a\"}\n{\"label\": 1, \"text\": \"a\", \"text\": \"b\"}",
             kJson)
            .error == "own:2: key 'text' appears twice in an object");
  const std::string rows = "label\ttext\ttext\nx\ta\tb\n";
  CHECK(contains(read(rows, {}).error, "own: row 1: 'text' names two columns, expected each"));
  RecordOptions third;
  third.header = true;
  third.columns.text = "3";
  CHECK(read(rows, third).rows == std::vector<Fields>{{"x", "b", ""}});
  CHECK(read("id\tlabel\tid\ttext\n1\tx\t2\ta\n", {}).error.empty());  // of no use to us
}

TEST_CASE("JSON Lines have one text or two in all rows, whatever is broken in the first") {
  const std::string one = R"({"label": "a", "text": "b"})", two = R"({"label": "a", "text": "b",)";
  CHECK(read(one + "\n" + two + R"( "text2": "c"})", kJson).error ==
        "own:2: two texts, 'text' and 'text2', unlike the first row");
  CHECK(
      contains(read(two + R"( "text2": "c"})" + "\n" + one, kJson).error, "own:2: no JSON object"));
  RecordOptions options = kJson;
  std::vector<std::string> broken;
  options.broken = [&](const std::string& message) { broken.push_back(message); };
  const Read found = read("{\"label\": \"a\"}\n" + two + R"( "text2": "c"})", options);
  CHECK(found.rows == std::vector<Fields>{{"a", "b", "c"}});
  CHECK(broken.size() == 1);
}

TEST_CASE("a number beyond 64 bits is no label of JSON Lines, unless it is quoted") {
  const auto label = [](const std::string& number) {
    return read("{\"label\": " + number + ", \"text\": \"x\"}\n", kJson);
  };
  CHECK(label("18446744073709551615").rows[0][0] == "18446744073709551615");
  CHECK(contains(label("18446744073709551617").error, "own:1: label 1.8446744073709552e+19 is"));
  CHECK(contains(label("-9223372036854775809").error, "is beyond 64 bits"));
  CHECK(label("\"18446744073709551617\"").rows[0][0] == "18446744073709551617");
}

TEST_CASE("a column whose name is a number is found by its name, not by where it stands") {
  RecordOptions options;
  options.header = true;
  options.columns = {"1", "3", "2"};  // each is the place of another one
  const std::vector<Fields> wanted{{"5", "a b", "c d"}, {"4", "e", "f"}};
  CHECK(read("2\t1\t3\nc d\t5\ta b\nf\t4\te\n", options).rows == wanted);
  options.header = false;
  options.format = RecordFormat::jsonl;
  CHECK(read("{\"2\": \"c d\", \"1\": 5, \"3\": \"a b\"}\n{\"3\": \"e\", \"1\": 4, \"2\": \"f\"}\n",
             options)
            .rows == wanted);
}

TEST_CASE("a file to be answered may have the columns of training, or texts alone") {
  RecordOptions options;
  options.need_label = false;
  options.may_lack_header = true;
  options.columns = {"stars", "clip", ""};
  CHECK(read("clip\nx\n", options).rows == std::vector<Fields>{{"", "x", ""}});
  CHECK(read("id\tclip\tstars\n1\tx\t5\n", options).rows == std::vector<Fields>{{"5", "x", ""}});
  CHECK(read("5\tx\n", options).rows == std::vector<Fields>{{"5", "x", ""}});
  CHECK(read("x\n", options).rows == std::vector<Fields>{{"", "x", ""}});
  options.columns = {"1", "2", ""};
  CHECK(read("5\tx\n", options).rows == std::vector<Fields>{{"5", "x", ""}});
  CHECK(read("x\ny\n", options).rows == std::vector<Fields>{{"", "x", ""}, {"", "y", ""}});
}

TEST_CASE("two texts of a line without a label are told from a label and one text") {
  RecordOptions options;
  options.need_label = false;
  CHECK(read("x\ty\n", options).rows == std::vector<Fields>{{"x", "y", ""}});
  options.pairs = true;
  CHECK(read("x\ty\n", options).rows == std::vector<Fields>{{"", "x\ty", ""}});
  CHECK(read("5\tx\ty\n", options).rows == std::vector<Fields>{{"5", "x\ty", ""}});
}

TEST_CASE("pairs as data --export writes them are read, whatever the columns of training were") {
  RecordOptions options = kJson;
  options.need_label = false;
  options.may_lack_header = options.pairs = true;
  options.columns = {"gold", "premise", "claim"};
  const std::vector<Fields> wanted{{"5", "x", "y"}};
  CHECK(read(R"({"gold": 5, "premise": "x", "claim": "y", "text2": "z"})", options).rows == wanted);
  CHECK(read(R"({"label": 5, "text": "x", "text2": "y"})", options).rows == wanted);
  options.columns.text = "text";
  CHECK(read(R"({"label": 5, "text": "x", "claim": "y"})", options).rows == wanted);
}

TEST_CASE("the first rows of CSV show what divides their fields") {
  if (!can_read_csv()) return;
  const Folder folder;
  const auto found = [&](const std::string& text) {
    return find_delimiter(folder.write("d.csv", text));
  };
  CHECK(found("a,b; c\nb,c; d\n") == ',');
  CHECK(found("a;b, c\nb;c\nc;\"x;\ny\"\n") == ';');
  CHECK(found("text;label\na, b;1\nc, d;0\n") == ';');
  CHECK(found("a\tb\nc\td\n") == '\t');
  CHECK(found("a|b\nc|d, e\n") == '|');
  CHECK(found("one\ntwo\n") == ',');
  // Nine rows of ten have to agree with the first one, of twenty at most.
  const auto rows = [](int alike, int others) {
    std::string text;
    for (int i = 0; i < alike; ++i) text += "a;b, c\n";
    for (int i = 0; i < others; ++i) text += "d; e; f\n";
    return text;
  };
  CHECK(found(rows(9, 1)) == ';');
  CHECK(found(rows(8, 1)) == ',');
  CHECK(found(rows(18, 2)) == ';');
  CHECK(found(rows(17, 3)) == ',');
  CHECK(found(rows(19, 30)) == ';');
  // Decimal commas: two delimiters divide all rows, and no names say which is meant.
  for (const char* text : {"1,0;good\n0,5;bad\n", "a|1,0\nb|2,5\n"}) {
    const std::string said = error_of<UsageError>([&] { (void)found(text); });
    CHECK_MESSAGE(said.find(" both divide its rows; --delimiter says which") != said.npos, said);
  }
  CHECK(found("label;text\n1,0;good\n0,5;bad\n") == ';');
  for (const char* text : {"1,0;good\n2;bad\n", "1,0;good\n2;bad"}) CHECK(found(text) == ';');
  CHECK(parse_delimiter("tab") == '\t');
  CHECK(parse_delimiter("\\t") == '\t');
  CHECK(parse_delimiter(delimiter_name('\t')) == '\t');
  for (const char* text : {"", "::", "\"", "\n", "\r"}) {
    CHECK_THROWS_AS((void)parse_delimiter(text), UsageError);
  }
  RecordOptions options = kCsv;
  options.delimiter = ';';
  CHECK(read("a;b, c\n", options).rows == std::vector<Fields>{{"a", "b, c", ""}});
}

TEST_CASE("texts that are no UTF-8 are counted or refused, UTF-16 and zeros are named") {
  CHECK(first_not_utf8("caf\xC3\xA9 \xF0\x9F\x98\x80 \xEF\xBF\xBD") == std::string::npos);
  CHECK(first_not_utf8("caf\xE9 x") == 3);
  CHECK(first_not_utf8("\xC0\x80") == 0);          // overlong
  CHECK(first_not_utf8("ab\xED\xA0\x80") == 2);    // half of a surrogate pair
  CHECK(first_not_utf8("\xF4\x90\x80\x80") == 0);  // beyond the last character
  CHECK(first_not_utf8("x\xE2\x82") == 1);         // cut
  EncodingCheck counts(false);
  counts.see("fine", "f:1");
  CHECK(counts.warning().empty());
  counts.see("caf\xE9", "f:2");
  counts.see("na\xEFve", "f:3");
  CHECK(contains(counts.warning(), "2 of 3 texts"));
  CHECK(contains(counts.warning(), "f:2: byte 4 of 'caf\\xe9', 0xe9"));
  CHECK(contains(counts.warning(), "iconv -f latin1"));
  EncodingCheck refuses(true);
  CHECK(contains(error_of<DataError>([&] { refuses.see("caf\xE9", "f:2"); }), "f:2: byte 4"));
  CHECK(contains(error_of<DataError>([&] { counts.see(std::string("a\0b", 3), "f:9"); }),
                 "f:9: byte 2 of 'a?b' is 0"));
  for (const RecordFormat format : {RecordFormat::tsv, RecordFormat::jsonl}) {
    CHECK(contains(read(std::string("\xFF\xFE"
                                    "a\0\t\0",
                                    6),
                        {format})
                       .error,
                   "own: in UTF-16"));
  }
  CHECK(contains(read(std::string("a\0\t\0b\0\n\0", 8), {}).error,
                 "own: looks like UTF-16, as 4 of its first 8 bytes are 0; expected UTF-8: `iconv "
                 "-f utf-16le"));
  CHECK(contains(read("{\"label\": 1, \"text\": \"caf\xE9\"}\n", kJson).error, "in UTF-8"));
}
