#include "data/tasks/pathfinder_files.hpp"

#include <signal.h>

#include <chrono>
#include <thread>

#include "data/files/digest.hpp"
#include "data/files/png.hpp"
#include "tests/data/real_data.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/program.hpp"

using namespace skytape;
using namespace skytape::data;
using namespace skytape::data::synthetic;
using test::contains;

namespace {

const TaskInfo& small_pathfinder(const std::filesystem::path& root, int threads,
                                 const char* name = "pathfinder", int images = 40) {
  const TaskInfo& task = find_task(name);
  PrepareOptions options;
  options.limit = images;
  options.threads = threads;
  prepare(task, root, options);
  return task;
}

std::string prints(const TaskInfo& task, const std::filesystem::path& root) {
  std::string all;
  for (const char* split : {"train", "dev", "test"}) all += open(task, root, split).fingerprint();
  return all;
}

using Warnings = std::vector<std::string>;

std::string preparing(const TaskInfo& task, const std::filesystem::path& from,
                      const std::filesystem::path& root, Warnings* warnings = nullptr) {
  PrepareOptions options;
  options.from = from;
  options.force = true;
  options.warn = [&](std::string_view text) {
    if (warnings) warnings->emplace_back(text);
  };
  return error_of([&] { prepare(task, root, options); });
}

std::vector<std::string> arguments(const std::filesystem::path& root,
                                   std::vector<std::string> more) {
  more.insert(more.begin(),
              {"data", "--task", "pathfinder", "--threads", "1", "--data", root.string()});
  return more;
}

std::string metadata_error(const std::string& bytes) {
  return error_of<DataError>([&] { (void)read_pathfinder_metadata(as_bytes(bytes), "0.npy"); });
}

/// The rows of a text file as NumPy would save them: an array of fixed-width UTF-32 strings.
std::string as_numpy(const std::string& text, int rows) {
  constexpr int kWidth = 16;
  std::string header =
      "{'descr': '<U16', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", 11), }";
  header.resize(117, ' ');
  header += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += {'\1', '\0', static_cast<char>(header.size()), '\0'};
  bytes += header;
  std::string cell;
  for (const char c : text) {
    if (c != ' ' && c != '\n') {
      cell += {c, '\0', '\0', '\0'};
      continue;
    }
    cell.resize(kWidth * 4, '\0');
    bytes += cell;
    cell.clear();
  }
  return bytes;
}

const std::string kRow = "imgs/0 sample_0.png 0 1 1.0 14 4 2 0.5 1 1\n";

}  // namespace

TEST_CASE("a generated set does not depend on the thread count and survives export and import") {
  for (const int side : {32, 128}) {
    CAPTURE(side);
    const char* const name = side == 32 ? "pathfinder" : "pathx";
    const int images = side == 32 ? 40 : 10;
    Folder folder;
    const auto one = folder.path() / "one";
    const TaskInfo& task = small_pathfinder(one, 1, name, images);
    small_pathfinder(folder.path() / "two", 2, name, images);
    CHECK(prints(task, one) == prints(task, folder.path() / "two"));
    CHECK(open(task, one, "train").size() == images - images / 5);
    CHECK(open(task, one, "dev").size() == images / 10);
    const auto files = folder.path() / "files";
    export_official(task, one, files);
    const auto size = files / ("pathfinder" + std::to_string(side));
    const auto set = size / "curv_contour_length_14";
    CHECK(read_file(set / "metadata/0.npy").starts_with("imgs/0 sample_0.png 0 "));
    Warnings warnings;
    for (const auto& from : {files, size, set}) {
      CHECK(preparing(task, from, folder.path() / "again", &warnings).empty());
      CHECK(prints(task, one) == prints(task, folder.path() / "again"));
    }
    REQUIRE(warnings.size() == 3);
    CHECK(contains(warnings[0], " images, the official set has 200000"));
    const TaskInfo& other = find_task(side == 32 ? "pathx" : "pathfinder");
    CHECK(
        contains(preparing(other, files, folder.path() / "x"), "/curv_contour_length_14/metadata"));
    CHECK_FALSE(is_prepared(other, folder.path() / "x"));
  }
}

TEST_CASE("fewer than ten images cannot be split and are refused as wrong use") {
  Folder folder;
  PrepareOptions options;
  options.limit = 9;
  CHECK(error_of<UsageError>([&] { prepare(find_task("pathx"), folder.path(), options); }) ==
        "pathx: limit is 9, expected at least 10");
  CHECK_FALSE(is_prepared(find_task("pathx"), folder.path()));
}

