#include "data/tasks/listops.hpp"

#include <zlib.h>

#include <array>
#include <cmath>
#include <map>
#include <set>

#include "data/files/json.hpp"
#include "data/files/source.hpp"
#include "tests/data/real_data.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::data;
using namespace skytape::data::synthetic;

namespace {

// 96,000 training examples of the official generator, run with its default parameters.
constexpr double kMeanLength = 1035.14, kLengthDeviation = 393.09, kMeanWithoutClose = 887.87;
constexpr double kOperatorsPerExample = 147.27;
constexpr std::array<double, 10> kLabels = {16329, 8710, 7357, 7796, 8643,
                                            8189,  7446, 6909, 8367, 16254};
constexpr std::array<double, 15> kLengths = {12209, 11381, 10444, 9316, 8332, 7367, 6707, 5711,
                                             5132,  4385,  3898,  3423, 2956, 2573, 2166};
constexpr std::array<double, 4> kRoots = {24000, 24307, 23949, 23744};  // MIN MAX MED SM
constexpr std::array<double, 9> kArguments = {64549, 64410, 65420, 65378, 65319,
                                              65472, 65835, 65669, 65686};  // 2..10, 4000 examples

/// Chi-square statistic of two samples having one distribution; bins - 1 degrees of freedom.
template <size_t N>
double chi_square(const std::array<double, N>& a, const std::array<double, N>& b) {
  double total_a = 0, total_b = 0, sum = 0;
  for (size_t i = 0; i < N; ++i) total_a += a[i], total_b += b[i];
  for (size_t i = 0; i < N; ++i) {
    const double gap = std::sqrt(total_b / total_a) * a[i] - std::sqrt(total_a / total_b) * b[i];
    sum += gap * gap / (a[i] + b[i]);
  }
  return sum;
}

std::vector<uint8_t> tokens_of(std::string_view text) {
  std::vector<uint8_t> tokens;
  REQUIRE(parse_listops(text, tokens).empty());
  return tokens;
}

std::string read_text(std::string_view text) {
  Folder folder;
  CacheWriter writer(folder.path() / "x", 1);
  const auto stream = open_memory({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  return error_of<DataError>([&] { read_listops(*stream, "basic_train.tsv", writer, {}); });
}

}  // namespace

TEST_CASE("drawn expressions follow the official distribution") {
  constexpr int kMany = 20000;
  double tokens = 0, closes = 0;
  std::array<double, 10> labels{};
  std::array<double, 15> lengths{};
  std::array<double, 4> roots{};
  std::array<double, 9> arguments{};
  int kept = 0, deepest = 0, wrong_labels = 0;
  uint64_t attempts = 0;
  ListOpsSample sample;
  for (; kept < kMany; ++attempts) {
    if (!draw_listops(1, attempts, sample)) continue;
    ++kept;
    tokens += static_cast<double>(sample.tokens.size());
    ++labels[sample.label];
    ++lengths[(sample.tokens.size() - 500) / 100];
    ++roots[sample.tokens[0] - kListOpsMin];
    std::vector<int> open;
    for (const uint8_t token : sample.tokens) {
      if (token == kListOpsClose) {
        if (kept <= 4000) ++arguments[open.back() - 2];
        open.pop_back();
        ++closes;
      }
      if (token < kListOpsMin || token == kListOpsClose) {
        if (!open.empty()) ++open.back();
      } else {
        open.push_back(0);
        deepest = std::max(deepest, static_cast<int>(open.size()));
      }
    }
    wrong_labels += evaluate_listops(sample.tokens) != sample.label;
  }
  const double error = kLengthDeviation / std::sqrt(kMany);  // standard error of the mean length
  CHECK(wrong_labels == 0);
  CHECK(std::abs(tokens / kMany - kMeanLength) < 4 * error);
  CHECK(std::abs((tokens - closes) / kMany - kMeanWithoutClose) < 4 * error);
  CHECK(std::abs(closes / kMany - kOperatorsPerExample) < 1.5);
  CHECK(deepest == 9);
  CHECK(static_cast<double>(kept) / static_cast<double>(attempts) ==
        doctest::Approx(0.0829).epsilon(0.02));
  // Limits are the 0.9999 quantiles of chi-square with 9, 14, 3 and 8 degrees of freedom.
  CHECK(chi_square(labels, kLabels) < 33.7);
  CHECK(chi_square(lengths, kLengths) < 42.6);
  CHECK(chi_square(roots, kRoots) < 21.1);
  // Argument counts inside one tree are not independent; the limit allows twice the variance.
  CHECK(chi_square(arguments, kArguments) < 2 * 31.8);
}

TEST_CASE("the distribution tests notice wrong generators") {
  std::array<double, 10> uniform;
  uniform.fill(2000);
  CHECK(chi_square(uniform, kLabels) > 33.7);
  std::array<double, 15> flat;
  flat.fill(1300);
  CHECK(chi_square(flat, kLengths) > 42.6);
}

TEST_CASE("the evaluator knows the four operators and refuses malformed expressions") {
  CHECK(evaluate_listops(tokens_of("[MAX 2 9 [MIN 4 7 ] 0 ]")) == 9);
  CHECK(evaluate_listops(tokens_of("[MED 3 4 ]")) == 3);
  CHECK(evaluate_listops(tokens_of("[MED 9 1 5 ]")) == 5);
  CHECK(evaluate_listops(tokens_of("[SM 9 8 7 ]")) == 4);
  CHECK(evaluate_listops(tokens_of("7")) == 7);
  for (const char* text : {"", "]", "[MIN 1 2", "[MIN ]", "1 2", "[MIN 1 ] ]"}) {
    CAPTURE(text);
    CHECK_FALSE(evaluate_listops(tokens_of(text)).has_value());
  }
}

TEST_CASE("official text has one bracket pair per argument and one for the close") {
  const auto tokens = tokens_of("[MIN 3 [SM 1 2 ] ]");
  CHECK(listops_text(tokens) == "( ( ( [MIN 3 ) ( ( ( [SM 1 ) 2 ) ] ) ) ] )");
  CHECK(tokens_of(listops_text(tokens)) == tokens);
  ListOpsSample sample;
  for (uint64_t attempt = 0; attempt < 500; ++attempt) {
    if (draw_listops(3, attempt, sample))
      CHECK(tokens_of(listops_text(sample.tokens)) == sample.tokens);
  }
}

TEST_CASE("the generated set does not depend on the thread count, only on the seed") {
  Folder folder;
  const auto print = [&](const char* name, int threads, uint64_t seed) {
    const auto root = folder.path() / name;
    const TaskInfo& task = small_listops(root, 3000, threads, seed);
    std::string prints;
    for (const char* split : {"train", "dev", "test"}) {
      prints += open(task, root, split).fingerprint() + " ";
    }
    return prints;
  };
  const std::string one = print("one", 1, 1);
  CHECK(one == print("two", 2, 1));
  CHECK(one == print("five", 5, 1));
  CHECK(one != print("other", 2, 2));
}

TEST_CASE("a set of another size than the benchmark's has another name, and says its limit") {
  const Folder folder;
  const TaskInfo& task = small_listops(folder.path(), 60);
  const Dataset train = open(task, folder.path(), "train");
  CHECK(train.name() == "listops-limited");
  CHECK(parse_json(train.provenance()).at("limit") == 60);
}

TEST_CASE("a generated set has distinct examples and right labels") {
  Folder folder;
  const TaskInfo& task = small_listops(folder.path(), 500);
  std::set<std::string> seen;
  for (const char* split : {"train", "dev", "test"}) {
    const Dataset data = open(task, folder.path(), split);
    for (int64_t i = 0; i < data.size(); ++i) {
      const auto tokens = data.tokens(i);
      CHECK(evaluate_listops(tokens) == data.label(i));
      seen.emplace(tokens.begin(), tokens.end());
    }
  }
  CHECK(seen.size() == 500);
}

TEST_CASE("reading an exported set gives the same cache, from CRLF, LF and gzip") {
  Folder folder;
  const auto root = folder.path() / "made", again = folder.path() / "again";
  const TaskInfo& task = small_listops(root, 60);
  const auto dir = folder.path() / "release/lra_release/listops-1000";
  export_official(task, root, dir);
  const std::string official = read_file(dir / "basic_val.tsv");
  CHECK(official.starts_with("Source\tTarget\r\n( ( "));
  CHECK(official.ends_with("\r\n"));

  std::string unix_ends;
  for (const char c : official) {
    if (c != '\r') unix_ends += c;
  }
  std::filesystem::remove(dir / "basic_val.tsv");
  gzFile packed = gzopen((dir / "basic_val.tsv.gz").c_str(), "wb");
  gzwrite(packed, unix_ends.data(), static_cast<unsigned>(unix_ends.size()));
  gzclose(packed);

  PrepareOptions options;
  options.from = folder.path() / "release";
  int warnings = 0;
  options.warn = [&](std::string_view) { ++warnings; };
  prepare(task, again, options);
  CHECK(warnings == 3);  // the sizes are not the official ones
  for (const char* split : {"train", "dev", "test"}) {
    CHECK(open(task, root, split).fingerprint() == open(task, again, split).fingerprint());
  }
  export_official(task, again, folder.path() / "second");
  CHECK(read_file(folder.path() / "second/basic_val.tsv") == official);
}

TEST_CASE("a broken TSV file is refused with file, line and reason") {
  const std::string head = "Source\tTarget\n";
  CHECK(read_text(head + "( ( [MIN 1 ) ] )\t1\n").empty());
  CHECK(read_text(head + "( ( [MIN 1 ) ] )\t1").empty());  // no end of the last line
  CHECK(read_text(head + "5\t7\n").empty());  // a wrong label is reported as a warning only
  CHECK(read_text("") == "basic_train.tsv: empty file");
  CHECK(read_text("label\ttext\n") ==
        "basic_train.tsv:1: header 'label?text', expected 'Source<TAB>Target'");
  CHECK(read_text(head + "1\t1\n2 2\n") ==
        "basic_train.tsv:3: no tab in '2 2', expected source<TAB>label");
  CHECK(read_text(head + "1\t10\n") == "basic_train.tsv:2: label '10', expected 0..9");
  CHECK(read_text(head + "1\t\n") == "basic_train.tsv:2: label '', expected 0..9");
  CHECK(read_text(head + "1\t-\n") == "basic_train.tsv:2: label '-', expected 0..9");
  CHECK(read_text(head + "[FIRST 1 ]\t1\r\n")
            .starts_with("basic_train.tsv:2: unknown token '[FIRST'"));
  CHECK(read_text(head + "12\t1\n").starts_with("basic_train.tsv:2: unknown token '12'"));
  CHECK(read_text(head + "( )\t1\n") == "basic_train.tsv:2: empty expression");
  CHECK(read_text(head + std::string(1, '\0') + "\t1\n").starts_with("basic_train.tsv:2: unknown"));
  CHECK(read_text(head + std::string(20 << 20, '1')) ==
        "basic_train.tsv:2: line of more than 16777216 bytes");
}

TEST_CASE("a missing file of the official set is named with the official address") {
  Folder folder;
  folder.write("a/basic_train.tsv", "Source\tTarget\n1\t1\n");
  folder.write("a/basic_val.tsv", "Source\tTarget\n1\t1\n");
  PrepareOptions options;
  options.from = folder.path();
  const std::string text =
      error_of<DataError>([&] { prepare(find_task("listops"), folder.path() / "root", options); });
  CHECK(text.find("basic_test.tsv missing below") != std::string::npos);
  CHECK(text.find("lra_release.gz") != std::string::npos);
  CHECK_FALSE(is_prepared(find_task("listops"), folder.path() / "root"));
}

TEST_CASE("the official generator's examples have their published lengths, labels and values") {
  const auto data = real_data_or_skip("listops");
  if (!data) return;
  Folder folder;
  const auto train = folder.write("tsv/basic_train.tsv", "Source\tTarget\n1\t1\n");
  for (const char* file : {"basic_val.tsv.gz", "basic_test.tsv.gz"}) {
    std::filesystem::copy_file(*data / file, train.parent_path() / file);
  }
  PrepareOptions options;
  options.from = train.parent_path();
  std::string warnings;
  options.warn = [&](std::string_view text) { warnings += text; };
  const TaskInfo& task = find_task("listops");
  prepare(task, folder.path(), options);
  CHECK(warnings.find("not the value") == std::string::npos);
  CHECK(warnings.find("basic_val") == std::string::npos);  // 2000 examples, as expected
  const Description facts = describe(task, folder.path());
  const auto check = [&](int split, double mean, int shortest, int longest, double without_close,
                         const std::vector<int64_t>& labels) {
    const SplitFacts& f = facts.splits[split];
    CHECK(f.examples == 2000);
    CHECK(f.mean_length == doctest::Approx(mean).epsilon(5e-5));
    CHECK(f.min_length == shortest);
    CHECK(f.max_length == longest);
    CHECK(f.label_counts == labels);
    const Dataset set = open(task, folder.path(), f.split);
    double closes = 0;
    for (int64_t i = 0; i < set.size(); ++i) {
      const auto tokens = set.tokens(i);
      closes += static_cast<double>(std::count(tokens.begin(), tokens.end(), kListOpsClose));
      CHECK(evaluate_listops(tokens) == set.label(i));
    }
    CHECK(f.mean_length - closes / 2000 == doctest::Approx(without_close).epsilon(6e-5));
  };
  check(1, 1040.5, 501, 1996, 892.5, {304, 190, 152, 198, 179, 179, 154, 135, 188, 321});
  check(2, 1043.8, 501, 1998, 895.2, {339, 157, 160, 168, 186, 166, 144, 142, 185, 353});
  for (const char* digest : {"26cc59d4b7c9d4348e03a4d75edf4219d64bb2f91c95d47e60d317699a5bbc0d",
                             "33da347e5bd792bf23c57f9946288abf928c5fc0bf9fa53f63928bd1eb999438"}) {
    CHECK(facts.provenance.find(digest) != std::string::npos);
  }
}
