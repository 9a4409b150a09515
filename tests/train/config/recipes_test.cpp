#include "train/config/recipes.hpp"
#include "tensor/gemm/precision.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "attention/registry.hpp"
#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "train/config/keys.hpp"
#include "train/config/run_config.hpp"
#include "train/config/settings.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::error_of;

namespace {

using Table = std::map<std::string, std::string>;

Table recipe(const std::string& name, const std::string& task, const std::string& method) {
  Table table;
  for (const Setting& s : recipe_settings(name, task, method)) table[s.key] = s.value;
  return table;
}

/// key=value key=value, as after --set.
std::vector<Choice> sets(const std::string& text) {
  std::vector<Choice> values;
  std::istringstream in(text);
  for (std::string one; in >> one;) {
    const std::size_t sign = one.find('=');
    values.push_back({one.substr(0, sign), one.substr(sign + 1), "--set"});
  }
  return values;
}

Choices choices(std::vector<Choice> values = {}, std::string_view task = "listops",
                std::string_view attention = "skyformer") {
  Choices c;
  c.task = task;
  c.attention = attention;
  c.values = std::move(values);
  return c;
}

/// The same with the papers' model, whose values stay.
Choices of_papers(std::vector<Choice> values = {}, std::string_view attention = "skyformer") {
  Choices c = choices(std::move(values), "listops", attention);
  c.recipe = "skyformer";
  return c;
}

const Setting& setting(const RunConfig& config, const std::string& key) {
  const auto found = std::find_if(config.settings.begin(), config.settings.end(),
                                  [&](const Setting& s) { return s.key == key; });
  const bool is_there = found != config.settings.end();
  REQUIRE(is_there);
  return *found;
}

/// One cell row of the papers' hyper-parameter table.
struct PaperRow {
  const char *recipe, *task, *batch, *lr, *warmup, *steps, *eval_every, *features, *patience;
};

}  // namespace

TEST_CASE("recipes hold every row of the papers' hyper-parameters") {
  const PaperRow rows[] = {
      {"skyformer", "listops", "32", "1e-4", "1000", "50000", "500", "128", "0"},
      {"skyformer", "text", "16", "1e-4", "80", "50000", "500", "128", "0"},
      {"skyformer", "retrieval", "16", "2e-4", "800", "50000", "1000", "128", "0"},
      {"skyformer", "pathfinder", "128", "2e-4", "312", "50000", "500", "128", "0"},
      {"skyformer", "image", "256", "1e-4", "175", "50000", "50", "128", "0"},
      {"skeinformer", "listops", "256", "1e-4", "1000", "20000", "500", "256", "10"},
      {"skeinformer", "text", "128", "1e-4", "80", "50000", "500", "256", "10"},
      {"skeinformer", "retrieval", "64", "1e-4", "800", "60000", "300", "256", "10"},
      {"skeinformer", "pathfinder", "512", "2e-4", "312", "31200", "312", "256", "10"},
      {"skeinformer", "image", "256", "1e-4", "175", "50000", "50", "256", "10"},
  };
  for (const PaperRow& row : rows) {
    CAPTURE(row.recipe);
    CAPTURE(row.task);
    Table t = recipe(row.recipe, row.task, "softmax");
    CHECK(t["batch"] == row.batch);
    CHECK(t["lr"] == row.lr);
    CHECK(t["warmup"] == row.warmup);
    CHECK(t["steps"] == row.steps);
    CHECK(t["eval_every"] == row.eval_every);
    CHECK(t["features"] == row.features);
    CHECK(t["patience"] == row.patience);
    CHECK(t["layers"] == "2");
    CHECK(t["width"] == "64");
    CHECK(t["ff_width"] == "128");
    CHECK(t["heads"] == "2");
    CHECK(t["dropout"] == "0.1");
    CHECK(t["attention_dropout"] == "0.1");
    CHECK(t["weight_decay"] == "0");
    CHECK(t["mask"] == "nonzero");
    CHECK(t["drop_close"] == "1");
    CHECK(t["accumulate"] == "1");
  }
}

