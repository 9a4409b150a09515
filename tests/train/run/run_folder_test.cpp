#include "train/run/run_folder.hpp"

#include <sys/stat.h>

#include <sstream>

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "train/process/progress.hpp"
#include "train/run/train_options.hpp"

using namespace skytape;
using namespace skytape::train;
using data::synthetic::error_of;
using data::synthetic::Folder;
using data::synthetic::read_file;

namespace {

std::vector<data::Json> lines_of(const std::filesystem::path& path) {
  std::vector<data::Json> lines;
  std::istringstream in(read_file(path));
  for (std::string line; std::getline(in, line);) lines.push_back(data::parse_json(line));
  return lines;
}

RunState state_at(std::int64_t step, std::int64_t evaluated) {
  RunState state;
  state.step = step;
  state.evaluated = evaluated;
  return state;
}

}  // namespace

TEST_CASE("metrics that are there and cannot be read are an error, not an empty list") {
  const Folder folder;
  const auto path = folder.path() / "metrics.jsonl";
  CHECK(read_metrics(path).empty());
  std::filesystem::create_directory(path);  // which no user can read, whoever runs the test
  const std::string text = error_of<DataError>([&] { (void)read_metrics(path); });
  CHECK(text == path.string() + ": Is a directory");
}

TEST_CASE("a folder with a run is neither overwritten nor continued unless asked") {
  const Folder folder;
  const auto path = folder.path() / "run";
  const auto config = path / "config.json";
  RunFolder(path, ExistingRun::refuse).write_json(config, {{"seed", 1}});
  const std::string text = error_of<UsageError>([&] { RunFolder(path, ExistingRun::refuse); });
  CHECK(text.find("--resume") != std::string::npos);
  CHECK(text.find("--force") != std::string::npos);
  CHECK(read_json(config) == data::Json{{"seed", 1}});

  folder.write("run/notes.txt", "mine");
  RunFolder(path, ExistingRun::resume);
  CHECK(std::filesystem::exists(config));
  RunFolder(path, ExistingRun::replace);
  CHECK_FALSE(std::filesystem::exists(config));
  CHECK(read_file(path / "notes.txt") == "mine");  // not a file of the run
}

TEST_CASE("files of a run's names are replaced only when asked, and other programs' events never") {
  const Folder folder;
  const auto events = folder.write("run/events.out.tfevents.1.host", "theirs");
  for (const char* name :
       {"metrics.jsonl", "result.json", "best.safetensors", "events.out.tfevents.1.skytape"}) {
    const auto file = folder.write(std::string("run/") + name, "mine");
    const std::string text =
        error_of<UsageError>([&] { RunFolder(file.parent_path(), ExistingRun::refuse); });
    CHECK_MESSAGE(text.find(file.string() + ": is there") != std::string::npos, text);
    CHECK(text.find("--force") != std::string::npos);
    CHECK(read_file(file) == "mine");
    RunFolder(file.parent_path(), ExistingRun::replace);
    CHECK_FALSE(std::filesystem::exists(file));
  }
  // A run that was killed at its start leaves these two, which are not in the way.
  folder.write("run/.lock", "");
  const auto unfinished = folder.write("run/config.json.77.tmp", "{");
  RunFolder run(events.parent_path(), ExistingRun::refuse);
  CHECK_FALSE(std::filesystem::exists(unfinished));
  run.start_metrics({});
  CHECK(read_file(events) == "theirs");
}

TEST_CASE("a finished first phase is a run that is refused, and replaced as a whole") {
  const Folder folder;
  const auto path = folder.path() / "run";
  folder.write("run/pretraining/config.json", "{}");
  folder.write("run/pretraining/.lock", "");
  const std::string text = error_of<UsageError>([&] { RunFolder(path, ExistingRun::refuse); });
  CHECK(text.find("pretraining: holds a run already; --resume") != std::string::npos);
  RunFolder(path, ExistingRun::after_first);  // its second phase
  CHECK(std::filesystem::exists(path / "pretraining/config.json"));
  RunFolder(path, ExistingRun::replace);
  CHECK_FALSE(std::filesystem::exists(path / "pretraining"));

  folder.write("run/pretraining/notes.txt", "mine");
  RunFolder(path, ExistingRun::replace);
  CHECK(read_file(path / "pretraining/notes.txt") == "mine");
}

TEST_CASE("one process at a time has a run folder") {
  const Folder folder;
  const auto path = folder.path() / "run";
  const auto error = [&] {
    return error_of<UsageError>([&] { RunFolder(path, ExistingRun::resume); });
  };
  {
    const RunFolder first(path, ExistingRun::refuse);
    CHECK(error() == path.string() + ": another process trains there");
  }
  CHECK(error().empty());
}

