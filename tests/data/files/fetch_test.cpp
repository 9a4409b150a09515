#include "data/files/fetch.hpp"

#include "data/files/digest.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/data/tasks/official_files.hpp"
#include "tests/support/doctest.hpp"
#include "tests/support/http_server.hpp"
#include "tests/train/cli/program.hpp"

using namespace skytape;
using namespace skytape::data;
using namespace skytape::data::synthetic;
using namespace skytape::test;

namespace {

namespace fs = std::filesystem;

std::string digest_of(const std::string& bytes) {
  Sha256 digest;
  digest.update(as_bytes(bytes));
  return digest.hex();
}

/// Something that no compression or line ends could leave unchanged by accident.
std::string some_bytes(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * i * 31 + i / 256);
  return bytes;
}

/// A download into a separate folder.
struct Target {
  Folder folder;
  fs::path file = folder.path() / "downloads/set.tar.gz";
  fs::path part = folder.path() / "downloads/set.tar.gz.part";

  [[nodiscard]] std::string fetching(const HttpServer& server, const std::string& sha256) const {
    return error_of([&] { (void)fetch(server.url("set.tar.gz"), file, sha256); });
  }
};

#ifdef SKYTAPE_HAVE_CURL
constexpr bool kCanFetch = true;
#else
constexpr bool kCanFetch = false;
#endif

bool curl_or_skip() {
  if (!kCanFetch) MESSAGE("skipped: built without libcurl");
  return kCanFetch;
}

using Starts = std::vector<size_t>;  // first bytes that were asked for

}  // namespace

TEST_CASE("a download is whole, has its digest, and is not repeated") {
  if (!curl_or_skip()) return;
  const std::string body = some_bytes(300000);
  const HttpServer server({body});
  const Target t;
  CHECK(fetch(server.url("set.tar.gz"), t.file, digest_of(body)) == digest_of(body));
  CHECK(read_file(t.file) == body);
  CHECK_FALSE(fs::exists(t.part));
  CHECK(t.fetching(server, digest_of(body)).empty());
  CHECK(server.requests() == Starts{0});
  CHECK(t.fetching(server, digest_of("x")).find("delete it to download it again") !=
        std::string::npos);
  CHECK(read_file(t.file) == body);  // the user's file is left alone
}

TEST_CASE("lost connections are taken up where they were cut, also by a later call") {
  if (!curl_or_skip()) return;
  const std::string body = some_bytes(100000);
  const HttpServer server({.body = body, .cut_at = 30000, .cuts = 2});
  const Target t;
  CHECK(t.fetching(server, digest_of(body)).empty());
  CHECK(read_file(t.file) == body);
  CHECK(server.requests() == Starts{0, 30000, 60000});

  const Target later;
  later.folder.write("downloads/set.tar.gz.part", body.substr(0, 70001));
  CHECK(later.fetching(server, digest_of(body)).empty());
  CHECK(read_file(later.file) == body);
  CHECK(server.requests().back() == 70001);
}

TEST_CASE("a server without byte ranges starts anew, and is given up when that is cut too") {
  if (!curl_or_skip()) return;
  const std::string body = some_bytes(100000);
  {
    const HttpServer server({.body = body, .ranges = false, .cut_at = 30000, .cuts = 1});
    const Target t;
    CHECK(t.fetching(server, digest_of(body)).empty());
    CHECK(read_file(t.file) == body);
    CHECK(server.requests() == Starts{0, 30000, 0});
  }
  const HttpServer server({.body = body, .ranges = false, .cut_at = 30000, .cuts = 1000});
  const Target t;
  const std::string text = t.fetching(server, digest_of(body));
  CHECK(text.find("the connection breaks at byte 30000 again") != std::string::npos);
  CHECK_FALSE(fs::exists(t.file));
  CHECK(read_file(t.part) == body.substr(0, 30000));
}

TEST_CASE("a part that is longer than the file is thrown away") {
  if (!curl_or_skip()) return;
  const std::string body = some_bytes(5000);
  const HttpServer server({body});
  const Target t;
  t.folder.write("downloads/set.tar.gz.part", some_bytes(6000));
  CHECK(t.fetching(server, digest_of(body)).empty());
  CHECK(read_file(t.file) == body);
}

TEST_CASE("failures name address and reason and leave nothing that looks complete") {
  if (!curl_or_skip()) return;
  const Target t;
  const std::string body = some_bytes(5000);
  std::string closed;
  {
    const HttpServer server({.body = body, .status = 404});
    closed = server.url("set.tar.gz");
    CHECK(t.fetching(server, "") == closed + ": HTTP status 404");
  }
  CHECK(
      error_of([&] { (void)fetch(closed, t.file, ""); }).starts_with(closed + ": "));  // no server
  CHECK_FALSE(fs::exists(t.file));
  CHECK_FALSE(fs::exists(t.part));

  const HttpServer server({body});
  const std::string other = digest_of("another file");
  const std::string wrong = t.fetching(server, other);
  CHECK(wrong.find("SHA-256 " + digest_of(body) + ", expected " + other) != std::string::npos);
  CHECK_FALSE(fs::exists(t.file));
  CHECK_FALSE(fs::exists(t.part));
}

TEST_CASE("skytape data --fetch prepares a task from its archive, and says what went wrong") {
  if (!curl_or_skip() || !program_or_skip()) return;
  const Folder folder;
  write_tar(folder.path() / "release.tar.gz", pair_files(11));
  const HttpServer server({read_file(folder.path() / "release.tar.gz")});
  const std::string root = (folder.path() / "datasets").string();
  const auto data = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"data", "--data", root});
    return run_program(folder.path(), more);
  };
  const Finished f =
      data({"--task", "retrieval", "--fetch", "--url", server.url("lra_release.gz")});
  CAPTURE(f.err);
  CHECK(f.code == 0);
  CHECK(f.err.find("no digest of it is published") != std::string::npos);
  CHECK(f.out.starts_with("retrieval: results are called retrieval-substitute"));
  CHECK(fs::exists(fs::path(root) / "downloads/lra_release.gz"));

  const Finished again = data({"--task", "retrieval", "--fetch"});
  CAPTURE(again.err);
  CHECK(again.code == 0);
  CHECK(again.err.find("prepared already") != std::string::npos);
  CHECK(server.requests().size() == 1);

  const Finished wrong = data({"--task", "image", "--fetch", "--url", server.url("x")});
  CAPTURE(wrong.err);
  CHECK(wrong.code == 3);
  CHECK(wrong.err.find("expected c4a38c50") != std::string::npos);
  CHECK_FALSE(fs::exists(fs::path(root) / "downloads/cifar-10-binary.tar.gz"));
  CHECK(data({"--task", "text", "--url", "http://x"}).code == 2);
  CHECK(data({"--task", "text", "--fetch", "--from", "x"}).code == 2);
  CHECK(data({"--task", "text", "--fetch", "--url", "ftp://x"}).code == 2);
  CHECK(data({"--task", "tsv", "--fetch"}).code == 2);
}