TEST_CASE("recipe lra holds the arena's released configurations") {
  struct Cell {
    const char *task, *batch, *warmup, *steps, *layers, *width, *ff_width, *heads, *schedule;
    double rate;  // the code's, divided by the root of the warm-up where the schedule is
  };
  const Cell cells[] = {
      {"listops", "32", "1000", "5000", "6", "512", "2048", "8", "inverse_sqrt",
       0.05 / std::sqrt(1000)},
      {"text", "32", "8000", "20000", "4", "256", "1024", "4", "inverse_sqrt",
       0.05 / std::sqrt(8000)},
      {"retrieval", "32", "8000", "5000", "4", "128", "512", "4", "inverse_sqrt",
       0.05 / std::sqrt(8000)},
      {"pathfinder", "512", "312", "62400", "1", "128", "128", "4", "cosine", 1e-3},
      {"image", "256", "175", "35000", "1", "32", "64", "1", "cosine", 5e-4},
  };
  for (const Cell& cell : cells) {
    CAPTURE(cell.task);
    Table t = recipe("lra", cell.task, "softmax");
    CHECK(t["batch"] == cell.batch);
    CHECK(t["warmup"] == cell.warmup);
    CHECK(t["steps"] == cell.steps);
    CHECK(t["layers"] == cell.layers);
    CHECK(t["width"] == cell.width);
    CHECK(t["ff_width"] == cell.ff_width);
    CHECK(t["heads"] == cell.heads);
    CHECK(t["schedule"] == cell.schedule);
    CHECK(std::stod(t["lr"]) == doctest::Approx(cell.rate).epsilon(1e-8));
    CHECK(t["select"] == "last");
    CHECK(t["beta2"] == "0.98");
    CHECK(t["adam_epsilon"] == "1e-9");
  }
  CHECK(recipe("lra", "listops", "softmax")["pooling"] == "cls");
  CHECK(recipe("lra", "listops", "linformer")["features"] == "16");
  CHECK(recipe("lra", "listops", "local")["local.form"] == "official");
  CHECK_FALSE(recipe("lra", "listops", "linformer").contains("linformer.frozen"));

  Choices c = choices({}, "retrieval", "softmax");
  c.recipe = "lra";
  const RunConfig retrieval = resolve(c);  // its rate never stops rising
  CHECK(retrieval.schedule.curve == nn::Curve::inverse_sqrt);
  CHECK(retrieval.schedule.lr(4999) > retrieval.schedule.lr(4000));
  CHECK(retrieval.adamw.beta2 == 0.98);
  CHECK(retrieval.adamw.epsilon == 1e-9);
  c.task = "pathfinder";
  CHECK(resolve(c).model.head_width == 16);
  CHECK(resolve(c).schedule.curve == nn::Curve::cosine);
}

TEST_CASE("single methods accumulate as the papers' configurations say") {
  const auto microbatches = [](const char* r, const char* task, const char* method) {
    return recipe(r, task, method)["accumulate"];
  };
  CHECK(microbatches("skyformer", "listops", "kernelized") == "1");
  CHECK(microbatches("skyformer", "text", "kernelized") == "2");
  CHECK(microbatches("skyformer", "retrieval", "kernelized") == "2");
  CHECK(microbatches("skyformer", "pathfinder", "informer") == "2");
  CHECK(microbatches("skeinformer", "listops", "skeinformer") == "2");
  CHECK(microbatches("skeinformer", "listops", "skein_nonorm") == "4");
  CHECK(microbatches("skeinformer", "listops", "skein_uniform") == "1");
  CHECK(microbatches("skeinformer", "text", "skein_nonorm") == "8");
  CHECK(microbatches("skeinformer", "retrieval", "skeinformer") == "1");
  CHECK(microbatches("skeinformer", "retrieval", "skein_nonorm") == "16");
  CHECK(microbatches("skeinformer", "image", "informer") == "2");
  CHECK(microbatches("skytape", "text", "kernelized") == "1");
}

