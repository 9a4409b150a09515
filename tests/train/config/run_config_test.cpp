#include "train/config/run_config.hpp"

#include <string>
#include <vector>

#include "data/files/json.hpp"
#include "tensor/gemm/precision.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/config/choices.hpp"
#include "train/config/identity.hpp"
#include "train/config/keys.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::error_of;
using test::choices, test::of_papers, test::setting, test::sets;

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
  // Entries that no gradient ever reached would be 0 / 0.
  CHECK(refusal("adam_epsilon", "0").starts_with("adam_epsilon: expected 1e-20..1, got '0'"));
  for (const std::string weights : {"1,1e7", "0,0"}) {
    CHECK(refusal("class_weights", weights)
              .starts_with("class_weights: expected none, balanced, or a number for each class, up "
                           "to 1000000 and one above 0: 1,2.5, got '" +
                           weights + "'"));
  }
  CHECK(refusal("linformer.features", "1048576", "linformer").empty());  // the method's bound
  CHECK(refusal("features", "65537").starts_with("skyformer.features: expected 1..65536"));
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
  says(refusal("conv_width=4"), "conv_width: expected 0..65535, odd, got '4'");
  says(refusal("patch=5"), "patch: the tokens of listops are no pixels");
  says(refusal("pyramid=1"), "pyramid: the tokens of listops are no pixels");
  CHECK(refusal("pyramid=1", "softmax", "image").empty());
  says(refusal("pyramid=1 pooling=max", "softmax", "image"),
       "pyramid: the mean over its top is taken");
  says(refusal("patch=4", "softmax", "image"), "patch: expected 0..255, odd; pixels, got '4'");
  says(refusal("mirror=1"), "mirror: the tokens of listops are no pixels; expected 0");
  says(refusal("shift=2"), "shift: the tokens of listops are no pixels; expected 0");
  says(refusal("shift=32", "softmax", "image"),
       "shift: expected less than the 32 pixels of a line of image, got 32");
  CHECK(refusal("mirror=1 shift=2", "softmax", "image").empty());
  says(refusal("pair_cosine=1"), "pair_cosine: listops has no pairs of documents");
  says(refusal("ngrams=1"), "ngrams: expected at least 2 tokens");
  says(refusal("ngram_rows=100"), "ngram_rows has no effect");
  says(refusal("ngram_deviation=1"), "ngram_deviation has no effect");
  says(refusal("pooling=cls", "softmax", "image"), "pooling: cls puts a token in front");
  says(refusal("length_keep=middle"), "length_keep: expected front|ends");
  says(refusal("positions=relative"), "positions: expected learned|sinusoidal|rotary|none");
  says(refusal("pooling=sum"), "pooling: expected nominal|mean|first");
  says(refusal("length_warmup=90000"), "length_warmup: expected at most steps");
  says(refusal("length_warmup=100 length_hold=101"),
       "length_hold: expected at most length_warmup = 100");
  says(refusal("length_warmup=100 max_length=60"), "expected a smaller length_start");
  CHECK(refusal("length_warmup=100 max_length=65").empty());
  says(refusal("length_warmup=100 length_start=4096"),
       "length_start: expected at most the 2048 positions");
  says(refusal("pooling=first mask=nonzero", "skyformer", "image"), "mask=nonzero hides");
}

TEST_CASE("a method's option that another one leaves without effect is refused to the user alone") {
  const auto refusal = [](const std::string& attention, const std::string& values,
                          const std::string& task = "listops") {
    const Choices c = choices(sets(values), task, attention);
    return error_of<UsageError>([&] { (void)resolve(c); });
  };
  CHECK(refusal("synthesizer", "synthesizer.hidden=16") ==
        "synthesizer.hidden has no effect on this run: synthesizer.logits is factorised");
  CHECK(refusal("synthesizer", "synthesizer.hidden=16 synthesizer.logits=dense").empty());
  CHECK(refusal("longformer", "longformer.window=0 longformer.dilation=2") ==
        "longformer.dilation has no effect on this run: longformer.window is 0");
  CHECK(refusal("skyformer", "skyformer.detach_start=0").empty());
  CHECK(refusal("skyformer", "skyformer.detach_start=0 skyformer.inverse_backward=implicit") ==
        "skyformer.detach_start has no effect on this run: skyformer.inverse_backward is implicit");

  // By either spelling of a key that methods share, and by its flag.
  const std::string sizes = "informer.samples=7 informer.top=5";
  const std::string why =
      "features has no effect on this run: informer.samples is 7 and informer.top is 5";
  CHECK(refusal("informer", sizes).empty());  // the recipe has features
  CHECK(refusal("informer", sizes + " features=24") == why);
  CHECK(refusal("informer", sizes + " informer.features=24") == "informer." + why);
  CHECK(refusal("informer", "informer.samples=7 features=24").empty());
  Choices flag = choices(sets(sizes), "listops", "informer");
  flag.settings.push_back({"features", "24", "--features"});
  CHECK(error_of<UsageError>([&] { (void)resolve(flag); }) == why);

  // The other value may be the recipe's; what a recipe leaves without effect itself is as good as
  // any.
  CHECK(refusal("linformer", "linformer.frozen=1", "text") ==
        "linformer.frozen has no effect on this run: linformer.projection is mean");
  CHECK(refusal("linformer", "linformer.frozen=1").empty());
  const RunConfig papers = resolve(of_papers(sets("linformer.projection=max"), "linformer"));
  CHECK(setting(papers, "linformer.frozen").value == "1");
  CHECK(setting(resolve(of_papers({}, "skein_uniform")), "skein_uniform.pilot_gradient").value ==
        "official");
}

