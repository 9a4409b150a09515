#include "data/cache/cache.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>
#include <thread>

#include "data/files/digest.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using namespace skytape::data;
using namespace skytape::data::synthetic;

namespace {

std::string opening(const std::filesystem::path& path) {
  return error_of<DataError>([&] { (void)CacheFile::open(path); });
}

}  // namespace

TEST_CASE("digests agree with published values") {
  Sha256 digest;
  digest.update(as_bytes("abcdbcdecdefdefgefghfghighij"));
  digest.update(as_bytes("hijkijkljklmklmnlmnomnopnopq"));
  CHECK(digest.hex() == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(to_hex(md5("message digest")) == "f96b697d7cb7938d525a2f31aaf161d0");
  CHECK(to_hex(md5("")) == "d41d8cd98f00b204e9800998ecf8427e");
}

TEST_CASE("the checksum sees every flipped bit") {
  std::vector<uint8_t> bytes(777);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 31);
  const uint64_t sum = checksum(bytes);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    CHECK(checksum(bytes) != sum);
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
  bytes.push_back(0);
  CHECK(checksum(bytes) != sum);
}

TEST_CASE("a cache gives back what was written, documents shared by examples once") {
  Folder folder;
  const std::vector<uint8_t> a = {1, 2, 3}, b = {}, c(3'000'000, 7);  // over several blocks
  {
    CacheSet set("pairs", folder.path(), 2, 1);
    set.classes = 3;
    set.provenance = "{}";
    CacheWriter& out = set.split("train");
    const uint32_t ids[] = {out.add_document(a), out.add_document(b), out.add_document(c)};
    for (const auto& [label, x, y] : {std::tuple(0, 0, 1), {2, 2, 0}, {1, 2, 2}}) {
      const uint32_t pair[] = {ids[x], ids[y]};
      out.add_example(label, pair);
    }
    set.commit();
  }
  const Dataset data(CacheFile::open(cache_path(folder.path(), "train")));
  const auto same = [](std::span<const uint8_t> got, const std::vector<uint8_t>& want) {
    return std::equal(got.begin(), got.end(), want.begin(), want.end());
  };
  CHECK(data.size() == 3);
  CHECK(data.sequences() == 2);
  CHECK(data.token_offset() == 1);
  CHECK(data.classes() == 3);
  CHECK(data.label(1) == 2);
  CHECK(same(data.tokens(0, 0), a));
  CHECK(same(data.tokens(0, 1), b));
  CHECK(same(data.tokens(1, 0), c));
  CHECK(same(data.slice(2, 1).tokens(0, 1), c));
  CHECK(std::filesystem::file_size(cache_path(folder.path(), "train")) < 3'100'000);
  CHECK_THROWS_AS((void)data.tokens(3), Error);
  CHECK_THROWS_AS((void)data.label(-1), Error);
  CHECK_THROWS_AS((void)data.slice(1, 3), Error);
}

TEST_CASE("any flipped byte of a cache file is found") {
  Folder folder;
  {
    CacheSet set("synthetic", folder.path(), 1, 0);
    set.classes = 2;
    set.provenance = R"({"how": "made up"})";
    for (const auto& tokens : sequences_of({5, 9, 1, 30})) set.split("train").add(1, tokens);
    set.commit();
  }
  const auto path = cache_path(folder.path(), "train");
  const std::string good = read_file(path);
  CHECK(opening(path).empty());
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
    const auto file = folder.write("bad.skydata", bad);
    const std::string text = opening(file);
    CAPTURE(at);
    CHECK(text.starts_with(file.string() + ": "));
  }
}

TEST_CASE("a truncated, extended or foreign file is refused by name and reason") {
  Folder folder;
  const Dataset data = split_of(folder, sequences_of({5, 9}));
  const std::string good = read_file(cache_path(folder.path() / "synthetic", "train"));
  const auto text_of = [&](std::string_view bytes) {
    return opening(folder.write("file.skydata", bytes));
  };
  CHECK(text_of("").find("truncated") != std::string::npos);
  CHECK(text_of(good.substr(0, 100)).find("truncated") != std::string::npos);
  CHECK(text_of(good.substr(0, good.size() - 1)).find("truncated") != std::string::npos);
  CHECK(text_of(good + "x").find("appended") != std::string::npos);
  CHECK(text_of(std::string(1000, 'x')).find("not a skytape data file") != std::string::npos);
  CHECK(opening(folder.path() / "nothing").find("nothing") != std::string::npos);
}