TEST_CASE("recipe skytape fixes the known bugs of the papers' code") {
  Table t = recipe("skytape", "listops", "skyformer");
  CHECK(t["drop_close"] == "0");
  CHECK(t["mask"] == "length");
  CHECK(t["text.dev"] == "heldout");
  CHECK(t["eval_examples"] == "0");
  CHECK(t["select"] == "best_accuracy");
  CHECK(t["group_by_length"] == "1");
  CHECK_FALSE(t.contains("skyformer.scale"));
  Table papers = recipe("skyformer", "listops", "skyformer");
  CHECK(papers["skyformer.scale"] == "0.42044820762685725");
  CHECK(papers["skyformer.landmarks"] == "official");
  CHECK(papers["skyformer.inverse_start"] == "official");
  CHECK(papers["select_after"] == "0.2");
  CHECK(papers["eval_examples"] == "1984");
  CHECK(recipe("skeinformer", "listops", "softmax")["select"] == "best_loss");
  CHECK(recipe("skeinformer", "listops", "softmax")["clip_value"] == "0");
}

TEST_CASE("a recipe's text says what differs from the defaults, for whom, or what is wrong where") {
  const std::string text =
      "batch=8 lr=1e-2  # of all\n"
      "[listops] batch=16\n"
      "  width=32\n"
      "[skein*] weighted=0\n"
      "[listops skyformer] features=7 gamma=0.3\n"
      "[sinkhorn] sinkhorn.steps=1\n";
  const Recipe mine = parse_recipe("mine", text, "mine.recipe");
  const auto value = [&](const char* task, const char* method, const char* key) {
    for (const Setting& s : recipe_settings(mine, task, method)) {
      if (s.key == key) return s.value + ", " + s.origin;
    }
    return std::string("none");
  };
  CHECK(value("text", "softmax", "batch") == "8, recipe mine");
  CHECK(value("listops", "softmax", "batch") == "16, recipe mine, row listops");
  CHECK(value("listops", "softmax", "width") == "32, recipe mine, row listops");
  CHECK(value("text", "softmax", "width") == "64, default");
  CHECK(value("listops", "skyformer", "features") == "7, recipe mine, row listops skyformer");
  CHECK(value("listops", "skyformer", "skyformer.gamma").starts_with("0.3, "));
  CHECK(value("text", "skyformer", "skyformer.gamma") == "none");
  CHECK(value("text", "sinkhorn", "sinkhorn.steps") == "1, recipe mine, row sinkhorn");
  CHECK(value("text", "skein_nonorm", "skein_nonorm.weighted").starts_with("0, "));
  CHECK(value("text", "softmax", "steps") == "none");

  const auto fault = [](const std::string& broken) {
    return error_of<UsageError>([&] { (void)parse_recipe("mine", broken, "mine.recipe"); });
  };
  CHECK(fault("batch=8\nbatsh=8").starts_with("mine.recipe:2: unknown key 'batsh'"));
  CHECK(fault("lr=fast").starts_with("mine.recipe:1: lr: expected 0..10, got 'fast'"));
  CHECK(fault("lr").starts_with("mine.recipe:1: expected key=value, got 'lr'"));
  CHECK(fault("[listop] lr=1").starts_with("mine.recipe:1: [listop]: 'listop' is neither"));
  CHECK(fault("[listops lr=1").starts_with("mine.recipe:1: expected ]"));
  CHECK(fault("[softmax] gamma=1").starts_with("mine.recipe:1: unknown key 'gamma'"));
  CHECK(fault("[sinkhorn] steps=1").starts_with("mine.recipe:1: steps: expected 3.."));
  CHECK(fault("gamma=1").starts_with("mine.recipe:1: unknown key 'gamma'"));

  Choices c = choices();
  CHECK(error_of<UsageError>([&] { (void)resolve(c, mine); }) ==
        "recipe mine: no warmup for listops, which has no default");
  c.values = sets("warmup=2 steps=9 eval_every=3");
  CHECK(resolve(c, mine).model.width == 32);
  CHECK(resolve(c, mine).recipe == "mine");
  c.recipe = "skytap";
  CHECK(error_of<UsageError>([&] { (void)resolve(c); }).find("did you mean 'skytape'") !=
        std::string::npos);
}

