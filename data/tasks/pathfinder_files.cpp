#include "data/tasks/pathfinder_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>

#include "data/cache/cache.hpp"
#include "data/files/json.hpp"
#include "data/files/output.hpp"
#include "data/files/png.hpp"
#include "data/files/printable.hpp"
#include "data/pathfinder/pathfinder.hpp"
#include "data/random.hpp"
#include "data/tasks/build.hpp"
#include "tensor/core/error.hpp"

namespace skytape::data {
namespace {

constexpr int64_t kOfficialImages = 200000;
constexpr int64_t kImagesPerFolder = 1000;
constexpr size_t kMetadataFields = 11;
constexpr size_t kMaxFile = 64 << 20;

struct Difficulty {
  int side, contour_length;
  std::string folder;  // the release's name of the difficulty
};

Difficulty difficulty_of(const TaskInfo& task) {
  const int side = task.nominal_length == 1024 ? 32 : 128;
  if (task.name.ends_with("-easy")) return {side, 6, "curv_baseline"};
  if (task.name.ends_with("-intermediate")) return {side, 9, "curv_contour_length_9"};
  return {side, 14, "curv_contour_length_14"};
}

/// Image i goes where a seeded permutation sends it: 80 % train, 10 % dev, 10 % test.
const char* split_of(int64_t i, int64_t count, uint64_t seed) {
  const auto rank = static_cast<int64_t>(Permutation(count, seed, 3)(i));
  return rank < count - 2 * (count / 10) ? "train" : rank < count - count / 10 ? "dev" : "test";
}

// ---- metadata ----------------------------------------------------------------------------------

PathfinderRow to_row(const std::vector<std::string>& field, const std::string& where) {
  if (field.size() != kMetadataFields) {
    throw DataError(
        fmt::format("{}: {} fields, expected {}", where, field.size(), kMetadataFields));
  }
  if (field[3] != "0" && field[3] != "1") {
    throw DataError(fmt::format("{}: label '{}', expected 0 or 1", where, printable(field[3])));
  }
  return {field[0] + "/" + field[1], field[3] == "1" ? 1 : 0};
}

std::vector<PathfinderRow> read_text(std::span<const uint8_t> bytes, const std::string& name) {
  const auto stream = open_memory(bytes);
  constexpr size_t kMaxRow = 4096;
  LineReader lines(*stream, name, kMaxRow);
  std::vector<PathfinderRow> rows;
  for (std::string_view line; lines.next(line);) {
    std::vector<std::string_view> parts = split(line, ' ');
    std::erase(parts, "");
    if (parts.empty()) continue;
    rows.push_back(
        to_row({parts.begin(), parts.end()}, fmt::format("{}:{}", name, lines.line_number())));
  }
  return rows;
}

/// The number that follows `key` in the header's dictionary, or -1.
int64_t number_after(std::string_view header, std::string_view key, size_t* end) {
  const size_t at = header.find(key, *end);
  if (at == std::string_view::npos) return -1;
  int64_t value = -1;
  const char* const begin = header.data() + at + key.size();
  const auto [stop, error] = std::from_chars(begin, header.data() + header.size(), value);
  *end = stop - header.data();
  return error == std::errc() ? value : -1;
}

/// NumPy format 1.0: an array `<U<width>` of shape (rows, 11), UTF-32, padded with zeros.
std::vector<PathfinderRow> read_numpy(std::span<const uint8_t> bytes, const std::string& name) {
  constexpr size_t kPrefix = 10;  // magic, version, header length
  if (bytes.size() < kPrefix) throw DataError(name + ": truncated NumPy header");
  const size_t length = bytes[8] | bytes[9] << 8;
  if (bytes.size() < kPrefix + length) throw DataError(name + ": truncated NumPy header");
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + kPrefix, length);
  size_t at = 0, dims = 0;
  const int64_t width = number_after(header, "'<U", &at);
  const int64_t count = number_after(header, "'shape': (", &dims);
  const int64_t fields = number_after(header, ", ", &dims);
  const bool row_major = header.find("'fortran_order': False") != std::string_view::npos;
  constexpr int64_t kMost = 1 << 24;
  if (width < 1 || width > 4096 || count < 0 || count > kMost || !row_major ||
      fields != static_cast<int64_t>(kMetadataFields)) {
    throw DataError(fmt::format("{}: NumPy header '{}', expected strings of shape (rows, {})", name,
                                printable(header, 100), kMetadataFields));
  }
  const auto body = bytes.subspan(kPrefix + length);
  const size_t cell = 4 * static_cast<size_t>(width), row = cell * kMetadataFields;
  if (body.size() != row * static_cast<size_t>(count)) {
    throw DataError(fmt::format("{}: {} bytes of strings, expected {}", name, body.size(),
                                row * static_cast<size_t>(count)));
  }
  std::vector<PathfinderRow> rows;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<std::string> field(kMetadataFields);
    for (size_t f = 0; f < kMetadataFields; ++f) {
      const uint8_t* character = body.data() + i * row + f * cell;
      for (int64_t c = 0; c < width; ++c, character += 4) {
        uint32_t code;
        std::memcpy(&code, character, sizeof code);
        if (code == 0) break;
        field[f] += code < 128 ? static_cast<char>(code) : '?';
      }
    }
    rows.push_back(to_row(field, fmt::format("{}: row {}", name, i)));
  }
  return rows;
}

