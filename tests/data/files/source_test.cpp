// Files as they should not be: cut, packed badly, endless, or climbing out of their folder.
#include "data/files/source.hpp"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>

#include "data/custom/records.hpp"
#include "data/files/digest.hpp"
#include "data/tasks/listops.hpp"
#include "data/tasks/retrieval.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/data/tasks/official_files.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::data;
using namespace skytape::data::synthetic;

namespace {

/// Starts with `head`, and goes on with one letter for ever.
class EndlessStream : public ByteStream {
 public:
  explicit EndlessStream(std::string head) : head_(std::move(head)) {}
  size_t read(std::span<uint8_t> buffer) override {
    const size_t head = std::min(buffer.size(), head_.size() - std::min(taken_, head_.size()));
    std::copy_n(head_.begin() + static_cast<std::ptrdiff_t>(head > 0 ? taken_ : 0), head,
                buffer.begin());
    std::fill(buffer.begin() + static_cast<std::ptrdiff_t>(head), buffer.end(), uint8_t{'a'});
    taken_ += buffer.size();
    return buffer.size();
  }
  [[nodiscard]] size_t taken() const { return taken_; }

 private:
  std::string head_;
  size_t taken_ = 0;
};

std::vector<std::string> lines_of(const std::string& text, size_t max_line = 100) {
  const auto stream = open_memory(as_bytes(text));
  LineReader reader(*stream, "x", max_line);
  std::vector<std::string> lines;
  for (std::string_view line; reader.next(line);) lines.emplace_back(line);
  return lines;
}

std::string gzipped(const Folder& folder, const std::string& text) {
  const auto path = folder.path() / "packed.gz";
  const gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  return read_file(path);
}

/// Text of the error of reading the whole of a file.
std::string reading(const std::filesystem::path& path) {
  return error_of<DataError>([&] { (void)read_all(*open_file(path), path.string(), 1 << 20); });
}

/// Names of the files that a visit of `root` hands out, or its error.
std::string visiting(const std::filesystem::path& root) {
  std::string names;
  const std::string error = error_of<DataError>([&] {
    visit_files(
        root, [](const SourceFile&) { return true; },
        [&](const SourceFile& file, ByteStream& stream) {
          (void)read_all(stream, file.shown, 1 << 20);
          names += file.path + " ";
        });
  });
  return error.empty() ? names : error;
}

ino_t unreadable = 0;  // the folder that a broken disk cannot list; 0: none

}  // namespace

/// Takes the place of the C library's.
extern "C" dirent* readdir(DIR* folder) {
  static const auto theirs = reinterpret_cast<decltype(&readdir)>(::dlsym(RTLD_NEXT, "readdir"));
  struct stat facts = {};
  if (unreadable != 0 && ::fstat(::dirfd(folder), &facts) == 0 && facts.st_ino == unreadable) {
    errno = EIO;
    return nullptr;
  }
  return theirs(folder);
}

TEST_CASE("lines end in LF or CRLF, also mixed in one file, and the last one in nothing") {
  using Lines = std::vector<std::string>;
  CHECK(lines_of("a\r\nb\nc\rd\n\r\n\ne") == Lines{"a", "b", "c\rd", "", "", "e"});
  CHECK(lines_of("").empty());
  CHECK(lines_of("\n") == Lines{""});
  CHECK(lines_of("a\r") == Lines{"a"});
  const std::string longest(100, 'x');
  CHECK(lines_of(longest + "\r\n") == Lines{longest});
  CHECK(error_of<DataError>([] { (void)lines_of("a\n" + std::string(101, 'x')); }) ==
        "x:2: line of more than 100 bytes");
}

