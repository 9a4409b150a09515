#include "train/config/identity.hpp"

#include <string>
#include <vector>

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/config/choices.hpp"
#include "train/config/keys.hpp"
#include "train/config/resume.hpp"

using namespace skytape;
using namespace skytape::train;
using data::Json;
using data::synthetic::error_of;
using data::synthetic::Folder;
using test::choices, test::contains, test::setting, test::sets;

namespace {

/// The config.json of a run of seed 7, which is not the default.
Json config_of(const std::string& values, const std::string& attention = "skyformer",
               const std::string& recipe = "skytape") {
  Choices c = choices(sets(values), "listops", attention);
  c.recipe = recipe;
  c.seed = 7;
  return to_json(resolve(c));
}

}  // namespace

TEST_CASE(
    "a run is known by its settings: not by recipe, device, origins, spelling or checkpoints") {
  const Json one = config_of("lr=1e-3 features=24");
  Json other = config_of("lr=0.001 features=24 checkpoint_every=77");
  other["recipe"] = "mine.recipe (file)";
  other["device"] = "cuda";
  for (auto& [key, setting] : other["settings"].items()) setting["origin"] = "somebody";
  CHECK(differences(one, other) == "");
  other["seed"] = 8;
  CHECK(differences(one, other) == "seed: 7 there, 8 here");
  CHECK(differences(identity_of(one), identity_of(other)) == "");  // the seed aside
  // Seeds are compared to the last digit.
  Json large = one;
  other = one;
  large["seed"] = std::uint64_t{9007199254740993U};
  other["seed"] = std::uint64_t{9007199254740992U};
  CHECK_FALSE(differences(large, other).empty());
}

TEST_CASE("all keys in which two runs differ are named, with both values") {
  const Json one = config_of("lr=1e-3 features=24 dropout=0.2");
  const Json other = config_of("lr=2e-3 features=24 dropout=0.3 skyformer.gamma=0.5");
  CHECK(differences(one, other) ==
        "dropout: 0.2 there, 0.3 here; lr: 1e-3 there, 2e-3 here; skyformer.gamma: 0.1 there, "
        "0.5 here");
  const std::string many = differences(one, config_of("", "softmax", "lra"));
  for (const char* part :
       {"attention: skyformer there, softmax here", "beta2: 0.999 there, 0.98 here", "width"}) {
    CHECK_MESSAGE(many.find(part) != std::string::npos, many);
  }
}

TEST_CASE("a key that a config.json lacks has its default, of a method's option as well") {
  const Json now = config_of("", "skyformer", "skyformer");
  Json old = now;
  for (const char* key : {"norm", "beta2", "class_weights", "skyformer.gamma"}) {
    old["settings"].erase(key);
  }
  CHECK(differences(old, now) == "");
  const Json other = config_of("beta2=0.9 skyformer.gamma=0.25", "skyformer", "skyformer");
  CHECK(differences(old, other) ==
        "beta2: 0.999 there, 0.9 here; skyformer.gamma: 0.1 there, 0.25 here");
}

TEST_CASE("data and first weights belong to a run, but for weights that it made itself") {
  Json one = config_of(""), other = config_of("");
  one["data"] = {{"name", "listops"}, {"test", {{"examples", 5}, {"fingerprint", "123"}}}};
  other["data"] = {{"name", "listops"}, {"test", {{"examples", 5}, {"fingerprint", "0123"}}}};
  CHECK(differences(one, other) == "data, test: fingerprint 123 there, 0123 here");
  CHECK(without_data(identity_of(one)) == without_data(identity_of(other)));
  one["data"] = other["data"];
  one["init"] = "a1";
  CHECK(differences(one, other) == "init: a1 there, absent here");
  for (Json* config : {&one, &other}) {
    (*config)["settings"]["pretrain_steps"] = {{"value", "40"}, {"origin", "--set"}};
  }
  CHECK(differences(one, other) == "");  // the weights of its first phase hang on its seed
  one["phase"] = other["phase"] = "pretraining";
  CHECK(differences(one, other) == "init: a1 there, absent here");
}