// ---- reading a folder or an archive ------------------------------------------------------------

/// The place of a file of the wanted set: the difficulty's folder and the rest of the path.
struct Place {
  std::string folder, rest;
};

/// The part of a path behind the difficulty's folder; nothing if it is another set.
std::optional<Place> place_of(const SourceFile& file, const Difficulty& difficulty) {
  // With --from inside the set, its folders stand in the outer path only.
  const std::string path = "/" + file.shown;
  const std::string key = "/" + difficulty.folder + "/";
  const size_t at = path.rfind(key);
  if (at == std::string::npos) return {};
  const size_t size = path.rfind("/pathfinder", at);
  if (size != std::string::npos) {  // pathfinder32, pathfinder128, …: another size is another set
    const size_t digits = size + std::strlen("/pathfinder");
    const size_t end = std::min(path.find('/', digits), path.size());
    const std::string number = path.substr(digits, end - digits);
    const bool numeric =
        !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
    if (numeric && number != std::to_string(difficulty.side)) return {};
  }
  std::string rest = path.substr(at + key.size());
  if (rest.ends_with(".gz")) rest.resize(rest.size() - 3);
  return Place{path.substr(1, at + key.size() - 1), std::move(rest)};
}

/// Metadata of one set, its images in numeric order: folder, then sample.
struct Index {
  std::string folder;
  std::map<std::string, std::pair<int64_t, int>> images;  // path -> number, label
};

std::pair<int64_t, int64_t> numbers_in(std::string_view path) {
  const auto number = [](std::string_view text) {
    int64_t value = 0;
    for (const char c : text) {
      if (c >= '0' && c <= '9') value = std::min<int64_t>(value * 10 + (c - '0'), 1 << 30);
    }
    return value;
  };
  return {number(parent(path)), number(leaf(path))};
}

Index read_index(const TaskInfo& task, const PrepareOptions& options,
                 const Difficulty& difficulty) {
  std::map<std::string, std::vector<PathfinderRow>> found;  // by folder
  visit_files(
      options.from,
      [&](const SourceFile& file) {
        const auto place = place_of(file, difficulty);
        return place && place->rest.starts_with("metadata/") && place->rest.ends_with(".npy");
      },
      [&](const SourceFile& file, ByteStream& stream) {
        auto& rows = found[place_of(file, difficulty)->folder];
        const auto bytes = read_all(stream, file.shown, kMaxFile);
        const auto more = read_pathfinder_metadata(bytes, file.shown);
        rows.insert(rows.end(), more.begin(), more.end());
      });
  if (found.empty()) {
    throw DataError(
        fmt::format("{}: no pathfinder{}/{}/metadata/*.npy below {}; get it from {} or "
                    "generate it: make data TASK={}",
                    task.name, difficulty.side, difficulty.folder, options.from.string(),
                    task.source, task.name));
  }
  // The release holds a second, suspect copy of the 128 set deeper down: take the outermost.
  const auto depth = [](const std::string& path) {
    return std::count(path.begin(), path.end(), '/');
  };
  auto best = found.begin();
  for (auto at = found.begin(); at != found.end(); ++at) {
    if (depth(at->first) < depth(best->first)) best = at;
  }
  if (found.size() > 1) {
    options.warn(fmt::format("{} copies of {} found; reading {}", found.size(), difficulty.folder,
                             best->first));
  }
  auto& rows = best->second;
  std::sort(rows.begin(), rows.end(), [](const PathfinderRow& a, const PathfinderRow& b) {
    return std::pair(numbers_in(a.path), a.path) < std::pair(numbers_in(b.path), b.path);
  });
  Index index{best->first, {}};
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool fresh =
        index.images.try_emplace(rows[i].path, static_cast<int64_t>(i), rows[i].label).second;
    if (!fresh) throw DataError(fmt::format("{}: {} is listed twice", best->first, rows[i].path));
  }
  return index;
}