TEST_CASE("an endless line is an error with file and line, long before memory is full") {
  Folder folder;
  CacheWriter out(folder.path() / "x", 1);
  const auto check = [](const std::string& head, const std::string& place, const auto& read) {
    EndlessStream stream(head);
    CHECK(error_of<DataError>([&] { read(stream); }) ==
          place + ": line of more than 16777216 bytes");
    CHECK(stream.taken() <= 2 * kMaxLine + head.size());
  };
  check("Source\tTarget\n1\t1\n", "f.tsv:3",
        [&](ByteStream& stream) { read_listops(stream, "f.tsv", out, {}); });
  check("1.0\tA\tB\tx\ty\n1.0\t", "f.tsv:2",
        [](ByteStream& stream) { read_pairs(stream, "f.tsv", true, [](const RetrievalLine&) {}); });
  check("spam\t", "f.tsv:1",
        [](ByteStream& stream) { read_records(stream, "f.tsv", {}, [](const Record&) {}); });
  EndlessStream stream("");
  CHECK(error_of<DataError>([&] { (void)read_all(stream, "0_9.txt", 1 << 20); }) ==
        "0_9.txt: larger than 1048576 bytes");
}

TEST_CASE("gzip data that are cut or changed are refused by name") {
  Folder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += std::to_string(i * i) + "\n";
  const std::string good = gzipped(folder, text);
  CHECK(reading(folder.write("x.gz", good)).empty());
  for (const size_t size : {good.size() / 2, good.size() - 4, good.size() - 1, size_t{15}}) {
    CAPTURE(size);
    const auto path = folder.write("x.gz", good.substr(0, size));
    CHECK(reading(path) == path.string() + ": truncated gzip data");
  }
  for (const size_t at : {good.size() / 2, good.size() - 6}) {  // data, checksum
    CAPTURE(at);
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x55);
    const auto path = folder.write("x.gz", bad);
    CHECK(reading(path).starts_with(path.string() + ": "));
  }
  CHECK(reading(folder.path() / "nothing").find("No such file") != std::string::npos);
  // The reader leaves out bytes behind the last member that begin no other one, as gzip does.
  const auto open = open_file(folder.write("x.gz", good + good + std::string(3, '\0')));
  CHECK(read_all(*open, "x", 1 << 20).size() == 2 * text.size());
}

TEST_CASE("files of a folder come in the order of the numbers in their names") {
  const Folder folder;
  for (const char* name : {"s10", "s9", "s007", "s07", "t1", "s"}) folder.write(name, "x");
  CHECK(visiting(folder.path()) == "s s007 s07 s9 s10 t1 ");
}

TEST_CASE("archive entries may not climb out of their folder, and cut archives are refused") {
  Folder folder;
  const auto tar = folder.path() / "x.tar.gz";
  for (const char* name : {"../a.txt", "a/../../b.txt", "/etc/a.txt", "a/.."}) {
    CAPTURE(name);
    write_tar(tar, {{"good.txt", "x"}, {name, "x"}});
    CHECK(visiting(tar) ==
          tar.string() + ": entry '" + std::string(name) + "' points outside the archive");
  }
  write_tar(tar, {{"a..b/..c.txt", "x"}, {"./d.txt", "y"}});  // dots alone are harmless
  CHECK(visiting(tar) == "a..b/..c.txt ./d.txt ");

  Files files;
  for (int i = 0; i < 20; ++i) files.emplace_back("f" + std::to_string(i), std::string(3000, 'x'));
  write_tar(tar, files);
  const auto unpacked = read_all(*open_file(tar), "x", 1 << 20);
  const std::string plain(unpacked.begin(), unpacked.end());
  for (const size_t size : {size_t{700}, size_t{512 + 1000}, plain.size() / 2 + 100}) {
    CAPTURE(size);
    const auto cut = folder.write("cut.tar", plain.substr(0, size));
    CHECK(visiting(cut).starts_with(cut.string() + ":"));
  }
}

TEST_CASE("a tar.gz whose bytes were changed is refused, wherever they are") {
  Folder folder;
  const auto tar = folder.path() / "x.tar";
  write_tar(tar, {{"a.txt", "0.4567"}, {"b.txt", "0.1234"}});
  const std::string good = gzipped(folder, read_file(tar));
  for (const char* name : {"x.tar.gz", "x.tgz"}) {
    CAPTURE(name);
    CHECK(visiting(folder.write(name, good)) == "a.txt b.txt ");
    for (std::size_t at = 12; at < good.size(); ++at) {
      CAPTURE(at);
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 1);
      CHECK(visiting(folder.write(name, bad)).starts_with(folder.path().string()));
    }
  }
}