TEST_CASE("the settings of a run are a recipe: of the same method, and of others") {
  Choices c = choices(sets("features=16 positions=rotary"), "listops", "linformer");
  // A recipe's rotary positions would give way to learned ones
  const RunConfig config = resolve(c);
  const Recipe same = recipe_of_run(to_json(config), "config.json");
  CHECK(same.task == "listops");
  CHECK(same.attention == "linformer");
  c.values = {};
  CHECK(to_json(resolve(c, same)) == to_json(config));
  c.attention = "vmean";
  c.task = "text";
  const RunConfig other = resolve(c, same);
  CHECK(other.model.positions == nn::Positions::learned);
  CHECK(other.batches.batch == config.batches.batch);
  CHECK(error_of<DataError>([] {
          (void)recipe_of_run(data::Json(), "x/config.json");
        }).starts_with("x/config.json: not a configuration"));
}

TEST_CASE("every task has a complete recipe") {
  for (const data::TaskInfo& task : data::tasks()) {
    for (const Recipe& info : recipes()) {
      Choices c = choices({}, task.name, "softmax");
      c.recipe = info.name;
      CAPTURE(task.name);
      CHECK(error_of([&] { (void)resolve(c); }) == "");
    }
  }
}

TEST_CASE("a shorter run keeps its share of warm-up, two steps at least") {
  RunConfig config = resolve(of_papers({{"steps", "500", "--steps"}}));
  CHECK(config.schedule.steps == 500);
  CHECK(config.schedule.warmup == 10);
  CHECK(setting(config, "warmup").origin == "1000 of 50000 steps, scaled to 500");
  CHECK(setting(config, "steps").origin == "--steps");
  CHECK(resolve(choices({{"steps", "10", "--steps"}})).schedule.warmup == 2);
  CHECK(resolve(choices({{"steps", "500", "--steps"}, {"warmup", "7", "--set"}})).schedule.warmup ==
        7);
}

TEST_CASE("the steps before lengths grow keep their share of the steps they are part of") {
  const RunConfig whole = resolve(choices({}));
  const std::int64_t hold = whole.batches.grow_hold, growing = whole.batches.grow_steps;
  REQUIRE(hold > 0);
  const auto hold_where = [](const std::string& key, std::int64_t value) {
    return resolve(choices({{key, std::to_string(value), "--set"}})).batches.grow_hold;
  };
  CHECK(hold_where("steps", whole.schedule.steps / 2) == hold / 2);
  CHECK(hold_where("length_warmup", growing / 2) == hold / 2);
  CHECK(hold_where("length_warmup", 0) == 0);
}

TEST_CASE("other programs' names lead to keys, in any spelling") {
  for (const char* name : {"learning_rate", "learning-rate", "--learning_rate", "learningrate"}) {
    CHECK(key_called(name) == "lr");
  }
  for (const char* name : {"batch_size", "max_steps", "warmup_steps", "hidden_size", "adam_beta2",
                           "num_attention_heads", "layer_norm_eps", "lr_scheduler_type"}) {
    CHECK_MESSAGE(find_key(key_called(name)) != nullptr, name);
  }
  CHECK(key_called("lr").empty());
  CHECK(key_called("-").empty());
}

TEST_CASE("wrong keys, values and keys without effect are refused by name") {
  const auto refusal = [](const std::string& key, const std::string& value,
                          const std::string& attention = "skyformer") {
    const Choices c = choices({{key, value, "--set"}}, "listops", attention);
    return error_of<UsageError>([&] { (void)resolve(c); });
  };
  CHECK(refusal("warmpu", "5").find("did you mean 'warmup'") != std::string::npos);
  CHECK(refusal("lr", "fast").find("lr: expected 0..10, got 'fast'") != std::string::npos);
  CHECK(refusal("batch", "0").find("batch: expected 1..65536, got '0'") != std::string::npos);
  CHECK(refusal("select", "best").find("expected best_accuracy|best_loss|last") !=
        std::string::npos);
  CHECK(refusal("heads", "3").find("multiple of heads") != std::string::npos);
  CHECK(refusal("accumulate", "64").find("at most batch = 32") != std::string::npos);
  CHECK(refusal("features", "64", "softmax").find("no effect") != std::string::npos);
  CHECK(refusal("attention_dropout", "0").find("no effect") != std::string::npos);
  CHECK(refusal("mask", "nonzero").find("no effect") != std::string::npos);
  CHECK(refusal("text.dev", "test").find("no effect") != std::string::npos);
  CHECK(refusal("skyformer.gamma", "0.2", "softmax").find("no effect") != std::string::npos);
  CHECK(refusal("skyformer.gama", "0.2").find("skyformer.gamma") != std::string::npos);
  CHECK(refusal("skyformer.gamma", "-1").find("skyformer.gamma: expected") != std::string::npos);

  Choices twice = choices({{"batch", "4", "--set"}, {"batch", "8", "--batch"}});
  CHECK(error_of<UsageError>([&] { (void)resolve(twice); }).find("set twice") != std::string::npos);
  Choices last = choices(sets("select=last select_after=0.5"));
  CHECK(error_of<UsageError>([&] { (void)resolve(last); }).find("no effect") != std::string::npos);
}

