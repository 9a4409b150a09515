// Training as several ranks of one job, from outside: the bits, and who may share a batch.
#include <algorithm>

#include "data/files/json.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/ranks/job.hpp"

using namespace skytape;
using namespace skytape::test;
using data::synthetic::read_file;

namespace {

/// Puts `to` where `from` stands first.
void replace(std::vector<std::string>& words, const std::string& from, const std::string& to) {
  const auto place = std::find(words.begin(), words.end(), from);
  REQUIRE_MESSAGE((place != words.end()), "no ", from, " to replace");
  *place = to;
}

}  // namespace

TEST_CASE("two, three and four ranks end with the bits of one process") {
  if (!mpirun_or_skip()) return;
  const Workshop w;
  const Finished alone = w.finish(train_together(w, "alone", 12));
  CAPTURE(alone.err);
  REQUIRE(alone.code == 0);
  for (const int count : {2, 3, 4}) {
    const std::string name = "r" + std::to_string(count);
    const Finished job = w.finish(train_together(w, name, 12), ranks(count));
    CAPTURE(job.err);
    CHECK(job.code == 0);
    CHECK(same_tensors(w.run("alone") / "last.safetensors", w.run(name) / "last.safetensors"));
    CHECK(same_tensors(w.run("alone") / "best.safetensors", w.run(name) / "best.safetensors"));
    CHECK(metrics_of(w.run("alone")) == metrics_of(w.run(name)));
    CHECK(job.err.find(std::to_string(count) + " ranks on 1 host") != std::string::npos);
    CHECK(count_of(job.err, "step 12/12") == 1);  // one of them speaks
    CHECK(count_of(job.out, "dev accuracy") == 1);
    const data::Json result = data::parse_json(read_file(w.run(name) / "result.json"));
    CHECK(result.at("ranks").get<int>() == count);
  }
}

TEST_CASE("ranks move state without gradient with the bits of one process") {
  if (!mpirun_or_skip()) return;
  const Workshop w;
  const auto words = [&](const std::string& name) {
    std::vector<std::string> all = train_together(w, name, 6, {"--attention", "routing"});
    const auto features = std::find(all.begin(), all.end(), "--features");  // it has none
    all.erase(features, features + 2);
    return all;
  };
  const Finished alone = w.finish(words("alone"));
  CAPTURE(alone.err);
  REQUIRE(alone.code == 0);
  for (const int count : {2, 3}) {
    const std::string name = "r" + std::to_string(count);
    const Finished job = w.finish(words(name), ranks(count));
    CAPTURE(job.err);
    CHECK(job.code == 0);
    CHECK(same_tensors(w.run("alone") / "last.safetensors", w.run(name) / "last.safetensors"));
  }
}

TEST_CASE("dropout and a method's draws of two ranks are one process's, no rank's are another's") {
  if (!mpirun_or_skip()) return;
  const Workshop w;
  // Every example is the same one, so that nothing but what is drawn tells two of them apart.
  std::string rows = "Source\tTarget\n";
  for (int i = 0; i < 8; ++i) rows += "( ( ( ( [MAX 4 ) 3 ) 7 ) ] )\t7\n";
  data::PrepareOptions options;
  options.from = w.folder.path() / "files";
  for (const char* split : {"train", "val", "test"}) {
    w.folder.write("files/basic_" + std::string(split) + ".tsv", rows);
  }
  data::prepare(data::find_task("listops"), w.folder.path() / "same", options);
  struct Case {
    const char* attention;
    std::vector<std::string> drawn;  // shares of what is dropped; features of a drawing method
    bool draws;
  };
  for (const Case& c :
       std::vector<Case>{{"softmax", {"dropout=0", "attention_dropout=0"}, false},
                         {"softmax", {"dropout=0.3", "attention_dropout=0"}, true},
                         {"softmax", {"dropout=0", "attention_dropout=0.3"}, true},
                         {"skyformer", {"dropout=0", "skyformer.features=2"}, true},
                         {"skeinformer", {"dropout=0", "skeinformer.features=2"}, true},
                         {"reformer", {"dropout=0.3"}, true}}) {
    CAPTURE(c.attention);
    CAPTURE(c.drawn[0]);
    CAPTURE(c.drawn.back());
    /// The loss of the first step, of as many examples as ranks and microbatches.
    const auto loss = [&](const std::string& name, int examples, const Place& place) {
      std::filesystem::remove_all(w.run(name));
      std::vector<std::string> words = train_together(w, name, 3, {"--attention", c.attention});
      const auto features = std::find(words.begin(), words.end(), "--features");
      words.erase(features, features + 2);
      replace(words, w.data.string(), (w.folder.path() / "same").string());
      replace(words, "2", "1");  // --log-every
      replace(words, "8", std::to_string(examples));
      replace(words, "accumulate=4", "accumulate=" + std::to_string(examples));
      for (const std::string& set : c.drawn) words.insert(words.end(), {"--set", set});
      const Finished end = w.finish(words, place);
      CAPTURE(end.err);
      REQUIRE(end.code == 0);
      const std::string metrics = read_file(w.run(name) / "metrics.jsonl");
      return data::parse_json(metrics.substr(0, metrics.find('\n'))).at("loss").get<double>();
    };
    const double of_first = loss("first", 1, {}), of_both = loss("both", 2, {});
    CHECK(loss("ranks", 2, ranks(2)) == of_both);
    CHECK(same_tensors(w.run("both") / "last.safetensors", w.run("ranks") / "last.safetensors"));
    CHECK((of_both != of_first) == c.draws);  // the second example has its own draws
  }
}