void read_files(const TaskInfo& task, const PrepareOptions& options, CacheSet& set) {
  const Difficulty difficulty = difficulty_of(task);
  const Index index = read_index(task, options, difficulty);
  const auto total = static_cast<int64_t>(index.images.size());
  int64_t read = 0;
  Sha256 digest;
  visit_files(
      options.from,
      [&](const SourceFile& file) {
        const auto place = place_of(file, difficulty);
        return place && place->folder == index.folder && index.images.contains(place->rest);
      },
      [&](const SourceFile& file, ByteStream& stream) {
        const auto [number, label] = index.images.at(place_of(file, difficulty)->rest);
        const auto bytes = read_all(stream, file.shown, kMaxFile);
        ++read;
        if (bytes.empty()) return options.warn(file.shown + ": empty file, skipped");
        const GrayImage image = decode_png(bytes, file.shown);
        if (image.height != difficulty.side || image.width != difficulty.side) {
          throw DataError(fmt::format("{}: image of {}x{} pixels, expected {}x{}", file.shown,
                                      image.height, image.width, difficulty.side, difficulty.side));
        }
        digest.update(image.pixels);
        set.split(split_of(number, total, options.data_seed)).add(label, image.pixels);
        if (read % 1000 == 0) options.progress("reading images", read, total);
      });
  if (read != total) {
    throw DataError(fmt::format("{}: {} of the {} images that its metadata lists are missing",
                                index.folder, total - read, total));
  }
  if (total != kOfficialImages) {
    options.warn(fmt::format("{}: {} images, the official set has {}", index.folder, total,
                             kOfficialImages));
  }
  set.provenance = json_text({{"how", "read"},
                              {"images", total},
                              {"sha256_pixels", digest.hex()},
                              {"data_seed", options.data_seed}});
}

// ---- generating --------------------------------------------------------------------------------

void generate(const TaskInfo& task, const PrepareOptions& options, CacheSet& set) {
  const Difficulty difficulty = difficulty_of(task);
  const PathfinderGenerator generator(
      pathfinder_parameters(difficulty.side, difficulty.contour_length));
  const int64_t total = options.limit > 0 ? options.limit : kOfficialImages;
  if (total < 10) {
    throw UsageError(fmt::format("{}: limit is {}, expected at least 10", task.name, total));
  }
  std::vector<PathfinderImage> images(256);
  for (int64_t begin = 0; begin < total; begin += static_cast<int64_t>(images.size())) {
    const int64_t count = std::min<int64_t>(total - begin, images.size());
#pragma omp parallel for schedule(dynamic, 4) num_threads(thread_count(options))
    for (int64_t i = 0; i < count; ++i) generator.draw(options.data_seed, begin + i, images[i]);
    for (int64_t i = 0; i < count; ++i) {
      set.split(split_of(begin + i, total, options.data_seed))
          .add(images[i].label, images[i].pixels);
    }
    options.progress("generating images", begin + count, total);
  }
  Json provenance = {
      {"side", difficulty.side}, {"contour_length", difficulty.contour_length}, {"images", total}};
  if (total != kOfficialImages) call_limited(total, set, provenance);
  set.provenance = json_text(provenance);
}

}  // namespace