TEST_CASE("pooling, positions and growing lengths reach the model and the batches") {
  const RunConfig usual = resolve(of_papers());
  CHECK(usual.model.pooling == nn::Pooling::nominal);
  CHECK(usual.model.positions == nn::Positions::learned);
  CHECK(usual.batches.grow_steps == 0);
  CHECK(usual.batches.first_token == -1);
  const RunConfig config = resolve(choices(
      sets("pooling=cls positions=rotary rotary_base=1000 length_warmup=1500 length_hold=500 "
           "length_whole=16 length_start=32 length_growth=geometric length_keep=ends both_ends=1 "
           "conv_width=5 ngrams=4 ngram_rows=1000 label_smoothing=0.1")));
  CHECK(config.model.pooling == nn::Pooling::cls);
  CHECK(config.model.positions == nn::Positions::rotary);
  CHECK(config.model.rotary_base == 1000);
  CHECK(config.model.label_smoothing == 0.1);
  CHECK(config.batches.grow_steps == 1500);
  CHECK(config.batches.grow_hold == 500);
  CHECK(config.batches.grow_whole == 16);
  CHECK(config.batches.grow_start == 32);
  CHECK(config.batches.growth == data::Growth::geometric);
  CHECK(config.batches.keep == data::Keep::ends);
  CHECK(config.model.both_ends);
  CHECK(config.model.conv_width == 5);
  CHECK(config.model.ngrams == 4);
  CHECK(config.model.ngram_rows == 1000);
  CHECK(config.batches.first_token == config.model.vocabulary);
  for (const char* pooling : {"nominal", "mean", "first", "cls", "max", "attention"}) {
    CHECK(setting(resolve(choices({{"pooling", pooling, "--set"}})), "pooling").value == pooling);
  }
}

