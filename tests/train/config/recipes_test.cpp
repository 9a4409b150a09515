#include "train/config/recipes.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "attention/registry.hpp"
#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/config/choices.hpp"
#include "train/config/keys.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::error_of, data::synthetic::read_file;
using test::choices, test::sets;

namespace {

using Table = std::map<std::string, std::string>;

Table recipe(const std::string& name, const std::string& task, const std::string& method) {
  Table table;
  for (const Setting& s : recipe_settings(name, task, method)) table[s.key] = s.value;
  return table;
}

/// Returns what a recipe gives all methods of a task.
struct Row {
  const char *recipe, *task, *batch, *lr, *warmup, *steps, *eval_every, *features, *patience;
};

}  // namespace

TEST_CASE(
    "recipes hold the papers' hyper-parameters, but where they say that the code's are taken") {
  // Both papers have 2 layers of width 64, 128 hidden numbers, 2 heads, mean pooling.
  struct Printed {
    const char *recipe, *task;
    std::int64_t batch;
    double rate;
    std::int64_t steps;  // 0: until the loss on dev has stopped falling
    std::int64_t features;
  };
  const Printed printed_rows[] = {
      {"skyformer", "listops", 32, 1e-4, 50000, 128},
      {"skyformer", "text", 16, 1e-4, 50000, 128},
      {"skyformer", "retrieval", 16, 2e-4, 50000, 128},
      {"skyformer", "pathfinder", 128, 2e-4, 50000, 128},
      {"skyformer", "image", 256, 1e-4, 50000, 128},

      {"skeinformer", "listops", 256, 1e-4, 0, 256},
      {"skeinformer", "text", 128, 1e-4, 0, 256},
      {"skeinformer", "retrieval", 64, 1e-4, 0, 256},
      {"skeinformer", "pathfinder", 512, 1e-4, 0, 256},
      {"skeinformer", "image", 256, 1e-4, 0, 256},
  };
  struct Departure {
    const char *recipe, *task, *key, *papers, *ours;
  };
  const Departure departures[] = {{"skeinformer", "pathfinder", "lr", "1e-4", "2e-4"}};
  std::size_t departed = 0;
  for (const Printed& paper : printed_rows) {
    CAPTURE(paper.recipe);
    CAPTURE(paper.task);
    Table t = recipe(paper.recipe, paper.task, "informer");
    const auto agrees = [&](const char* key, double printed) {
      CAPTURE(key);
      const auto row =
          std::find_if(std::begin(departures), std::end(departures), [&](const auto& d) {
            return std::string_view(d.recipe) == paper.recipe &&
                   std::string_view(d.task) == paper.task && std::string_view(d.key) == key;
          });
      if (row == std::end(departures)) {
        CHECK(std::stod(t[key]) == printed);
        return;
      }
      ++departed;
      CHECK(std::stod(row->papers) == printed);
      CHECK(t[key] == row->ours);
    };
    agrees("batch", static_cast<double>(paper.batch));
    agrees("lr", paper.rate);
    agrees("features", static_cast<double>(paper.features));
    if (paper.steps > 0) agrees("steps", static_cast<double>(paper.steps));
    CHECK((paper.steps == 0) == (t["patience"] != "0"));
  }
  CHECK(departed == std::size(departures));

  // Whose value a recipe takes where paper and code differ stands in its text.
  const auto says = [&](const char* name, const char* text) {
    CAPTURE(text);
    CHECK(test::contains(find_recipe(name).text, text));
  };
  says("skyformer", "batch=16  # as the paper prints it; its code has 32");
  says("skeinformer", "lr=2e-4  # as the code has it; the paper prints 1e-4");
  says("skeinformer", "its code has 128 for methods of others");
}