TEST_CASE("a file and its gzip'd twin in one folder are refused, unless nobody wants them") {
  const Folder folder;
  const std::string packed = gzipped(folder, "packed");
  folder.write("tree/a/f0.txt.gz", packed);
  CHECK(visiting(folder.path() / "tree") == "a/f0.txt ");
  const auto plain = folder.write("tree/a/f0.txt", "plain");
  const std::string error = visiting(folder.path() / "tree");
  CHECK(error == plain.string() + " and " + plain.string() +
                     ".gz are both a/f0.txt once unpacked: expected one of them");
  folder.write("tree/b.txt", "b");
  std::string names;
  visit_files(
      folder.path() / "tree", [](const SourceFile& file) { return file.path == "b.txt"; },
      [&](const SourceFile& file, ByteStream&) { names += file.path; });
  CHECK(names == "b.txt");
}

TEST_CASE("links to folders above are not followed, others are") {
  namespace fs = std::filesystem;
  const Folder folder;
  folder.write("tree/a/b/x.txt", "x");
  folder.write("other/y.txt", "y");
  fs::create_directory_symlink(".", folder.path() / "tree/self");
  fs::create_directory_symlink("..", folder.path() / "tree/a/up");
  fs::create_directory_symlink(folder.path() / "tree", folder.path() / "tree/a/b/top");
  fs::create_directory_symlink("../other", folder.path() / "tree/other");
  fs::create_directory_symlink("../other", folder.path() / "tree/z");
  fs::create_directory_symlink("tree", folder.path() / "link");
  CHECK(visiting(folder.path() / "tree") == "a/b/x.txt other/y.txt z/y.txt ");
  CHECK(visiting(folder.path() / "link") == "a/b/x.txt other/y.txt z/y.txt ");
  std::string deep = "deep/";
  for (int i = 0; i < 40; ++i) deep += "d/";
  folder.write(deep + "x.txt", "x");
  CHECK(visiting(folder.path() / "deep") == deep.substr(5) + "x.txt ");
}

TEST_CASE("gzip'd entries of an archive are unpacked as files of a folder are") {
  const Folder folder;
  const auto tar = folder.path() / "x.tar";
  const std::string packed = gzipped(folder, "packed\n");
  write_tar(tar, {{"a/f0.txt.gz", packed}, {"f1.txt", "plain\n"}, {"f2.txt", packed}});
  std::string all;
  const auto read = [&](const SourceFile& file, ByteStream& stream) {
    const auto bytes = read_all(stream, file.shown, 100);
    all += file.path + " " + std::string(bytes.begin(), bytes.end());
  };
  const auto every = [](const SourceFile&) { return true; };
  visit_files(tar, every, read);
  CHECK(all == "a/f0.txt packed\nf1.txt plain\nf2.txt packed\n");
  write_tar(tar, {{"f0.txt.gz", packed.substr(0, packed.size() - 3)}});
  CHECK(visiting(tar) == tar.string() + ":/f0.txt.gz: truncated gzip data");
  // The later of two entries of one name is a file that was added again.
  write_tar(tar, {{"f0.txt", "old\n"}, {"f0.txt", "new\n"}});
  CHECK(visiting(tar) == "f0.txt f0.txt ");
  write_tar(tar, {{"f0.txt", "plain\n"}, {"f0.txt.gz", packed}});
  CHECK(visiting(tar) == tar.string() + ":/f0.txt and " + tar.string() +
                             ":/f0.txt.gz are both f0.txt once unpacked: expected one of them");
}

TEST_CASE("a folder that cannot be listed is named") {
  const Folder folder;
  const std::filesystem::path below = folder.path() / "a" / "below";
  std::filesystem::create_directories(below);
  struct stat facts = {};
  REQUIRE(::stat(below.c_str(), &facts) == 0);
  unreadable = facts.st_ino;
  const std::string expected = below.string() + ": Input/output error";
  CHECK(error_of<DataError>([&] { (void)entries_of(below); }) == expected);
  CHECK(visiting(folder.path()) == expected);
  unreadable = 0;
  CHECK(entries_of(below).empty());
}