TEST_CASE("model options without meaning for a run are refused where the user set them") {
  const auto refusal = [](const std::string& values, const std::string& attention = "skyformer",
                          const std::string& task = "listops") {
    const Choices c = task == "listops" ? of_papers(sets(values), attention)
                                        : choices(sets(values), task, attention);
    return error_of<UsageError>([&] { (void)resolve(c); });
  };
  const auto says = [](const std::string& text, const std::string& part) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, "got: ", text);
  };
  says(refusal("positions=rotary", "vmean"), "vmean reads neither");
  CHECK(refusal("positions=rotary", "linformer").empty());
  says(refusal("positions=rotary width=6"), "expected an even width / heads, got 3");
  says(refusal("rotary_base=1000"), "rotary_base has no effect");
  says(refusal("length_start=32"), "length_start has no effect");
  says(refusal("length_keep=ends"), "length_keep has no effect");
  says(refusal("conv_width=4"), "conv_width: expected an odd number of taps");
  says(refusal("patch=5"), "patch: the tokens of listops are no pixels");
  says(refusal("pyramid=1"),
       "pyramid: it halves pictures, but the tokens of listops are no pixels");
  CHECK(refusal("pyramid=1", "softmax", "image").empty());
  says(refusal("pyramid=1 pooling=max", "softmax", "image"),
       "pyramid: the mean over its top is taken");
  says(refusal("patch=4", "softmax", "image"), "patch: expected an odd number");
  says(refusal("conv_width=0 pooling=cls", "softmax", "image"), "patch: pooling=cls");
  says(refusal("mirror=1"), "mirror: the tokens of listops are no pixels; expected 0");
  says(refusal("shift=2"), "shift: the tokens of listops are no pixels; expected 0");
  says(refusal("shift=32", "softmax", "image"),
       "shift: expected less than the 32 pixels of a line of image, got 32");
  says(refusal("conv_width=0 patch=0 mirror=1 pooling=cls", "softmax", "image"),
       "mirror: pooling=cls");
  says(refusal("conv_width=0 patch=0 mirror=0 shift=2 pooling=cls", "softmax", "image"),
       "shift: pooling=cls");
  CHECK(refusal("mirror=1 shift=2", "softmax", "image").empty());
  says(refusal("pair_cosine=1"), "pair_cosine: listops has no pairs of documents");
  says(refusal("ngrams=1"), "ngrams: expected at least 2 tokens");
  says(refusal("ngram_rows=100"), "ngram_rows has no effect");
  says(refusal("ngram_deviation=1"), "ngram_deviation has no effect");
  says(refusal("conv_width=3 pooling=cls", "softmax", "image"), "conv_width: pooling=cls");
  says(refusal("length_keep=middle"), "length_keep: expected front|ends");
  says(refusal("positions=relative"), "positions: expected learned|sinusoidal|rotary|none");
  says(refusal("pooling=sum"), "pooling: expected nominal|mean|first");
  says(refusal("length_warmup=90000"), "length_warmup: expected at most steps");
  says(refusal("length_warmup=100 length_hold=101"),
       "length_hold: expected at most length_warmup = 100");
  says(refusal("length_warmup=100 length_start=4096"),
       "length_start: expected at most the 2048 positions");
  says(refusal("patch=0 conv_width=0 mirror=0 pooling=cls", "skyformer", "image"),
       "max_length=1023, which leaves out the last pixel");
  CHECK(refusal("patch=0 conv_width=0 mirror=0 pooling=cls max_length=1023", "skyformer", "image")
            .empty());
  says(refusal("pooling=first mask=nonzero", "skyformer", "image"), "mask=nonzero hides");
}

TEST_CASE(
    "a recipe's value that has no meaning for a method gives way to a row's, which says why") {
  const Setting rotary = {"positions", "rotary", "recipe some"};
  CHECK(for_method(rotary, "softmax").value == "rotary");
  CHECK(for_method(rotary, "softmax").origin == "recipe some");
  CHECK(for_method(rotary, "vmean").value == "learned");
  CHECK(for_method(rotary, "vmean").origin ==
        "recipe some, row vmean: it reads no queries and keys");
  CHECK(for_method({"positions", "none", "recipe some"}, "vmean").value == "none");
  for (const Instead& row : instead_rows()) {
    CAPTURE(row.method);
    const auto taken = [&](std::string_view value) {
      const Choices c =
          choices({{std::string(row.key), std::string(value), "--set"}}, "listops", row.method);
      return error_of([&] { (void)resolve(c); }).empty();
    };
    CHECK(taken(row.instead));
  }
  for (const attention::Spec& spec : attention::registry()) {  // none is forgotten
    const Choices c = choices(sets("positions=rotary"), "listops", spec.name);
    const bool refused = !error_of([&] { (void)resolve(c); }).empty();
    CAPTURE(spec.name);
    if (refused) CHECK(for_method(rotary, spec.name).value != "rotary");
  }
}

TEST_CASE("every recipe runs every method on every task") {
  for (const data::TaskInfo& task : data::tasks()) {
    for (const attention::Spec& spec : attention::registry()) {
      for (const Recipe& info : recipes()) {
        Choices c = choices({}, task.name, spec.name);
        c.recipe = info.name;
        CAPTURE(task.name);
        CAPTURE(spec.name);
        CHECK(error_of([&] { (void)resolve(c); }) == "");
      }
    }
  }
}

TEST_CASE("a task's row of a recipe replaces the row of every task, and a key comes once") {
  for (const Recipe& info : recipes()) {
    for (const data::TaskInfo& task : data::tasks()) {
      std::vector<std::string> keys;
      for (const Setting& s : recipe_settings(info.name, task.name, "softmax"))
        keys.push_back(s.key);
      std::sort(keys.begin(), keys.end());
      const auto twice = std::adjacent_find(keys.begin(), keys.end());
      CHECK((twice == keys.end() ? "" : *twice) == "");
    }
  }
  CHECK(recipe("skytape", "listops", "softmax")["conv_width"] == "15");
  CHECK(recipe("skytape", "pathfinder", "softmax")["conv_width"] == "0");
}

