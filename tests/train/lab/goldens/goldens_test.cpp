#include "train/lab/goldens/goldens.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "tensor/core/error.hpp"
#include "tests/support/doctest.hpp"
#include "train/formats/npy.hpp"

namespace skytape::test {
namespace {

namespace fs = std::filesystem;
const fs::path kGoldens = "tests/goldens";  // from the repository's root

/// An empty folder that disappears with the object.
class Folder {
 public:
  explicit Folder(const std::string& name) : path_(fs::temp_directory_path() / name) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void write(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A version 1.0 file with this header dictionary and so many bytes of data.
std::string npy(const std::string& header, std::size_t data_bytes) {
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() % 256);
  text += static_cast<char>(header.size() / 256);
  return text + header + std::string(data_bytes, '\0');
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const DataError& error) {
    return error.what();
  }
  return "no DataError";
}

}  // namespace

TEST_CASE("golden vectors are reproduced in f64 and f32") {
  const std::vector<GoldenRow> rows = run_goldens(kGoldens);
  INFO(golden_table(rows));
  CHECK(all_passed(rows));
  CHECK(std::count_if(rows.begin(), rows.end(), [](const GoldenRow& row) {
          return row.status == GoldenRow::Status::passed;
        }) >= 40);  // five cases, two dtypes, four arrays at least
}

TEST_CASE("a changed golden value fails, and an unknown method is left out") {
  const Folder folder("skytape_goldens_changed");
  const fs::path good = folder.path() / "v" / "c";
  fs::create_directories(good.parent_path());
  fs::copy(kGoldens / "vmean" / "pad", good, fs::copy_options::recursive);
  {
    std::fstream file(good / "dv.npy", std::ios::binary | std::ios::in | std::ios::out);
    const double changed = 0.25;
    file.seekp(-8, std::ios::end);
    file.write(reinterpret_cast<const char*>(&changed), sizeof changed);
  }
  write(folder.path() / "x" / "y" / "meta.json",
        R"({"variant": "no_such_method", "options": {}, "arrays": []})");
  const std::vector<GoldenRow> rows = run_goldens(folder.path());
  CHECK(!all_passed(rows));
  for (const GoldenRow& row : rows) {
    if (row.status == GoldenRow::Status::failed) CHECK(row.array == "dv");
    if (row.folder == "x/y") CHECK(row.status == GoldenRow::Status::not_implemented);
  }
  CHECK(golden_table(rows).find("FAILED") != std::string::npos);
}

TEST_CASE("broken golden folders are refused with the file's name") {
  const Folder folder("skytape_goldens_broken");
  const auto run = [&] { (void)run_goldens(folder.path()); };
  CHECK_THROWS_AS((void)run_goldens(folder.path() / "missing"), DataError);
  CHECK_THROWS_AS(run(), DataError);  // no case
  const fs::path meta = folder.path() / "v" / "c" / "meta.json";
  for (const char* text :
       {"", "{", "[]", R"({"variant": 3})", R"({"variant": "softmax", "options": {}})",
        R"({"variant": "softmax", "options": {}, "arrays": [{"name": "q"}]})",
        R"({"variant": "softmax", "options": {}, "arrays": [{"name": "q", "file": "../q.npy"}]})",
        R"({"variant": "softmax", "options": {}, "arrays": [{"name": "q", "file": "q.npy"}]})",
        R"({"variant": "softmax", "options": {}, "arrays": [{"name": "mask", "file": "m.npy",
            "shape": [3]}]})"}) {
    write(meta, text);
    write(meta.parent_path() / "m.npy",
          npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", 16));
    INFO(text);
    CHECK(message_of(run).find((folder.path() / "v" / "c").string()) != std::string::npos);
  }
}

TEST_CASE(".npy files are read as NumPy writes them") {
  const NpyArray mask = read_npy(kGoldens / "vmean" / "pad" / "mask.npy");
  CHECK(mask.shape == std::vector<std::int64_t>{2, 64});
  CHECK(!mask.integer);
  CHECK(
      std::all_of(mask.reals.begin(), mask.reals.end(), [](double x) { return x == 0 || x == 1; }));
  const NpyArray keep = read_npy(kGoldens / "softmax" / "dropout" / "rand_keep_packed.npy");
  CHECK(keep.integer);
  CHECK(keep.integers.size() == 2048);
  CHECK(keep.tensor(DType::i32).dtype() == DType::i32);
  const Folder folder("skytape_npy_scalar");
  write(folder.path() / "s.npy", npy("{'shape': (), 'fortran_order': False, 'descr': '<i8'}\n", 8));
  CHECK(read_npy(folder.path() / "s.npy").integers == std::vector<std::int64_t>{0});

  std::string narrow = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 8);
  const float values[] = {1.5f, -0.1f};
  narrow.replace(narrow.size() - 8, 8, reinterpret_cast<const char*>(values), 8);
  write(folder.path() / "f.npy", narrow);
  CHECK(read_npy(folder.path() / "f.npy").reals ==
        std::vector<double>{1.5, static_cast<double>(-0.1f)});
}

TEST_CASE("broken .npy files are refused with the file's name") {
  const Folder folder("skytape_npy_broken");
  const fs::path path = folder.path() / "a.npy";
  CHECK_THROWS_AS((void)read_npy(path), DataError);  // missing
  const std::string good = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }";
  write(path, npy(good, 48));
  CHECK(read_npy(path).reals.size() == 6);
  const std::string whole = npy(good, 48);
  std::vector<std::string> broken = {
      "",
      "NUMPY",
      whole.substr(0, 9),
      whole.substr(0, 40),
      npy(good, 47),
      npy(good, 56),
      npy("{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3), }", 12),
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 48),
      npy("{'descr': '>f8', 'fortran_order': False, 'shape': (2, 3), }", 48),
      npy("{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }", 48),
      npy("{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3), }", 48),
      npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2, -3), }", 48),
      npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2, x), }", 48),
      npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", 48),
      npy("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,), }", 48),
      npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3", 48),
      npy("{'descr': '<f8', 'descr': '<f8', 'shape': (2, 3), }", 48),
      npy("{'descr': '<f8', 'shape': (2, 3), }", 48),
      npy("{'descr': '<f8", 48),
      npy("", 48),
  };
  std::string version = whole;
  version[6] = 9;
  broken.push_back(version);
  for (const std::string& bytes : broken) {
    write(path, bytes);
    INFO(bytes);
    CHECK(message_of([&] { (void)read_npy(path); }).find(path.string()) != std::string::npos);
  }
}

}  // namespace skytape::test