TEST_CASE("recipes hold every row of the papers' configurations") {
  const Row rows[] = {
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
  for (const Row& row : rows) {
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

TEST_CASE("recipes are the files of train/config/recipes, read as anyone's own") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("train/config/recipes")) {
    if (entry.path().extension() != ".recipe") continue;
    ++files;
    const std::string name = entry.path().stem().string();
    CAPTURE(name);
    const Recipe embedded = find_recipe(name), file = find_recipe(entry.path().string());
    CHECK(embedded.text == read_file(entry.path()));
    CHECK(embedded.text.starts_with("# " + embedded.idea + "\n"));
    REQUIRE(file.values.size() == embedded.values.size());
    for (std::size_t i = 0; i < file.values.size(); ++i) {
      CHECK(file.values[i].setting.key == embedded.values[i].setting.key);
      CHECK(file.values[i].setting.value == embedded.values[i].setting.value);
    }
  }
  CHECK(files == std::ssize(recipes()));
  CHECK(recipes().front().name == "skytape");
}

TEST_CASE(
    "recipe large is skytape's and its own rows; both papers' methods have the same options") {
  const auto rows_of = [](const std::string& name) {
    const std::string text = find_recipe(name).text;
    return text.substr(text.find('\n') + 1);
  };
  const std::set<std::string> changed = {"listops", "text", "pathfinder", "image"};
  const auto large_has = [&](const RecipeValue& row) {
    return std::ranges::any_of(find_recipe("large").values, [&](const RecipeValue& other) {
      return other.task == row.task && other.method == row.method &&
             other.setting.key == row.setting.key &&
             (changed.contains(row.task) || other.setting.value == row.setting.value);
    });
  };
  for (const RecipeValue& row : find_recipe("skytape").values) CHECK(large_has(row));
  CHECK(find_recipe("large").values.size() > find_recipe("skytape").values.size());
  const auto options_of = [&](const std::string& name) {
    const std::string rows = rows_of(name);
    return rows.substr(rows.find("[linformer]"));
  };
  CHECK(options_of("skyformer") == options_of("skeinformer"));
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
  CHECK(value("listops", "softmax", "batch") == "16, recipe mine, [listops]");
  CHECK(value("listops", "softmax", "width") == "32, recipe mine, [listops]");
  CHECK(value("text", "softmax", "width") == "64, default");
  CHECK(value("listops", "skyformer", "features") == "7, recipe mine, [listops skyformer]");
  CHECK(value("listops", "skyformer", "skyformer.gamma").starts_with("0.3, "));
  CHECK(value("text", "skyformer", "skyformer.gamma") == "none");
  CHECK(value("text", "sinkhorn", "sinkhorn.steps") == "1, recipe mine, [sinkhorn]");
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

  CHECK(fault("lr=1\nbatch=8 lr=2") == "mine.recipe:2: lr appears twice: 1 in line 1, 2 here");
  CHECK(fault("[text] lr=1\n lr=1").starts_with("mine.recipe:2: lr appears twice"));
  CHECK(fault("[skyformer] gamma=1 skyformer.gamma=2")
            .starts_with("mine.recipe:1: skyformer.gamma appears twice: 1 in line 1, 2 here"));
  CHECK(fault("[skyformer] features=7 skyformer.features=7").find("features appears twice") !=
        std::string::npos);
  CHECK(fault("[text] lr=1\n[image] lr=2\n[text] dropout=0") ==
        "mine.recipe:3: [text] appears twice, first in line 1; expected all its keys in one");
  CHECK(fault("[text skyformer] lr=1\n[skyformer text]").find("appears twice") !=
        std::string::npos);
  CHECK(fault("[text image] lr=1").find("[text image]: expected one task") != std::string::npos);
  CHECK(fault("[vmean softmax] lr=1").find("expected one method") != std::string::npos);
  CHECK(fault("[softmax] skyformer.gamma=1").find("has no effect under [softmax]") !=
        std::string::npos);
  CHECK(fault("lr=1\n[text] lr=2\n[text vmean] lr=3\n[vmean] lr=4").empty());
  CHECK(fault("batsh=8").size() < 200);  // and not a list of all keys

  // Both spellings of a key that the methods share reach the method.
  const Recipe dotted = parse_recipe("mine", "features=7 \n[text] skyformer.features=9", "m");
  for (const Setting& s : recipe_settings(dotted, "text", "skyformer")) {
    if (s.key == "features") CHECK(s.value == "9");
    CHECK(s.key != "skyformer.features");
  }
  for (const Setting& s : recipe_settings(dotted, "text", "linformer")) {
    if (s.key == "features") CHECK(s.value == "7");
  }

  Choices c = choices();
  CHECK(error_of<UsageError>([&] { (void)resolve(c, mine); }) ==
        "recipe mine: no warmup for listops, which has no default");
  c.settings = sets("warmup=2 steps=9 eval_every=3");
  CHECK(resolve(c, mine).model.width == 32);
  CHECK(resolve(c, mine).recipe == "mine");
  c.recipe = "skytap";
  CHECK(error_of<UsageError>([&] { (void)resolve(c); }).find("did you mean 'skytape'") !=
        std::string::npos);
}

TEST_CASE("a recipe's text, read as a file, is the recipe: large's own, too") {
  const data::synthetic::Folder folder;
  for (const Recipe& own : recipes()) {
    const std::string file = folder.write(own.name + ".recipe", own.text).string();
    const Recipe read = find_recipe(file);
    CHECK(read.name == own.name + ".recipe (file)");  // no file passes for the program's own
    CHECK(in_folder_names(read.name) == own.name + ".recipe");
    CHECK(in_folder_names(own.name) == own.name);
    for (const data::TaskInfo& task : data::tasks()) {
      const auto values = [&](const Recipe& recipe) {
        Table table;
        for (const Setting& s : recipe_settings(recipe, task.name, "skyformer")) {
          table[s.key] = s.value;
        }
        return table;
      };
      CAPTURE(own.name);
      CAPTURE(task.name);
      CHECK(values(read) == values(own));
    }
  }
  Table large = recipe("large", "pathx", "softmax");
  CHECK(large["steps"] == "8000");
  CHECK(large["width"] == "64");   // of large's row for Pathfinder
  CHECK(large["pyramid"] == "1");  // of skytape's
  CHECK(large["lr"] == "1e-3");
  CHECK(recipe("large", "pathfinder", "softmax")["lr"] == "2e-3");
  CHECK(recipe("large", "text", "softmax")["ngram_rows"] == "131072");
  CHECK(recipe("large", "text", "softmax")["positions"] == "rotary");

  CHECK(error_of<UsageError>([&] {
          (void)find_recipe(folder.path().string());
        }).find("a folder; expected a recipe's file") != std::string::npos);
  CHECK(error_of<DataError>([&] {
          (void)find_recipe(folder.write("config.json", "{\"seed\": NaN}").string());
        }).find("NaN and Infinity are no numbers of JSON") != std::string::npos);
}

TEST_CASE("the settings of a run are a recipe: of the same method, and of others") {
  Choices c = choices(sets("features=16 positions=rotary"), "listops", "linformer");
  // A recipe's rotary positions would give way to learned ones
  const RunConfig config = resolve(c);
  const Recipe same = recipe_of_run(to_json(config), "config.json");
  CHECK(same.task == "listops");
  CHECK(same.attention == "linformer");
  c.settings = {};
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

TEST_CASE(
    "a recipe's value that has no meaning for a method gives way to a row's, which says why") {
  const Setting rotary = {"positions", "rotary", "recipe some"};
  CHECK(for_method(rotary, "softmax").value == "rotary");
  CHECK(for_method(rotary, "softmax").origin == "recipe some");
  CHECK(for_method(rotary, "vmean").value == "learned");
  CHECK(for_method(rotary, "vmean").origin ==
        "recipe some, for vmean: it reads no queries and keys");
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

TEST_CASE("trivial baselines are known for the benchmark's tasks") {
  CHECK(trivial_baseline("listops").accuracy == doctest::Approx(0.362));
  CHECK(trivial_baseline("text").accuracy == doctest::Approx(0.662));
  CHECK(trivial_baseline("tsv").accuracy < 0);
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

  c.settings.push_back({"schedule", "one_cycle", "--set"});
  CHECK(pretraining_of(resolve(c)).schedule.beta1(479) == 0.85);
  c.settings.back().value = "triangle";
  CHECK(error_of<UsageError>([&] { (void)resolve(c); }).find("one_cycle|inverse_sqrt|cosine|") !=
        std::string::npos);
  // Other tasks train as before.
  CHECK(resolve(choices()).schedule.curve == nn::Curve::one_cycle);
  CHECK(resolve(choices()).adamw.beta2 == 0.999);
}
