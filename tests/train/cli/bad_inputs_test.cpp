// Wrong inputs of every command: the documented exit code, one line that says what was wrong, and
// nothing on standard output.
#include <algorithm>
#include <sstream>

#include "tests/support/doctest.hpp"
#include "tests/train/cli/workshop.hpp"
#include "train/formats/safetensors.hpp"

using namespace skytape;
using namespace skytape::test;
using data::synthetic::read_file;

namespace {

namespace fs = std::filesystem;

struct BadInput {
  const char* arguments;
  int code;
  const char* part;  // of the message
};

const BadInput kBadInputs[] = {
#define BAD(arguments, code, part) {arguments, code, part},
#include "tests/train/cli/bad_inputs.def"
#undef BAD
};

/// Texts of the standard library and of the JSON parser, which mean nothing to a user.
const char* const kRaw[] = {"map::at",   "json.exception", "std::",     "basic_string",
                            "terminate", "vector::",       "stoi",      "stoll",
                            "stod",      "filesystem err", "bad_alloc", "please report"};

/// The folder that the table calls `@`.
struct Odds {
  Workshop w;
  std::string root = w.folder.path().string();

  Odds() {
    data::synthetic::small_listops(w.folder.path() / "other", 150, 1, 2);
    REQUIRE(w.finish(w.train("run", 3)).code == 0);
    std::vector<std::string> pre = w.train("pre", 3, {"--set", "warmup=2"});
    pre.front() = "pretrain";
    REQUIRE(w.finish(pre).code == 0);
    w.folder.write("files/text.txt", "hello world\n");
    w.folder.write("files/empty", "");
    w.folder.write("files/no_tab.tsv", "a\tb\nnothing\n");
    std::string lines;
    for (int i = 0; i < 20; ++i) lines += "a\tb\n";
    w.folder.write("files/one_label.tsv", lines);
    lines.clear();
    for (int i = 0; i < 100; ++i) {
      lines += (i % 2 == 0 ? "even\ttext " : "odd\ttext ") + std::to_string(i) + "\n";
    }
    w.folder.write("files/own.tsv", lines);
    REQUIRE(w.finish({"data", "--task", "tsv", "--from", root + "/files/own.tsv", "--data",
                      root + "/own"})
                .code == 0);
    w.folder.write("files/cut.tar.gz", "\x1f\x8b\x08");
    train::write_safetensors(root + "/files/foreign.safetensors",
                             {{"w", Tensor::zeros({2}, DType::f32, Device::cpu)}}, {});
    w.folder.write("cut/config.json", "{\"task\": \"list");
    w.folder.write("empty/config.json", "{}");
    w.folder.write("folder/config.json/a", "");
    w.folder.write("files/own.recipe", "base = skytape\n");
    for (const char* split : {"train", "dev", "test"}) {
      const std::string name = std::string("listops/") + split + ".skydata";
      const std::string whole = read_file(w.data / name);
      w.folder.write("broken/" + name, whole.substr(0, whole.size() / 2));
    }
  }

  [[nodiscard]] std::string placed(std::string text) const {
    for (std::size_t at; (at = text.find('@')) != text.npos;) text.replace(at, 1, root);
    return text;
  }

  [[nodiscard]] std::vector<std::string> words(const char* arguments) const {
    std::istringstream in(placed(arguments));
    std::vector<std::string> all;
    for (std::string word; std::getline(in, word, ' ');) all.push_back(word);
    return all;
  }
};

}  // namespace

TEST_CASE("every wrong input has its exit code and one line that says what was wrong") {
  if (!program_or_skip()) return;
  const Odds odds;
  for (const BadInput& bad : kBadInputs) {
    CAPTURE(std::string(bad.arguments));
    const Finished f = odds.w.finish(odds.words(bad.arguments), {.folder = odds.w.folder.path()});
    CAPTURE(f.err);
    CHECK(f.code == bad.code);
    CHECK_FALSE(f.killed);
    CHECK(f.out.empty());
    // One line, behind whatever warnings the reader had.
    const std::vector<std::string> words = odds.words(bad.arguments);
    const std::string program = words.empty() ? "skytape" : program_of(words.front());
    const std::size_t error = f.err.find(program + ": error: ");
    REQUIRE(error != std::string::npos);
    CHECK(std::count(f.err.begin() + static_cast<std::ptrdiff_t>(error), f.err.end(), '\n') == 1);
    CHECK(f.err.find(odds.placed(bad.part), error) != std::string::npos);
    for (const char* raw : kRaw) CHECK_MESSAGE(f.err.find(raw) == std::string::npos, raw);
    CHECK_FALSE(fs::exists(odds.w.folder.path() / "runs"));
  }
}