TEST_CASE("an export is whole or not there, and replaces nothing") {
  Folder folder;
  const auto root = folder.path() / "made", files = folder.path() / "files";
  const TaskInfo& task = small_pathfinder(root, 1);
  export_official(task, root, files);
  const auto set = files / "pathfinder32/curv_contour_length_14";
  const std::string metadata = read_file(set / "metadata/0.npy");
  CHECK(contains(error_of<UsageError>([&] { export_official(task, root, files); }),
                 "curv_contour_length_14: is there already"));
  CHECK(read_file(set / "metadata/0.npy") == metadata);
  // The files that a killed export leaves are not taken for a set.
  std::filesystem::rename(set, files / "pathfinder32/.curv_contour_length_14.77.tmp");
  CHECK(contains(preparing(task, files, folder.path() / "again"), "no pathfinder32/"));
  if (test::program_or_skip()) {
    const auto full = test::run_program(
        folder.path(), arguments(root, {"--export", (folder.path() / "full").string()}),
        {.largest_file = 200});
    CHECK(full.code == 1);
    CHECK(contains(full.err, "sample_0.png: cannot write to it"));
    CHECK(std::filesystem::is_empty(folder.path() / "full/pathfinder32"));
  }
}

TEST_CASE(
    "a set that was read is not exported, one made by another version of the generator not "
    "opened") {
  Folder folder;
  const TaskInfo& task = find_task("pathfinder");
  const auto exporting = [&](const char* provenance) {
    CacheSet set(task.name, folder.path() / task.name, 1, 0);
    set.classes = 2;
    set.provenance = provenance;
    for (const char* split : {"train", "dev", "test"}) {
      set.split(split).add(1, std::vector<uint8_t>(1024));
    }
    set.commit();
    return error_of([&] { export_official(task, folder.path(), folder.path() / "files"); });
  };
  CHECK(exporting(R"({"how": "read"})") == "pathfinder: only a generated set can be exported");
  CHECK(contains(exporting(R"({"how": "generated", "generator": "version 0"})"),
                 "train.skydata: made by 'version 0', expected 'official Pathfinder"));
  CHECK(contains(error_of<DataError>([&] { (void)open(task, folder.path(), "dev"); }),
                 "type: make data TASK=pathfinder ARGS=--force"));
  CHECK_FALSE(std::filesystem::exists(folder.path() / "files"));
}

