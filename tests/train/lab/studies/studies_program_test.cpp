// approx and spectrum from outside: on a trained run and on files, the same table twice, exit
// codes.
#include <algorithm>

#include "data/files/json.hpp"
#include "tensor/random/random.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/program.hpp"
#include "train/formats/safetensors.hpp"

using namespace skytape;
using namespace skytape::test;
using data::synthetic::Folder;
using data::synthetic::read_file;

namespace {

namespace fs = std::filesystem;

/// A small trained run, and a place for results.
struct Laboratory {
  Folder folder;
  fs::path run = folder.path() / "run";

  Laboratory() {
    const fs::path data = folder.path() / "data";
    data::synthetic::small_listops(data, 150);
    std::vector<std::string> train = {"train",   "--task",   "listops", "--attention", "softmax",
                                      "--data",  data,       "--out",   run,           "--threads",
                                      "1",       "--device", "cpu",     "--steps",     "3",
                                      "--batch", "4"};
    for (const char* set : {"max_length=64", "width=8", "ff_width=8"}) {
      train.insert(train.end(), {"--set", set});
    }
    const Finished f = call(train);
    CAPTURE(f.err);
    REQUIRE(f.code == 0);
  }

  [[nodiscard]] Finished call(const std::vector<std::string>& arguments) const {
    return run_program(folder.path(), arguments);
  }

  /// A study of the run at 32 positions, with small numbers of everything.
  [[nodiscard]] Finished study(const std::string& name, std::vector<std::string> more) const {
    std::vector<std::string> arguments = {name, "--out", folder.path() / "figures"};
    if (name == "approx") arguments.insert(arguments.end(), {"--trials", "2"});
    if (name == "spectrum") arguments.insert(arguments.end(), {"--examples", "2"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return call(arguments);
  }
};

}  // namespace

TEST_CASE("studies of a run print the same table for the same seed, on any number of threads") {
  if (!program_or_skip()) return;
  const Laboratory lab;
  for (const std::string name : {"approx", "spectrum"}) {
    const auto table = [&](const std::string& threads, const std::string& seed) {
      const fs::path json = lab.folder.path() / "figures" / (name + ".json");
      const Finished f =
          lab.study(name, {"--run", lab.run, "--n", "32", "--features",
                           name == "approx" ? "4,8" : "8", "--threads", threads, "--seed", seed});
      CAPTURE(f.err);
      REQUIRE(f.code == 0);
      CHECK(f.err.find("its pictures: train/report/draw.py ") != std::string::npos);
      CHECK(f.out.find("listops-limited with softmax") != std::string::npos);
      const data::Json result = data::parse_json(read_file(json));
      CHECK(result["facts"]["source"]["task"] == "listops-limited");
      CHECK(result["machine"].contains("cpu"));
      CHECK(result["details"]["source"] == "listops-limited with softmax, step 3");
      return data::json_text(result["details"]["results"]) + data::json_text(result["tables"]);
    };
    const std::string first = table("1", "7");
    CHECK(table("1", "7") == first);
    CHECK(table("2", "7") == first);
    CHECK(table("1", "8") != first);
  }
}

TEST_CASE("a study's wrong usage exits with 2 and missing inputs with 3, in one line") {
  if (!program_or_skip()) return;
  const Laboratory lab;
  const auto fails = [&](const std::string& name, const std::vector<std::string>& arguments,
                         int code, const std::string& part) {
    const Finished f = lab.study(name, arguments);
    CAPTURE(f.err);
    CHECK(f.code == code);
    CHECK(f.err.find("skytape-lab: error: ") == 0);
    CHECK(f.err.find(part) != std::string::npos);
    CHECK(std::count(f.err.begin(), f.err.end(), '\n') == 1);
    CHECK(f.out.empty());
  };
  const std::string nowhere = (lab.folder.path() / "nowhere").string();
  fails("approx", {"--attention", "skyfromer"}, 2, "did you mean 'skyformer'");
  fails("approx", {"--n", "64", "--features", "128"}, 2, "at most n = 64, got 128");
  fails("approx", {"--run", lab.run, "--features", "8", "--n", "128"}, 2, "--n: expected 1..64");
  fails("approx", {"--run", lab.run, "--from", "fresh"}, 2, "give one of");
  fails("approx", {"--from", "scratch"}, 2, "expected fresh");
  fails("approx", {"--set", "gamma=1"}, 2, "<method>.<option>=value");
  fails("approx", {"--data", nowhere}, 2, "--data has no effect without --run");
  fails("spectrum", {"--run", lab.run, "--n", "32"}, 2, "expected 1..64 landmarks");
  for (const char* name : {"approx", "spectrum"}) {
    fails(name, {"--run", nowhere}, 3, "holds no run");
    fails(name, {"--run", lab.run, "--recipe", "skytape"}, 2, "--recipe is the fresh model's");
    fails(name, {"--run", lab.run, "--untrained"}, 2, "--untrained has no effect without --model");
    fails(name, {"--recipe", "skyfromer"}, 2, "did you mean 'skyformer'");
    const fs::path file = lab.folder.path() / "k.safetensors";
    train::write_safetensors(file, {{"k", Tensor::zeros({4, 2}, DType::f32, Device::cpu)}}, {});
    fails(name, {"--qkv", file}, 3, "no tensor q");
    fails(name, {"--qkv", nowhere}, 2, "expected FILE.safetensors");
  }
  CHECK_FALSE(fs::exists(lab.folder.path() / "figures"));
}

TEST_CASE("spectrum says that a source has fewer examples than it takes") {
  if (!program_or_skip()) return;
  const Folder folder;
  const fs::path file = folder.path() / "qkv.safetensors";
  const Tensor x = tensor::normal({2, 1, 32, 4}, Random{3, {}}, DType::f32, Device::cpu);
  train::write_safetensors(file, {{"q", x}, {"k", x}, {"v", x}}, {});
  const fs::path out = folder.path() / "figures";
  const auto of_file = [&](const char* examples) {
    return run_program(folder.path(), {"spectrum", "--qkv", file, "--features", "4", "--examples",
                                       examples, "--out", out});
  };
  CHECK(of_file("2").out.starts_with("given queries, keys and values\n"));
  const std::string few = "the source has fewer than 3 examples of 32 positions: they repeat";
  const Finished spectrum = of_file("3");
  CHECK(spectrum.out.starts_with("given queries, keys and values; " + few + "\n"));
  const std::string kept = read_file(out / "spectrum.json");
  CHECK(data::parse_json(kept)["facts"]["repetition"] == few);
}