TEST_CASE("a file that is consistent on the outside cannot lead outside the mapping") {
  Folder folder;
  const Dataset data = split_of(folder, sequences_of({5, 9}));
  const std::string good = read_file(cache_path(folder.path() / "synthetic", "train"));
  CacheHeader header;
  std::memcpy(&header, good.data(), sizeof header);
  /// What is said of the file with a number in a table of it, and checksums that fit.
  const auto with = [&](uint64_t at, auto number) {
    std::string bytes = good;
    std::memcpy(bytes.data() + at, &number, sizeof number);
    const std::string_view content(bytes.data() + 256, header.provenance_at - 256);
    const uint64_t block = checksum(as_bytes(content));
    CacheHeader changed = header;
    changed.content_checksum = checksum({reinterpret_cast<const uint8_t*>(&block), 8});
    changed.header_checksum = checksum(
        {reinterpret_cast<const uint8_t*>(&changed), offsetof(CacheHeader, header_checksum)});
    std::memcpy(bytes.data(), &changed, sizeof changed);
    return opening(folder.write("file.skydata", bytes));
  };
  const auto refused = [&](uint64_t at, auto number) {
    CAPTURE(at);
    CAPTURE(number);
    CHECK(with(at, number).find("inconsistent") != std::string::npos);
  };
  CHECK(with(header.begins_at, uint64_t{0}).empty());  // as it is
  refused(header.begins_at, uint64_t{header.token_bytes});
  refused(header.begins_at + 8, uint64_t{1} << 40);
  refused(header.begins_at + 16, header.tokens + header.token_bytes);
  // The first number that is no document, and no class.
  refused(header.examples_at, static_cast<uint32_t>(header.documents));
  refused(header.labels_at + 4, static_cast<int32_t>(header.classes));
  refused(header.labels_at + 4, int32_t{-1});
  CHECK(with(header.examples_at, static_cast<uint32_t>(header.documents - 1)).empty());
  CHECK(with(header.labels_at + 4, static_cast<int32_t>(header.classes - 1)).empty());
}

TEST_CASE("a header whose checksum fits is refused where its numbers do not fit the file") {
  Folder folder;
  const Dataset data = split_of(folder, sequences_of({5, 9}));
  const std::string good = read_file(cache_path(folder.path() / "synthetic", "train"));
  const auto with = [&](auto change) {
    CacheHeader header;
    std::memcpy(&header, good.data(), sizeof header);
    change(header);
    header.header_checksum = checksum(
        {reinterpret_cast<const uint8_t*>(&header), offsetof(CacheHeader, header_checksum)});
    std::string bytes = good;
    std::memcpy(bytes.data(), &header, sizeof header);
    return opening(folder.write("file.skydata", bytes));
  };
  const auto inconsistent = [&](auto change) {
    CHECK(with(change).find("inconsistent header") != std::string::npos);
  };
  CHECK(with([](CacheHeader&) {}).empty());
  CHECK(with([](CacheHeader& h) { ++h.version; }).find("format version 2, expected 1") !=
        std::string::npos);
  inconsistent([](CacheHeader& h) { h.provenance_at = h.file_bytes + 1; });
  inconsistent([](CacheHeader& h) { h.labels_at = h.provenance_at; });
  inconsistent([](CacheHeader& h) { h.token_bytes = 3; });
  inconsistent([](CacheHeader& h) { h.sequences = 0; });
  inconsistent([](CacheHeader& h) { h.task[31] = 'x'; });
  inconsistent([](CacheHeader& h) { h.name[31] = 'x'; });
  inconsistent([](CacheHeader& h) { h.split[15] = 'x'; });
  // A token of two bytes that begins in the midst of another one.
  CHECK(with([](CacheHeader& h) { h.token_bytes = 2; }).find("inconsistent tables") !=
        std::string::npos);
}

TEST_CASE("splits of different preparations are not taken for one set") {
  Folder folder;
  const auto a = folder.path() / "a";
  const TaskInfo& task = small_listops(a, 50, 1, 1);
  small_listops(folder.path() / "b", 50, 1, 2);
  std::filesystem::copy_file(folder.path() / "b/listops/dev.skydata",
                             folder.path() / "a/listops/dev.skydata",
                             std::filesystem::copy_options::overwrite_existing);
  CHECK_FALSE(is_prepared(task, a));
  CHECK(error_of<DataError>([&] { (void)open(task, a, "train"); }).find("not of one preparation") !=
        std::string::npos);
  std::filesystem::copy_file(folder.path() / "b/listops/test.skydata",
                             folder.path() / "b/listops/train.skydata",
                             std::filesystem::copy_options::overwrite_existing);
  CHECK(error_of<DataError>([&] {
          (void)open(task, folder.path() / "b", "train");
        }).find("holds split test") != std::string::npos);
}

