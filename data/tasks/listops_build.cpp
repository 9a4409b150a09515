// Filling the ListOps cache: by generating, or from the official TSV files.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <unordered_set>

#include "data/cache/cache.hpp"
#include "data/cache/dataset.hpp"
#include "data/files/json.hpp"
#include "data/files/output.hpp"
#include "data/files/printable.hpp"
#include "data/tasks/build.hpp"
#include "data/tasks/listops.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

constexpr int64_t kTrain = 96000, kDev = 2000, kTest = 2000;  // the benchmark's sizes
constexpr int64_t kAll = kTrain + kDev + kTest;
constexpr uint64_t kAttemptsPerTask = 512;  // one tree in twelve is kept
constexpr uint64_t kTasksPerRound = 64;

/// Trees kept from one run of attempts, in order.
struct Drawn {
  std::vector<uint8_t> tokens;
  std::vector<size_t> ends;
  std::vector<int> labels;
};

Drawn draw_task(uint64_t seed, uint64_t task) {
  Drawn drawn;
  ListOpsSample sample;
  for (uint64_t i = 0; i < kAttemptsPerTask; ++i) {
    if (!draw_listops(seed, task * kAttemptsPerTask + i, sample)) continue;
    drawn.tokens.insert(drawn.tokens.end(), sample.tokens.begin(), sample.tokens.end());
    drawn.ends.push_back(drawn.tokens.size());
    drawn.labels.push_back(sample.label);
  }
  return drawn;
}

void generate(const PrepareOptions& options, CacheSet& set) {
  const int64_t total = options.limit > 0 ? options.limit : kAll;
  const int64_t dev = options.limit > 0 ? std::max<int64_t>(1, total / 50) : kDev;
  if (total < 3) {
    throw UsageError(fmt::format("listops: limit is {}, expected at least 3", total));
  }
  std::unordered_set<uint64_t> seen;  // official sets hold no expression twice
  int64_t kept = 0;
  for (uint64_t round = 0; kept < total; ++round) {
    std::vector<Drawn> drawn(kTasksPerRound);
#pragma omp parallel for schedule(dynamic) num_threads(thread_count(options))
    for (uint64_t t = 0; t < kTasksPerRound; ++t) {
      drawn[t] = draw_task(options.data_seed, round * kTasksPerRound + t);
    }
    for (const Drawn& part : drawn) {
      for (size_t i = 0; i < part.labels.size() && kept < total; ++i) {
        const size_t begin = i == 0 ? 0 : part.ends[i - 1];
        const auto tokens = std::span(part.tokens).subspan(begin, part.ends[i] - begin);
        if (!seen.insert(checksum(tokens)).second) continue;
        const int split = kept < total - 2 * dev ? 0 : kept < total - dev ? 1 : 2;
        set.split(kSplits[split]).add(part.labels[i], tokens);
        ++kept;
      }
    }
    options.progress("generating expressions", kept, total);
  }
  Json provenance = {{"max_depth", 10},
                     {"max_args", 10},
                     {"min_length", 500},
                     {"max_length", 2000},
                     {"examples", total}};
  if (total != kAll) call_limited(total, set, provenance);
  set.provenance = json_text(provenance);
}

}  // namespace

void read_listops(ByteStream& stream, const std::string& name, CacheWriter& out,
                  const std::function<void(std::string_view)>& warn) {
  LineReader lines(stream, name, kMaxLine);
  std::string_view line;
  if (!lines.next(line)) throw DataError(name + ": empty file");
  if (line != "Source\tTarget") {
    lines.fail(fmt::format("header '{}', expected 'Source<TAB>Target'", printable(line)));
  }
  std::vector<uint8_t> tokens;
  int64_t wrong = 0, first_wrong = 0;
  while (lines.next(line)) {
    const size_t tab = line.find('\t');
    if (tab == std::string_view::npos) {
      lines.fail(fmt::format("no tab in '{}', expected source<TAB>label", printable(line)));
    }
    const std::string_view label = line.substr(tab + 1);
    if (label.size() != 1 || label[0] < '0' || label[0] > '9') {
      lines.fail(fmt::format("label '{}', expected 0..9", printable(label)));
    }
    tokens.clear();
    const std::string_view unknown = parse_listops(line.substr(0, tab), tokens);
    if (!unknown.empty()) {
      lines.fail(fmt::format("unknown token '{}', expected {}", printable(unknown), kListOpsSpelt));
    }
    if (tokens.empty()) lines.fail("empty expression");
    if (evaluate_listops(tokens) != label[0] - '0' && wrong++ == 0) {
      first_wrong = lines.line_number();
    }
    out.add(label[0] - '0', tokens);
  }
  if (wrong > 0 && warn) {
    warn(fmt::format("{}:{}: the label is not the value of the expression ({} such examples)", name,
                     first_wrong, wrong));
  }
}

namespace {

/// Generates, or reads `basic_{train,val,test}.tsv` below `options.from`.
void build_listops(const TaskInfo& task, const PrepareOptions& options, CacheSet& set) {
  if (options.from.empty()) return generate(options, set);
  const std::vector<std::string> names = {"basic_train.tsv", "basic_val.tsv", "basic_test.tsv"};
  const auto sources = read_named_files(
      task, options, names, [&](std::string_view name, const SourceFile& file, ByteStream& stream) {
        const bool train = name == names[0], dev = name == names[1];
        CacheWriter& out = set.split(train ? "train" : dev ? "dev" : "test");
        read_listops(stream, file.shown, out, options.warn);
        const int64_t official = train ? kTrain : dev ? kDev : kTest;
        if (out.examples() != official) {
          options.warn(fmt::format("{}: {} examples, the official file has {}", file.shown,
                                   out.examples(), official));
        }
      });
  set.provenance = json_text({{"how", "read"}, {"sources", sources}});
}

/// Writes `basic_{train,val,test}.tsv` of the prepared set into `dir`.
void export_listops(const TaskInfo& task, const std::filesystem::path& root,
                    const std::filesystem::path& dir) {
  make_folder(dir);
  std::deque<OutputFile> files;  // none is there unless all could be written
  for (const auto& [split, name] :
       {std::pair("train", "basic_train.tsv"), std::pair("dev", "basic_val.tsv"),
        std::pair("test", "basic_test.tsv")}) {
    const Dataset data = open(task, root, split);
    OutputFile& file = files.emplace_back(dir / name);
    file.write("Source\tTarget\r\n");
    for (int64_t i = 0; i < data.size(); ++i) {
      file.write(fmt::format("{}\t{}\r\n", listops_text(data.tokens(i)), data.label(i)));
    }
  }
  for (OutputFile& file : files) file.sync();
  for (OutputFile& file : files) file.commit();
}

}  // namespace

TaskInfo listops_task() {
  return {.name = "listops",
          .description = "value of a nested expression of list operations",
          .tokens = TokenKind::symbols,
          .classes = 10,
          .vocabulary = 32,
          .symbols = kListOpsClose,
          .spelt = kListOpsSpelt,
          .max_length = 2000,
          .nominal_length = 2048,
          .generator = "official ListOps algorithm, version 1",
          .benchmark = true,
          .source = kLraArchive,
          .build = build_listops,
          .export_files = export_listops,
          .parse = parse_listops,
          .closing_symbol = kListOpsClose};
}

}  // namespace skytape::data