TEST_CASE("a killed generation leaves nothing that looks complete, and the next one is whole") {
  if (!test::program_or_skip()) return;
  Folder folder;
  const auto root = folder.path() / "killed";
  const auto half_written = root / "pathfinder/train.skydata.tmp";
  test::Program program(folder.path(), arguments(root, {"--limit", "200000"}));
  while (program.running() && !std::filesystem::exists(half_written)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  program.kill(SIGKILL);
  CHECK(program.wait().code == 128 + SIGKILL);
  const TaskInfo& task = find_task("pathfinder");
  CHECK(std::filesystem::exists(half_written));
  CHECK_FALSE(is_prepared(task, root));
  CHECK(contains(error_of<DataError>([&] { (void)open(task, root, "train"); }), "not prepared"));
  small_pathfinder(root, 1);
  small_pathfinder(folder.path() / "undisturbed", 1);
  CHECK(prints(task, root) == prints(task, folder.path() / "undisturbed"));
  CHECK_FALSE(std::filesystem::exists(half_written));
}

TEST_CASE("two processes that generate into one folder end in one good set") {
  if (!test::program_or_skip()) return;
  Folder folder;
  const auto root = folder.path() / "both";
  std::vector<std::unique_ptr<test::Program>> programs;
  for (const char* name : {"a", "b"}) {
    const auto scratch = folder.path() / name;
    std::filesystem::create_directories(scratch);
    programs.push_back(
        std::make_unique<test::Program>(scratch, arguments(root, {"--limit", "400", "--force"})));
  }
  for (const auto& program : programs) CHECK(program->wait().code == 0);
  const auto alone = folder.path() / "alone";
  const TaskInfo& task = small_pathfinder(alone, 1, "pathfinder", 400);
  CHECK(prints(task, root) == prints(task, alone));
  for (const auto& entry : std::filesystem::directory_iterator(root / "pathfinder")) {
    CHECK(entry.path().extension() != ".tmp");
  }
}

TEST_CASE("both metadata encodings say the same") {
  const std::string text = kRow + "imgs/0 sample_1.png 1 0 1.0 14 4 2 0.5 1 1\n";
  const auto a = read_pathfinder_metadata(as_bytes(text), "x");
  const std::string numpy = as_numpy(text, 2);
  const auto b = read_pathfinder_metadata(as_bytes(numpy), "x");
  REQUIRE(a.size() == 2);
  REQUIRE(b.size() == 2);
  for (int i = 0; i < 2; ++i) {
    CHECK(a[i].path == "imgs/0/sample_" + std::to_string(i) + ".png");
    CHECK(a[i].path == b[i].path);
    CHECK(a[i].label == 1 - i);
    CHECK(b[i].label == a[i].label);
  }
}

TEST_CASE("broken metadata is refused with file and row") {
  CHECK(metadata_error("") == "0.npy: no row");
  CHECK(metadata_error("imgs/0 sample_0.png 0 1\n") == "0.npy:1: 4 fields, expected 11");
  CHECK(metadata_error(kRow + "imgs/0 s.png 0 2 1.0 14 4 2 0.5 1 1\n") ==
        "0.npy:2: label '2', expected 0 or 1");
  const std::string numpy = as_numpy(kRow, 1);
  CHECK(metadata_error(numpy).empty());
  for (const size_t size : {6, 9, 50, 127, 200}) {
    CHECK(metadata_error(numpy.substr(0, size)).starts_with("0.npy: "));
  }
  std::string wide = numpy;
  wide.replace(wide.find("<U16"), 4, "<U99");
  CHECK(metadata_error(wide).find("bytes of strings") != std::string::npos);
  std::string floats = numpy;
  floats.replace(floats.find("<U16"), 4, "<f16");
  CHECK(metadata_error(floats).find("NumPy header") != std::string::npos);
}

TEST_CASE("PNG files round-trip, broken ones are refused by name") {
  std::vector<uint8_t> pixels(6 * 4);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(11 * i);
  const std::string good = encode_png(pixels, 6, 4);
  const GrayImage image = decode_png(as_bytes(good), "x.png");
  CHECK(image.height == 6);
  CHECK(image.width == 4);
  CHECK(image.pixels == pixels);
  const auto text_of = [](const std::string& bytes) {
    return error_of<DataError>([&] { (void)decode_png(as_bytes(bytes), "x.png"); });
  };
  CHECK(text_of("") == "x.png: not a PNG file");
  CHECK(text_of("GIF89a, certainly").find("not a PNG") != std::string::npos);
  for (size_t size = 8; size < good.size(); size += 5)
    CHECK(text_of(good.substr(0, size)).starts_with("x.png: broken PNG: "));
}

TEST_CASE("empty images are skipped with a warning, missing, wrong-sized and cut ones refused") {
  Folder folder;
  const auto made = folder.path() / "made";
  const TaskInfo& task = small_pathfinder(made, 1);
  export_official(task, made, folder.path() / "files");
  const auto from = folder.path() / "files", root = folder.path() / "root";
  const std::string name = "files/pathfinder32/curv_contour_length_14/imgs/0/sample_7.png";
  const std::string good = read_file(folder.path() / name);
  Warnings warnings;
  folder.write(name, "");
  CHECK(preparing(task, from, root, &warnings).empty());
  REQUIRE(warnings.size() == 2);
  CHECK(contains(warnings[0], "imgs/0/sample_7.png: empty file, skipped"));
  int64_t total = 0;
  for (const char* split : {"train", "dev", "test"}) total += open(task, root, split).size();
  CHECK(total == 39);
  folder.write(name, good.substr(0, good.size() / 2));
  CHECK(contains(preparing(task, from, root), "imgs/0/sample_7.png: broken PNG"));
  folder.write(name, encode_png(std::vector<uint8_t>(64), 8, 8));
  CHECK(contains(preparing(task, from, root),
                 "imgs/0/sample_7.png: image of 8x8 pixels, expected 32x32"));
  std::filesystem::remove(folder.path() / name);
  CHECK(contains(preparing(task, from, root),
                 "1 of the 40 images that its metadata lists are missing"));
  folder.write(name, good);
  const std::string metadata = "files/pathfinder32/curv_contour_length_14/metadata/0.npy";
  const std::string text = read_file(folder.path() / metadata), numpy = as_numpy(text, 40);
  folder.write(metadata, numpy);
  CHECK(preparing(task, from, root).empty());
  folder.write(metadata, numpy.substr(0, numpy.size() - 4));
  CHECK(contains(preparing(task, from, root), "metadata/0.npy: "));
  folder.write(metadata, text.substr(0, text.size() - 8));
  CHECK(contains(preparing(task, from, root), "metadata/0.npy:40: "));
  CHECK(open(task, root, "train").size() == 32);  // of the last good files
}

TEST_CASE("official images are read with either metadata") {
  const auto data = real_data_or_skip("reference");
  if (!data) return;
  Folder folder;
  const auto set = *data / "pathfinder32/curv_contour_length_14";
  const std::string text = read_file(set / "metadata/0.npy");
  const std::string numpy = read_file(set / "metadata_npsave/0.npy");
  const auto a = read_pathfinder_metadata(as_bytes(text), "text");
  const auto b = read_pathfinder_metadata(as_bytes(numpy), "numpy");
  REQUIRE(a.size() == 200);
  REQUIRE(b.size() == 200);
  for (size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i].path == b[i].path);
    CHECK(a[i].label == b[i].label);
  }
  REQUIRE(preparing(find_task("pathfinder"), *data, folder.path()).empty());
  CHECK(open(find_task("pathfinder"), folder.path(), "train").size() == 160);
}