TEST_CASE("who bounds evaluations bounds the last ones, too; a recipe's bound is of those before") {
  CHECK(resolve(of_papers()).eval_examples == 1984);
  CHECK(resolve(of_papers()).final_examples == 0);
  CHECK(resolve(of_papers(sets("eval_examples=64"))).final_examples == 64);
  const RunConfig both = resolve(of_papers(sets("eval_examples=64 final_examples=0")));
  CHECK(both.eval_examples == 64);
  CHECK(both.final_examples == 0);
}

TEST_CASE("a configuration of before a key reads as the value it had then") {
  const RunConfig config = resolve(of_papers());
  const data::Json now = to_json(config);
  data::Json old = now;
  for (const char* key :
       {"pooling",         "positions",     "rotary_base",    "length_warmup", "length_hold",
        "length_whole",    "length_start",  "length_growth",  "length_keep",   "both_ends",
        "patch",           "ngrams",        "ngram_rows",     "pair_cosine",   "conv_width",
        "label_smoothing", "class_weights", "final_examples", "schedule",      "beta2",
        "adam_epsilon",    "head_width",    "residual_scale", "token_types",   "ngram_deviation",
        "mirror",          "shift"}) {
    old["settings"].erase(key);
  }
  const RunConfig read = config_from_json(old, "config.json");
  CHECK(read.model.norm == nn::Norm::pre);
  CHECK(read.model.pooling == nn::Pooling::nominal);
  CHECK(read.model.positions == nn::Positions::learned);
  CHECK(read.batches.grow_steps == 0);
  CHECK(first_difference(old, now).empty());
  const data::Json other = to_json(resolve(of_papers(sets("pooling=mean"))));
  CHECK(first_difference(old, other) == "pooling: \"nominal\" there, \"mean\" here");
}

TEST_CASE("a checkpoint that counts the pyramid among the poolings is the same run") {
  const Choices c = choices({}, "pathfinder");
  const data::Json now = to_json(resolve(c));
  REQUIRE(now.at("settings").at("pyramid").at("value") == "1");
  data::Json old = now;
  old["settings"].erase("pyramid");
  CHECK(first_difference(old, now) == "pyramid: \"0\" there, \"1\" here");
  old["settings"]["pooling"]["value"] = "pyramid";
  CHECK(first_difference(old, now).empty());
  const RunConfig read = config_from_json(old, "config.json");
  CHECK(read.model.pyramid);
  CHECK(read.model.pooling == nn::Pooling::mean);
}

TEST_CASE("a configuration survives JSON and its differences are found by name") {
  const RunConfig config = resolve(choices({{"features", "32", "--features"}}));
  const data::Json saved = to_json(config);
  const RunConfig again = config_from_json(saved, "config.json");
  CHECK(to_json(again) == saved);
  CHECK(again.model.attention_options == config.model.attention_options);
  CHECK(again.schedule.warmup == config.schedule.warmup);
  CHECK(first_difference(saved, to_json(again)).empty());

  const data::Json other = to_json(resolve(choices({{"features", "64", "--features"}})));
  CHECK(first_difference(saved, other) == "features: \"32\" there, \"64\" here");
  data::Json broken = saved;
  broken.erase("seed");
  CHECK(error_of<DataError>([&] {
          (void)config_from_json(broken, "x/config.json");
        }).find("x/config.json") != std::string::npos);
}

TEST_CASE("trivial baselines are known for the benchmark's tasks") {
  CHECK(trivial_baseline("listops").accuracy == doctest::Approx(0.362));
  CHECK(trivial_baseline("text").accuracy == doctest::Approx(0.662));
  CHECK(trivial_baseline("tsv").accuracy < 0);
}

TEST_CASE("precisions have three names") {
  CHECK(parse_precision("bf16") == Precision::bf16);
  CHECK_THROWS_WITH_AS((void)parse_precision("fp16"),
                       "precision: expected fp32, tf32 or bf16, got fp16", UsageError);
}