TEST_CASE("runs by different numbers under one name are told apart by the keys that differ") {
  const Json a = config_of("features=24"), c = config_of("features=48");
  Json b = a, d = a, elsewhere = a;
  b["settings"]["lr"]["value"] = "9e-3";  // as a recipe says it that was edited
  d["seed"] = 8;
  elsewhere["task"] = "text";
  elsewhere["settings"]["dropout"]["value"] = "0.4";
  CHECK(distinct_names({a, b, c, d, elsewhere}) ==
        std::vector<std::string>{"skytape, features=24, lr=1e-3", "skytape, features=24, lr=9e-3",
                                 "skytape, features=48", "skytape, features=24, lr=1e-3",
                                 "skytape, features=24"});
  CHECK(distinct_names({a, d}) ==
        std::vector<std::string>{"skytape, features=24", "skytape, features=24"});
  // One flag has one name, however many settings it is.
  Json without = a;
  for (const KeyInfo& key : recipe_keys()) {
    if (key.adds.empty()) continue;
    without["settings"][std::string(key.key)] = {{"value", key.standard}, {"origin", "--set"}};
  }
  CHECK(
      distinct_names({a, without}) ==
      std::vector<std::string>{"skytape, features=24", "skytape, without additions, features=24"});
  without["settings"]["conv_width"]["value"] = "7";
  CHECK(contains(distinct_names({without}).front(), "features=24, mirror=0"));
  // A name that a third run has already is no name for the first.
  Json said = a;
  said["settings"]["lr"] = {{"value", "9e-3"}, {"origin", "--set"}};
  said["settings"]["warmup"]["value"] = "31";
  const std::vector<std::string> names = distinct_names({a, b, said});
  CHECK(names[0] != names[1]);
  CHECK(names[1] != names[2]);
  CHECK(names[0] != names[2]);
}

TEST_CASE("--resume compares what a recipe says now with what the run was started with") {
  const Folder folder;
  const auto write = [&](const std::string& rates) {
    return folder.write("my.recipe", "batch=8 steps=40 eval_every=5 width=32\n[text] " + rates)
        .string();
  };
  const std::string file = write("lr=1e-3 warmup=4 dropout=0.2");
  Choices c = choices(sets("features=24 batch=6"), "text");
  c.recipe = file;
  c.seed = 7;
  c.settings.push_back({"steps", "20", "--steps"});
  const RunConfig started = resolve(c);
  CHECK(started.recipe == "my.recipe (file)");
  CHECK(run_name(started) == "text-skyformer-my.recipe-s7");
  const Json saved = to_json(started);
  Choices again = choices({}, "text");
  again.recipe = file;
  again.given = {"--recipe"};
  const auto resume = [&] { return resumed(again, saved, "runs/a/config.json"); };
  const auto refusal = [&] { return error_of<UsageError>([&] { (void)resume(); }); };
  CHECK(refusal() == "");
  CHECK(to_json(resume()) == saved);  // what the user set then need not be said again
  (void)write("lr=1e-3 warmup=4 dropout=0.2  # as before\n[image] lr=1");
  CHECK(refusal() == "");
  (void)write("lr=5e-3 warmup=4 dropout=0.25");
  CHECK(refusal() ==
        "runs/a/config.json: --resume refuses another configuration: by recipe my.recipe (file): "
        "dropout: 0.2 there, 0.25 here; lr: 1e-3 there, 5e-3 here");
  again.settings = sets("lr=1e-3 dropout=0.2");  // says the old values: the run is the same
  CHECK(refusal() == "");
  again.settings.clear();
  again.recipe = "skytape";
  CHECK(refusal().find("by recipe skytape: ") != std::string::npos);
  // Settings that decide no number may be given anew, and count.
  again.recipe = file;
  (void)write("lr=1e-3 warmup=4 dropout=0.2");
  again.settings = sets("checkpoint_every=3");
  CHECK(resume().checkpoint_every == 3);
}

TEST_CASE("a run whose user set an option that had no effect is continued, by its recipe as well") {
  Json saved = to_json(resolve(choices({}, "text", "synthesizer")));
  saved["settings"]["synthesizer.hidden"] = {{"value", "16"}, {"origin", "--set"}};
  Choices again = choices({}, "text", "synthesizer");
  again.given = {"--recipe"};
  const auto hidden = [&] {
    return setting(resumed(again, saved, "runs/a/config.json"), "synthesizer.hidden").value;
  };
  CHECK(hidden() == "16");
  again.settings = sets("synthesizer.hidden=16");
  CHECK(error_of<UsageError>([&] { (void)hidden(); }).find("logits is factorised") !=
        std::string::npos);
}