TEST_CASE("a set of another version of its generator, or of two provenances, is refused") {
  const Folder folder;
  const TaskInfo& task = find_task("listops");
  const auto make = [&](const char* name, const char* provenance) {
    CacheSet set(task.name, folder.path() / name / "listops", 1, task.token_offset);
    set.classes = 10;
    set.provenance = provenance;
    for (const char* split : {"train", "dev", "test"}) {
      set.split(split).add(1, std::vector<uint8_t>{1});
    }
    set.commit();
  };
  make("old", R"({"how": "generated", "generator": "old one"})");
  CHECK(error_of<DataError>([&] {
          (void)open(task, folder.path() / "old", "train");
        }).find("made by 'old one', expected 'official ListOps") != std::string::npos);
  make("read", R"({"how": "read"})");
  CHECK(is_prepared(task, folder.path() / "read"));
  std::filesystem::copy_file(folder.path() / "old/listops/dev.skydata",
                             folder.path() / "read/listops/dev.skydata",
                             std::filesystem::copy_options::overwrite_existing);
  CHECK_FALSE(is_prepared(task, folder.path() / "read"));
}

TEST_CASE("what is left of a set is completed by the same contents, and by no others") {
  Folder folder;
  const TaskInfo& task = small_listops(folder.path(), 50, 1, 1);
  const auto file = [&](const char* split) {
    return folder.path() / "listops" / (std::string(split) + ".skydata");
  };
  const std::string kept = read_file(file("train"));
  std::filesystem::remove(file("dev"));
  PrepareOptions options;
  options.limit = 50;
  options.data_seed = 2;
  CHECK(error_of<UsageError>([&] {
          prepare(task, folder.path(), options);
        }).find("holds other data than are generated; --force") != std::string::npos);
  CHECK(read_file(file("train")) == kept);
  options.data_seed = 1;
  prepare(task, folder.path(), options);
  CHECK(is_prepared(task, folder.path()));
  CHECK(read_file(file("train")) == kept);

  // A named pipe is no split, and nobody waits for one who writes to it.
  std::filesystem::remove(file("dev"));
  REQUIRE(::mkfifo(file("dev").c_str(), 0600) == 0);
  CHECK(error_of<DataError>([&] { (void)open(task, folder.path(), "dev"); }).find("truncated") !=
        std::string::npos);
}

TEST_CASE("an interrupted preparation leaves nothing that looks complete") {
  Folder folder;
  const TaskInfo& task = find_task("listops");
  PrepareOptions options;
  options.limit = 5000;
  options.progress = [](std::string_view, int64_t, int64_t) { throw std::runtime_error("stop"); };
  CHECK_THROWS_AS(prepare(task, folder.path(), options), std::runtime_error);
  CHECK_FALSE(is_prepared(task, folder.path()));
  folder.write("listops/train.skydata.tmp", "left by a killed process");
  CHECK_FALSE(is_prepared(task, folder.path()));
  CHECK(error_of<DataError>([&] {
          (void)open(task, folder.path(), "train");
        }).find("make data TASK=listops") != std::string::npos);
  small_listops(folder.path(), 50);
  CHECK(is_prepared(task, folder.path()));
  CHECK_FALSE(std::filesystem::exists(folder.path() / "listops/train.skydata.tmp"));
}

TEST_CASE("preparations at the same time end in one good set") {
  Folder folder;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      PrepareOptions options;
      options.limit = 200;
      options.threads = 1;
      options.force = i % 2 == 0;
      prepare(find_task("listops"), folder.path(), options);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(describe(find_task("listops"), folder.path()).splits[0].examples == 192);
}

TEST_CASE("a full disk is an error that names the file, and leaves nothing") {
  rlim_t room = 0;  // bytes of a file: less than its header, and more
  SUBCASE("at the first byte") { room = 16; }
  SUBCASE("later") { room = 100'000; }
  Folder folder;
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{room, before.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  bool is_about_data = false;
  std::string text;
  try {
    small_listops(folder.path(), 1000);
  } catch (const Error& error) {
    is_about_data = dynamic_cast<const DataError*>(&error) != nullptr;
    text = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  CHECK_FALSE(is_about_data);
  CHECK(text.find("train.skydata.tmp: cannot write to it") != std::string::npos);
  CHECK_FALSE(is_prepared(find_task("listops"), folder.path()));
  CHECK_FALSE(std::filesystem::exists(folder.path() / "listops/train.skydata.tmp"));
}

TEST_CASE("unknown tasks and splits suggest the nearest") {
  CHECK(error_of<UsageError>([] { (void)find_task("listop"); }).find("did you mean 'listops'") !=
        std::string::npos);
  CHECK(error_of<UsageError>([] {
          (void)open(find_task("listops"), "/nowhere", "tests");
        }).find("did you mean 'test'") != std::string::npos);
}