TEST_CASE("--reduce fast ends near the bits of one process") {
  if (!mpirun_or_skip()) return;
  const Workshop w;
  REQUIRE(w.finish(train_together(w, "alone", 8)).code == 0);
  const Finished job = w.finish(train_together(w, "fast", 8, {"--reduce", "fast"}), ranks(3));
  CAPTURE(job.err);
  CHECK(job.code == 0);
  CHECK(largest_difference(w.run("alone") / "last.safetensors",
                           w.run("fast") / "last.safetensors") < 1e-5);
}

TEST_CASE("ranks without a microbatch in the first steps end with the bits of one process") {
  if (!mpirun_or_skip()) return;
  const Workshop w;
  // 64 examples of 64 positions are one microbatch, of 128 two.
  std::vector<std::string> more;
  for (const char* set : {"pretrain_steps=4", "pretrain_warmup=2", "length_warmup=8",
                          "length_hold=2", "length_start=64"}) {
    more.insert(more.end(), {"--set", set});
  }
  const auto arguments = [&](const std::string& name) {
    std::vector<std::string> words = train_together(w, name, 10, more);
    replace(words, "8", "64");
    replace(words, "max_length=64", "max_length=128");
    replace(words, "accumulate=4", "accumulate=1");
    return words;
  };
  const Finished alone = w.finish(arguments("alone"));
  CAPTURE(alone.err);
  REQUIRE(alone.code == 0);
  const Finished job = w.finish(arguments("job"), ranks(2));
  CAPTURE(job.err);
  CHECK(job.code == 0);
  CHECK(contains(job.err, "up to 2 microbatches"));
  for (const char* file : {"last.safetensors", "pretraining/last.safetensors"}) {
    CHECK(same_tensors(w.run("alone") / file, w.run("job") / file));
  }
}

TEST_CASE("a run continues with other numbers of ranks and ends as if it never stopped") {
  if (!mpirun_or_skip()) return;
  const Workshop w;
  REQUIRE(w.finish(train_together(w, "whole", 12)).code == 0);
  const auto part = [&](int count, std::vector<std::string> more) {
    const Place place = count > 1 ? ranks(count) : Place{};
    const Finished end = w.finish(train_together(w, "parts", 12, std::move(more)), place);
    CAPTURE(end.err);
    CHECK(end.code == 0);
  };
  part(2, {"--stop-after", "4"});
  part(1, {"--stop-after", "7", "--resume"});
  part(4, {"--resume"});
  CHECK(same_tensors(w.run("whole") / "last.safetensors", w.run("parts") / "last.safetensors"));
  CHECK(metrics_of(w.run("whole")) == metrics_of(w.run("parts")));
}

TEST_CASE("ranks that cannot share a batch are refused with both numbers") {
  if (!mpirun_or_skip()) return;
  const Workshop w;
  const Finished many = w.finish(train_together(w, "many", 8), ranks(5));
  CAPTURE(many.err);
  CHECK(many.code == 2);
  CHECK(contains(many.err, "5 ranks, but a batch of 8 examples is computed in 4 microbatches"));
  CHECK(count_of(many.err, "skytape: error") == 1);

  std::vector<std::string> whole = train_together(w, "whole", 8);
  replace(whole, "accumulate=4", "skyformer.inverse_start=official");
  const Finished refused = w.finish(whole, ranks(2));
  CAPTURE(refused.err);
  CHECK(refused.code == 2);
  CHECK(contains(refused.err, "computed in 1 microbatch: skyformer.inverse_start=official needs"));
  CHECK_FALSE(std::filesystem::exists(w.run("whole")));

  const Finished flag = w.finish(train_together(w, "flag", 8, {"--bogus"}), ranks(3));
  CHECK(flag.code == 2);
  // By one where the launcher then ends the job; MPICH's lets the others speak too.
  CHECK(count_of(flag.err, "skytape: error: unknown flag --bogus") >= 1);
}