TEST_CASE("pre-training grows lengths over the same share of its own steps") {
  const RunConfig config = resolve(choices({{"pretrain_steps", "300", "--set"},
                                            {"steps", "3000", "--steps"},
                                            {"length_warmup", "2000", "--set"},
                                            {"length_hold", "500", "--set"}}));
  const RunConfig first = pretraining_of(config);
  CHECK(first.steps() == 300);
  CHECK(first.batches.grow_steps == 200);
  CHECK(first.batches.grow_hold == 50);
  CHECK(pretraining_of(first).batches.grow_steps == 200);  // the phase of a phase is the same
  const RunConfig saved = config_from_json(to_json(first), "config.json");
  CHECK(saved.batches.grow_steps == 200);
  CHECK(saved.schedule.steps == 300);
}

TEST_CASE(
    "a short pre-training warms up over a tenth of its steps unless the user says otherwise") {
  const auto warmup = [](std::vector<Choice> values) {
    return setting(resolve(choices(std::move(values))), "pretrain_warmup");
  };
  CHECK(warmup({}).value == "100");
  CHECK(warmup(sets("pretrain_steps=5000")).value == "100");
  CHECK(warmup(sets("pretrain_steps=400")).value == "40");
  CHECK(warmup(sets("pretrain_steps=400")).origin == "100 steps, scaled to a tenth of 400");
  CHECK(warmup(sets("pretrain_steps=3")).value == "2");
  CHECK(warmup(sets("pretrain_steps=400 pretrain_warmup=300")).value == "300");
  CHECK_THROWS_WITH_AS((void)warmup(sets("pretrain_steps=400 pretrain_warmup=500")),
                       doctest::Contains("at most pretrain_steps = 400, got 500"), UsageError);
}

TEST_CASE("a corpus is pre-trained by RoBERTa's recipe, but for what machines decide") {
  Choices c = choices({{"pretrain_steps", "10000", "--steps"}}, "corpus");
  const RunConfig config = pretraining_of(resolve(c));
  CHECK(config.pretraining.masking.rate == 0.15);
  CHECK(config.pretraining.masking.keep == 0.1);
  CHECK(config.pretraining.masking.random == 0.1);
  CHECK(config.adamw.beta2 == 0.98);
  CHECK(config.adamw.epsilon == 1e-6);
  CHECK(config.adamw.weight_decay == 0.01);
  CHECK(config.adamw.clip_value == 0);
  CHECK(config.model.dropout == 0.1);
  CHECK(config.model.positions == nn::Positions::learned);
  // 24,000 of 500,000 steps warm up, and beta1 stays where it is.
  CHECK(config.schedule.warmup * 500 == config.schedule.steps * 24);
  CHECK(config.schedule.lr(479) == doctest::Approx(6e-4).epsilon(1e-12));
  CHECK(config.schedule.lr(9999) == 0);
  CHECK(config.schedule.beta1(0) == 0.9);
  CHECK(config.schedule.beta1(479) == 0.9);

  c.values.push_back({"schedule", "one_cycle", "--set"});
  CHECK(pretraining_of(resolve(c)).schedule.beta1(479) == 0.85);
  c.values.back().value = "triangle";
  CHECK(error_of<UsageError>([&] { (void)resolve(c); }).find("one_cycle|inverse_sqrt|cosine|") !=
        std::string::npos);
  // Other tasks train as before.
  CHECK(resolve(choices()).schedule.curve == nn::Curve::one_cycle);
  CHECK(resolve(choices()).adamw.beta2 == 0.999);
}

TEST_CASE("hidden tokens are replaced by tokens that the run has, and by none else") {
  const auto masking = [](const char* task, const char* drop_close) {
    Choices c = choices({}, task);
    if (*drop_close != 0) c.values = {{"drop_close", drop_close, "--set"}};
    return resolve(c).pretraining.masking;
  };
  CHECK(masking("listops", "0").first_id == 1);
  CHECK(masking("listops", "0").end_id == 16);
  CHECK(masking("listops", "0").mask_id == 31);
  CHECK(masking("listops", "1").end_id == 15);  // no `]`
  CHECK(masking("text", "").first_id == 1);
  CHECK(masking("text", "").end_id == 257);
  CHECK(masking("image", "").first_id == 0);
  CHECK(masking("image", "").end_id == 256);
}