TEST_CASE("pretrain refuses what only training on the task reads, if the user says it") {
  const auto refusal = [](const std::string& values, const std::string& task = "listops",
                          const std::string& recipe = "skytape") {
    Choices c = choices(sets(values + " pretrain_steps=20"), task);
    c.recipe = recipe;
    return error_of<UsageError>([&] { (void)resolve(for_pretraining(c)); });
  };
  for (const char* value : {"label_smoothing=0.1", "class_weights=balanced", "select=last",
                            "select_after=0.5", "patience=3", "final_examples=64"}) {
    const std::string key = std::string(value).substr(0, std::string(value).find('='));
    CHECK(refusal(value) == key + " has no effect on this run: only training on the task reads it");
    CHECK_NOTHROW((void)resolve(choices(sets(std::string(value) + " pretrain_steps=20"))));
  }
  CHECK(refusal("pyramid=0", "pathfinder").starts_with("pyramid has no effect"));
  CHECK(refusal("pair_cosine=0", "retrieval").starts_with("pair_cosine has no effect"));
  CHECK(refusal("pooling=mean") ==
        "pooling has no effect on this run: pretrain reads only whether it is cls");
  CHECK(refusal("pooling=cls").empty());
  // There it takes the token away that the recipe puts in front.
  CHECK(refusal("pooling=mean", "text", "lra").empty());
  CHECK(refusal("eval_examples=64 dropout=0.2").empty());
  for (const char* task : {"listops", "pathfinder", "retrieval"}) {  // the recipes' own values
    for (const char* recipe : {"skytape", "skyformer", "skeinformer", "lra"}) {
      CHECK(refusal("", task, recipe).empty());
    }
  }
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
  for (const Setting& setting : config.settings) {
    const KeyInfo* const key = find_key(setting.key);
    if (key != nullptr && key->standard == setting.value) old["settings"].erase(setting.key);
  }
  REQUIRE(old["settings"].size() + 27 < now["settings"].size());
  const RunConfig read = config_from_json(old, "config.json");
  CHECK(read.model.norm == nn::Norm::pre);
  CHECK(read.model.pooling == nn::Pooling::nominal);
  CHECK(read.model.positions == nn::Positions::learned);
  CHECK(read.batches.grow_steps == 0);
  CHECK(differences(old, now).empty());
  const data::Json other = to_json(resolve(of_papers(sets("pooling=mean"))));
  CHECK(differences(old, other) == "pooling: nominal there, mean here");
}

TEST_CASE("a checkpoint that counts the pyramid among the poolings is the same run") {
  const Choices c = choices({}, "pathfinder");
  const data::Json now = to_json(resolve(c));
  REQUIRE(now.at("settings").at("pyramid").at("value") == "1");
  data::Json old = now;
  old["settings"].erase("pyramid");
  CHECK(differences(old, now) == "pyramid: 0 there, 1 here");
  old["settings"]["pooling"]["value"] = "pyramid";
  CHECK(differences(old, now).empty());
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
  CHECK(differences(saved, to_json(again)).empty());

  const data::Json other = to_json(resolve(choices({{"features", "64", "--features"}})));
  CHECK(differences(saved, other) == "features: 32 there, 64 here");
  data::Json broken = saved;
  broken.erase("seed");
  CHECK(error_of<DataError>([&] {
          (void)config_from_json(broken, "x/config.json");
        }).find("x/config.json") != std::string::npos);
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
                                            {"length_hold", "500", "--set"},
                                            {"patience", "3", "--set"},
                                            {"pretrain_lr", "3e-3", "--set"}}));
  const RunConfig first = pretraining_of(config);
  CHECK(config.patience == 3);
  CHECK(first.patience == 0);  // it has all of its steps
  CHECK(first.select == Select::last);
  CHECK(first.schedule.max_lr == 3e-3);
  CHECK(first.steps() == 300);
  CHECK(first.batches.grow_steps == 200);
  CHECK(first.batches.grow_hold == 50);
  CHECK(pretraining_of(first).batches.grow_steps == 200);  // the phase of a phase is the same
  const RunConfig saved = config_from_json(to_json(first), "config.json");
  CHECK(saved.batches.grow_steps == 200);
  CHECK(saved.schedule.steps == 300);
}

TEST_CASE(
    "pre-training hides by the run's seed, and never the token that pooling=cls puts in front") {
  Choices wanted = choices(sets("pretrain_steps=300"), "text");
  wanted.seed = 9;
  CHECK(resolve(wanted).pretraining.masking.seed == 9);
  CHECK(resolve(wanted).pretraining.masking.first == 0);
  wanted.settings = sets("pretrain_steps=300 pooling=cls");
  CHECK(resolve(wanted).pretraining.masking.first == 1);
}

TEST_CASE(
    "a short pre-training warms up over a tenth of its steps unless the user says otherwise") {
  const auto warmup = [](std::vector<Setting> values) {
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

TEST_CASE("hidden tokens are replaced by tokens that the run has, and by none else") {
  const auto masking = [](const char* task, const char* drop_close) {
    Choices c = choices({}, task);
    if (*drop_close != 0) c.settings = {{"drop_close", drop_close, "--set"}};
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