std::vector<PathfinderRow> read_pathfinder_metadata(std::span<const uint8_t> bytes,
                                                    const std::string& name) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                               std::min(bytes.size(), kMagic.size()));
  auto rows = start == kMagic ? read_numpy(bytes, name) : read_text(bytes, name);
  if (rows.empty()) throw DataError(name + ": no row");
  return rows;
}

namespace {

/// Generates 200,000 images, or reads `pathfinder<side>/curv_…/{imgs,metadata}` at any depth of
/// `options.from`. Size and difficulty follow from the task; splits are a seeded 80/10/10.
void build_pathfinder(const TaskInfo& task, const PrepareOptions& options, CacheSet& set) {
  if (options.from.empty()) return generate(task, options, set);
  read_files(task, options, set);
}

/// Writes a generated set in the official layout, metadata as text: all of it or nothing.
/// UsageError if the set was read, or the difficulty's folder exists.
void export_pathfinder(const TaskInfo& task, const std::filesystem::path& root,
                       const std::filesystem::path& dir) {
  const Dataset any = open(task, root, "train");
  const auto facts = parse_json(any.provenance());
  if (facts.value("how", "") != "generated") {
    throw UsageError(fmt::format("{}: only a generated set can be exported", task.name));
  }
  const Difficulty difficulty = difficulty_of(task);
  const PathfinderParameters p = pathfinder_parameters(difficulty.side, difficulty.contour_length);
  const PathfinderGenerator generator(p);
  const int64_t total = facts.at("images").get<int64_t>();
  const uint64_t seed = facts.at("data_seed").get<uint64_t>();
  OutputFolder folder(dir / fmt::format("pathfinder{}", difficulty.side) / difficulty.folder);
  std::vector<PathfinderImage> images(kImagesPerFolder);
  for (int64_t k = 0; k * kImagesPerFolder < total; ++k) {
    const int64_t begin = k * kImagesPerFolder, count = std::min(kImagesPerFolder, total - begin);
#pragma omp parallel for schedule(dynamic, 4)
    for (int64_t n = 0; n < count; ++n) generator.draw(seed, begin + n, images[n]);
    std::string metadata;
    for (int64_t n = 0; n < count; ++n) {
      folder.write(fmt::format("imgs/{}/sample_{}.png", k, n),
                   encode_png(images[n].pixels, p.side, p.side));
      metadata += fmt::format("imgs/{} sample_{}.png {} {} {:.1f} {} {} {} {} {} 1\n", k, n, n,
                              images[n].label, p.continuity, p.contour_length, p.distractor_length,
                              p.dash_length, p.dash_thickness, images[n].margin);
    }
    folder.write(fmt::format("metadata/{}.npy", k), metadata);
  }
  folder.commit();
}

TaskInfo easier(TaskInfo task, std::string_view name, std::string_view description) {
  task.name = name;
  task.description = description;
  task.benchmark = false;
  return task;
}

}  // namespace

TaskInfo pathfinder_task() {
  return {.name = "pathfinder",
          .description = "do two dots lie on one dashed curve? 32x32 pixels",
          .tokens = TokenKind::pixels,
          .max_length = 32 * 32,
          .nominal_length = 32 * 32,
          .generator = "official Pathfinder algorithm, version 2",
          .benchmark = true,
          .source = kLraArchive,
          .build = build_pathfinder,
          .export_files = export_pathfinder};
}

TaskInfo pathx_task() {
  TaskInfo task = pathfinder_task();
  task.name = "pathx";
  task.description = "the same, 128x128 pixels";
  task.max_length = task.nominal_length = 128 * 128;
  return task;
}

TaskInfo pathfinder_easy_task() {
  return easier(pathfinder_task(), "pathfinder-easy", "pathfinder with 6 dashes per curve");
}
TaskInfo pathfinder_intermediate_task() {
  return easier(pathfinder_task(), "pathfinder-intermediate", "pathfinder with 9 dashes per curve");
}
TaskInfo pathx_easy_task() {
  return easier(pathx_task(), "pathx-easy", "pathx with 6 dashes per curve");
}
TaskInfo pathx_intermediate_task() {
  return easier(pathx_task(), "pathx-intermediate", "pathx with 9 dashes per curve");
}

}  // namespace skytape::data