TEST_CASE("a named pipe or a folder where a run keeps a file is refused, and not opened") {
  const Folder folder;
  CHECK_NOTHROW(refuse_odd_files(folder.path() / "nowhere"));
  folder.write("config.json", "{}");
  folder.write("notes.txt", "");
  CHECK_NOTHROW(refuse_odd_files(folder.path()));
  const auto error = [&] { return error_of<DataError>([&] { refuse_odd_files(folder.path()); }); };
  const auto metrics = folder.path() / "metrics.jsonl";
  REQUIRE(::mkfifo(metrics.c_str(), 0600) == 0);
  CHECK(error() ==
        metrics.string() + ": a named pipe, expected a file that can be read and replaced");
  std::filesystem::remove(metrics);
  CHECK(error().empty());
  std::filesystem::create_directory(folder.path() / "result.json");
  CHECK(error().find("result.json: not a regular file") != std::string::npos);
}

TEST_CASE("metrics are cut back to the step of the checkpoint") {
  const Folder folder;
  RunFolder run(folder.path() / "run", ExistingRun::refuse);
  run.start_metrics({});
  for (const int step : {10, 20, 21}) run.add_metric({{"kind", "train"}, {"step", step}});
  run.add_metric({{"kind", "eval"}, {"split", "dev"}, {"step", 20}, {"loss", 1.5}});
  run.add_metric({{"kind", "final"}, {"split", "dev"}, {"step", 20}});
  {
    AppendFile torn(run.metrics());
    torn.append("{\"kind\":\"train\",\"st");  // a process that died in the middle of a line
  }
  run.start_metrics(state_at(20, 20));
  run.add_metric({{"kind", "train"}, {"step", 25}});
  std::vector<int> steps;
  for (const auto& line : lines_of(run.metrics())) steps.push_back(line.at("step").get<int>());
  CHECK(steps == std::vector<int>{10, 20, 20, 25});
}

TEST_CASE("an evaluation that the checkpoint does not know is cut off: it is made again") {
  const Folder folder;
  RunFolder run(folder.path() / "run", ExistingRun::refuse);
  run.start_metrics({});
  for (const int step : {10, 20}) {
    run.add_metric({{"kind", "train"}, {"step", step}});
    run.add_metric({{"kind", "eval"}, {"split", "dev"}, {"step", step}});
  }
  run.start_metrics(state_at(20, 10));
  std::vector<std::string> kinds;
  for (const auto& line : lines_of(run.metrics())) {
    kinds.push_back(line.at("kind").get<std::string>());
  }
  CHECK(kinds == std::vector<std::string>{"train", "eval", "train"});
}

TEST_CASE("TensorBoard's names begin with the phase that a metric says") {
  const Folder folder;
  RunFolder run(folder.path() / "run", ExistingRun::refuse);
  run.start_metrics({});
  run.add_metric({{"kind", "train"}, {"step", 5}, {"loss", 1.5}, {"phase", "pretraining"}});
  run.add_metric({{"kind", "train"}, {"step", 5}, {"accuracy", 0.5}});
  std::string events;
  for (const auto& file : std::filesystem::directory_iterator(run.path())) {
    if (file.path().filename().string().starts_with("events.")) {
      events = data::synthetic::read_file(file);
    }
  }
  CHECK(events.find("pretraining/train/loss") != std::string::npos);
  CHECK(events.find("train/accuracy") != std::string::npos);
  CHECK(events.find("pretraining/train/accuracy") == std::string::npos);
}

TEST_CASE("a metric that does not fit on the disk is an error that names the file") {
  AppendFile full("/dev/full");
  const std::string text = error_of<Error>([&] { full.append("{}\n"); });
  CHECK(text.find("/dev/full") != std::string::npos);
  CHECK(text.find("space") != std::string::npos);
}

TEST_CASE("log lines have step, loss, accuracy, rate and time left") {
  LogPoint point{500, 50000, "loss 2.1235  accuracy 17.50 %", 2e-5, 3.21, 65432.1, 15420};
  CHECK(to_text(point) ==
        "step 500/50000  loss 2.1235  accuracy 17.50 %  lr 2.00e-05  3.21 steps/s  65,432 tokens/s"
        "  4.3 h left");
  CHECK(duration_text(12.4) == "12 s");
  CHECK(duration_text(720) == "12 min");
  CHECK(grouped(1234567) == "1,234,567");
  CHECK(grouped(-12) == "-12");
}
