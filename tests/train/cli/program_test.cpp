// The program from outside: resuming, signals, exit codes, and what it leaves on the disk.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <sstream>
#include <thread>

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/program.hpp"
#include "tests/train/cli/workshop.hpp"
#include "train/cli/program.hpp"
#include "train/formats/safetensors.hpp"
#include "train/lab/cli/lab_cli.hpp"
#include "train/run/run_folder.hpp"

using namespace skytape;
using namespace skytape::test;
using data::synthetic::read_file;

namespace {

namespace fs = std::filesystem;

/// metrics.jsonl without what a clock says.
std::vector<data::Json> metrics_of(const fs::path& run) {
  std::vector<data::Json> lines;
  std::ifstream in(run / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    lines.push_back(data::parse_json(line));
    for (const char* key :
         {"time", "seconds", "train_seconds", "steps_per_second", "tokens_per_second"}) {
      lines.back().erase(key);
    }
  }
  return lines;
}

/// Names of the commands that the laboratory adds, sorted.
std::vector<std::string> lab_commands() {
  std::vector<std::string> names = train::names_of(train::add_lab_commands);
  std::ranges::sort(names);
  return names;
}

int files_in(const fs::path& folder, const std::string& part) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().find(part) != std::string::npos) ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("a run that is killed again and again ends bit for bit like one that never was") {
  if (!program_or_skip()) return;
  const Workshop w;
  REQUIRE(w.finish(w.train("whole", 31)).code == 0);

  // Killed when the metrics have so many lines: in training, near an evaluation, near a checkpoint.
  for (const std::size_t lines : {3u, 9u}) {
    Program program(w.folder.path(), w.train("killed", 31, {"--resume"}));
    const fs::path metrics = w.run("killed") / "metrics.jsonl";
    const auto grown = [&] {
      const std::string text = fs::exists(metrics) ? read_file(metrics) : "";
      return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) >= lines;
    };
    while (program.running() && !grown()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    program.kill(SIGKILL);
    CHECK(program.wait().code == 128 + SIGKILL);
    // At most checkpoint_every = 3 steps are lost.
    const auto logged = train::read_metrics(metrics).back().at("step").get<int>();
    const auto file = train::read_safetensors(w.run("killed") / "last.safetensors");
    const int saved = data::parse_json(file.metadata.at("skytape.state")).at("step").get<int>();
    CHECK(saved % 3 == 0);
    CHECK(logged - saved <= 3);
  }
  const Finished last = w.finish(w.train("killed", 31, {"--resume"}));
  CAPTURE(last.err);
  CHECK(last.code == 0);
  CHECK(same_tensors(w.run("whole") / "last.safetensors", w.run("killed") / "last.safetensors"));
  CHECK(same_tensors(w.run("whole") / "best.safetensors", w.run("killed") / "best.safetensors"));
  CHECK(metrics_of(w.run("whole")) == metrics_of(w.run("killed")));
  CHECK(files_in(w.run("killed"), ".tmp") == 0);
}

TEST_CASE("a run of growing lengths, rotary positions and a class token resumes bit for bit") {
  if (!program_or_skip()) return;
  const Workshop w;
  std::vector<std::string> more;
  for (const char* set : {"length_warmup=12", "length_hold=5", "length_whole=4", "length_start=16",
                          "positions=rotary", "pooling=cls", "label_smoothing=0.1"}) {
    more.insert(more.end(), {"--set", set});
  }
  const auto with = [&](std::vector<std::string> last) {
    last.insert(last.begin(), more.begin(), more.end());
    return last;
  };
  const Finished whole = w.finish(w.train("whole", 16, with({})));
  CAPTURE(whole.err);
  REQUIRE(whole.code == 0);
  for (const char* stop : {"3", "7", "14"}) {
    CHECK(w.finish(w.train("part", 16, with({"--resume", "--stop-after", stop}))).code == 0);
  }
  CHECK(w.finish(w.train("part", 16, with({"--resume"}))).code == 0);
  CHECK(same_tensors(w.run("whole") / "last.safetensors", w.run("part") / "last.safetensors"));
  CHECK(metrics_of(w.run("whole")) == metrics_of(w.run("part")));
  const auto tokens = [&](const char* run) {
    return data::parse_json(read_file(w.run(run) / "result.json")).at("tokens").get<int>();
  };
  CHECK(tokens("whole") == tokens("part"));
  CHECK(tokens("whole") < 16 * 4 * 63);
}

TEST_CASE("SIGTERM and SIGHUP finish the step, write a checkpoint and exit with 143 and 129") {
  if (!program_or_skip()) return;
  int signal = 0, times = 1;
  SUBCASE("SIGTERM") { signal = SIGTERM; }
  SUBCASE("SIGTERM twice at once, as `timeout` sends it") {
    signal = SIGTERM;
    times = 2;
  }
  SUBCASE("SIGHUP") {
    signal = SIGHUP;
    std::signal(SIGHUP, SIG_DFL);  // tests that run under nohup would hand on that it is ignored
  }
  const Workshop w;
  REQUIRE(w.finish(w.train("whole", 40)).code == 0);
  Program program(w.folder.path(), w.train("stopped", 40));
  while (program.running() && !fs::exists(w.run("stopped") / "metrics.jsonl")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (int i = 0; i < times; ++i) {
    program.kill(signal);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const Finished stopped = program.wait();
  CAPTURE(stopped.err);
  CHECK(stopped.code == 128 + signal);
  CHECK(stopped.err.find("--resume") != std::string::npos);
  REQUIRE(fs::exists(w.run("stopped") / "last.safetensors"));
  CHECK(w.finish(w.train("stopped", 40, {"--resume"})).code == 0);
  CHECK(same_tensors(w.run("whole") / "last.safetensors", w.run("stopped") / "last.safetensors"));
}

namespace {

/// Makes a checkpoint that of a run that owes the evaluation of its step.
void owe_evaluation(const fs::path& path, const data::Json& before) {
  train::SafetensorsFile file = train::read_safetensors(path);
  data::Json state = data::parse_json(file.metadata.at("skytape.state"));
  for (const char* key : {"evaluated", "best_metric", "best_step", "time_to_accuracy"}) {
    state[key] = before.at(key);
  }
  file.metadata["skytape.state"] = data::json_text(state);
  train::write_safetensors(path, file.tensors, file.metadata);
}

/// A named pipe that is full: who writes to it waits until it is read.
struct FullPipe {
  fs::path path;
  int file = -1;

  explicit FullPipe(fs::path name) : path(std::move(name)) {
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    file = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    REQUIRE(file >= 0);
    const std::string filling(4096, '.');
    while (::write(file, filling.data(), filling.size()) > 0) {
    }
  }
  ~FullPipe() { ::close(file); }
  FullPipe(const FullPipe&) = delete;
  FullPipe& operator=(const FullPipe&) = delete;

  /// Returns what is in it now.
  [[nodiscard]] std::string read() const {
    std::string all;
    char bytes[4096];
    for (ssize_t n = 0; (n = ::read(file, bytes, sizeof bytes)) > 0;) {
      all.append(bytes, static_cast<std::size_t>(n));
    }
    return all;
  }
};

/// Returns what a program says that has had a signal since its first line.
std::string signalled_at_first_line(const fs::path& folder,
                                    const std::vector<std::string>& arguments) {
  for (auto pause = std::chrono::milliseconds(200);; pause *= 3) {  // a busy machine is slow
    fs::remove(folder / "pipe");
    const FullPipe pipe(folder / "pipe");
    Program program(folder, arguments,
                    {.launcher = {"sh", "-c", "exec \"$@\" 2> \"$0\"", pipe.path.string()}});
    std::this_thread::sleep_for(pause);
    program.kill(SIGTERM);
    std::string said;
    for (; program.running(); std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
      said += pipe.read();
    }
    said += pipe.read();
    said.erase(0, said.find_first_not_of('.'));
    CHECK(program.wait().code == 128 + SIGTERM);
    if (contains(said, "stopped by a signal after") || pause > std::chrono::seconds(5)) return said;
  }
}

}  // namespace

TEST_CASE("an evaluation that a signal interrupts is made whole when the run resumes") {
  if (!program_or_skip()) return;
  const Workshop w;
  REQUIRE(w.finish(w.train("whole", 7)).code == 0);
  REQUIRE(w.finish(w.train("run", 7, {"--stop-after", "4"})).code == 0);
  const fs::path last = w.run("run") / "last.safetensors", best = w.run("run") / "best.safetensors";
  const data::Json before =
      data::parse_json(train::read_safetensors(last).metadata.at("skytape.state"));
  REQUIRE(w.finish(w.train("run", 7, {"--resume", "--stop-after", "5"})).code == 0);
  owe_evaluation(last, before);
  fs::remove(best);

  const std::string said =
      signalled_at_first_line(w.folder.path(), w.train("run", 7, {"--resume"}));
  CAPTURE(said);
  REQUIRE(contains(said, "stopped by a signal after step 5 of 7"));
  CHECK_FALSE(fs::exists(best));
  const Finished rest = w.finish(w.train("run", 7, {"--resume"}));
  CAPTURE(rest.err);
  REQUIRE(rest.code == 0);
  CHECK(metrics_of(w.run("run")) == metrics_of(w.run("whole")));
  CHECK(same_tensors(w.run("run") / "last.safetensors", w.run("whole") / "last.safetensors"));
  CHECK(same_tensors(w.run("run") / "best.safetensors", w.run("whole") / "best.safetensors"));
}

TEST_CASE("under nohup a run continues when the terminal goes") {
  if (!program_or_skip()) return;
  const Workshop w;
  Program program(w.folder.path(), w.train("run", 40), {.launcher = {"nohup"}});
  while (program.running() && !fs::exists(w.run("run") / "metrics.jsonl")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  program.kill(SIGHUP);
  CHECK(program.wait().code == 0);
}

TEST_CASE("--stop-after leaves the schedule alone and a resumed run ends like a whole one") {
  if (!program_or_skip()) return;
  const Workshop w;
  REQUIRE(w.finish(w.train("whole", 12)).code == 0);
  const Finished part = w.finish(w.train("part", 12, {"--stop-after", "5"}));
  CHECK(part.code == 0);
  CHECK(part.err.find("stopped as asked after step 5 of 12") != std::string::npos);
  CHECK_FALSE(fs::exists(w.run("part") / "result.json"));

  const Finished again = w.finish(w.train("part", 12));
  CHECK(again.code == 2);
  CHECK(again.err.find("--resume") != std::string::npos);
  CHECK(again.err.find("--force") != std::string::npos);
  const Finished other = w.finish(w.train("part", 12, {"--resume", "--set", "lr=0.5"}));
  CHECK(other.code == 2);
  CHECK(other.err.find("lr: 1e-3 there, 0.5 here") != std::string::npos);

  CHECK(w.finish(w.train("part", 12, {"--resume"})).code == 0);
  CHECK(same_tensors(w.run("whole") / "last.safetensors", w.run("part") / "last.safetensors"));
}

TEST_CASE("a finished run has a complete result, and eval and predict agree with it") {
  if (!program_or_skip()) return;
  const Workshop w;
  const Finished run = w.finish(w.train("run", 12));
  CAPTURE(run.err);
  REQUIRE(run.code == 0);
  CHECK(run.out.find("test accuracy") != std::string::npos);
  CHECK(run.err.find("parameters") != std::string::npos);
  CHECK(run.err.find("measured") != std::string::npos);
  CHECK(run.err.find("step 2/12  loss ") != std::string::npos);
  CHECK(run.err.find('\r') == std::string::npos);  // no bar in a pipe
  CHECK(files_in(w.run("run"), "events.out.tfevents") == 1);
  const auto result = data::parse_json(read_file(w.run("run") / "result.json"));
  for (const char* key :
       {"task", "attention", "recipe", "seed", "steps", "dev_accuracy", "test_accuracy",
        "train_seconds", "steps_per_second", "tokens_per_second", "peak_bytes", "parameters",
        "device", "precision", "revision", "loader_wait_seconds", "data", "machine"}) {
    CAPTURE(key);
    CHECK(result.contains(key));
  }
  CHECK(result["steps"] == 12);

  const Finished eval = w.finish({"eval", "--run", w.run("run").string(), "--split", "test"});
  CAPTURE(eval.err);
  CHECK(eval.code == 0);
  char accuracy[64];
  std::snprintf(accuracy, sizeof accuracy, "test accuracy %.2f %%",
                100 * result["test_accuracy"].get<double>());
  CHECK(eval.out.find(accuracy) != std::string::npos);

  const auto lines = w.folder.write("lines.txt", "( ( ( [MAX 2 ) 9 ) ] )\n[MIN 3 4 ]\n");
  const Finished labels =
      w.finish({"predict", "--run", w.run("run").string(), "--from", lines.string()});
  CHECK(labels.code == 0);
  CHECK(std::count(labels.out.begin(), labels.out.end(), '\n') == 2);
}

TEST_CASE("wrong usage exits with 2 and one line that names the nearest") {
  if (!program_or_skip()) return;
  const Workshop w;
  const auto check = [&](const std::vector<std::string>& arguments, const char* part) {
    const Finished f = w.finish(arguments);
    CAPTURE(f.err);
    CHECK(f.code == 2);
    CHECK(f.err.starts_with("skytape: error: "));
    CHECK(std::count(f.err.begin(), f.err.end(), '\n') == 1);
    CHECK(f.err.find(part) != std::string::npos);
  };
  check({}, "no command");
  check({"trian"}, "did you mean train?");
  check({"train", "--atention", "softmax"}, "did you mean --attention?");
  check({"train", "--task", "listop"}, "did you mean 'listops'?");
  check({"train", "--attention", "skyfromer"}, "did you mean 'skyformer'?");
  check({"train", "--recipe", "skytap"}, "did you mean 'skytape'?");
  check({"train", "--device", "gpu"}, "unknown device");
  check({"train", "--set", "lrr=1"}, "did you mean 'lr'?");
  check({"train", "--set", "lr"}, "expected key=value");
  check({"train", "--batch", "-3"}, "batch: expected 1..65536");
  check({"train", "--steps", "many"}, "steps: expected");
  check({"train", "--stop-after", "0"}, "--stop-after");
  check({"train", "--seed", "minus"}, "--seed");
  check({"train", "--threads", "-1"}, "--threads");
  check({"train", "--resume", "--force"}, "exclude each other");
  check({"info", "atention"}, "did you mean 'attention'?");
  check({"eval", "--run", "x", "--split", "train"}, "unknown split");
  check({"eval"}, "--run DIR or --weights");
  check({"gradchek"}, "did you mean gradcheck?");
  check({"gradcheck", "--attention", "sofmax"}, "did you mean 'softmax'?");
}

TEST_CASE("info task shows the arena's classes, lengths and sequences, task by task") {
  if (!program_or_skip()) return;
  const Workshop w;
  const std::string shown = w.finish({"info", "task"}).out;
  CAPTURE(shown);
  std::map<std::string, std::vector<std::string>> rows;  // classes, vocabulary, length, sequences
  std::istringstream lines(shown);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    std::vector<std::string> cells(4);
    for (std::string* cell : {&name, &cells[0], &cells[1], &cells[2], &cells[3]}) words >> *cell;
    rows[name] = cells;
  }
  using Row = std::vector<std::string>;
  CHECK(rows["listops"] == Row{"10", "32", "2048", "1"});
  CHECK(rows["text"] == Row{"2", "512", "4096", "1"});
  CHECK(rows["retrieval"] == Row{"2", "512", "4096", "2"});  // of texts cut to 4000
  CHECK(rows["pathfinder"] == Row{"2", "512", "1024", "1"});
  CHECK(rows["pathx"] == Row{"2", "512", "16384", "1"});
  CHECK(rows["image"] == Row{"10", "256", "1024", "1"});
}

TEST_CASE("skytape says where a command of the laboratory is, and what to type") {
  if (!program_or_skip()) return;
  const Workshop w;
  const auto says = [&](const std::vector<std::string>& arguments, const std::string& line) {
    const Finished f = run_program(w.folder.path(), arguments, {.program = program_path()});
    CHECK(f.code == 2);
    CHECK(f.out.empty());
    CHECK(f.err == "skytape: error: " + arguments.front() +
                       " is a command of skytape-lab, which `make lab` builds: " + program_path() +
                       "-lab " + line + "\n");
  };
  says({"bench", "--n", "7,9", "--json", "it's here"}, R"(bench --n 7,9 --json 'it'\''s here')");
  for (const std::string& name : lab_commands()) says({name, "--help"}, name + " --help");
}

TEST_CASE("the list of the laboratory's commands is whole") {
  CHECK(std::ranges::equal(lab_commands(), train::kLabCommands));
}

TEST_CASE("what shares no work out to ranks refuses several processes, before it writes") {
  if (!program_or_skip()) return;
  const Workshop w;
  const Place second = {.folder = w.folder.path(), .launcher = {"env", "PMI_RANK=0", "PMI_SIZE=2"}};
  const std::vector<std::vector<std::string>> cases = {
      {"eval", "--run", "run"},
      {"predict", "--run", "run", "--from", "file"},
      {"data"},
      {"import", "--from", "encoder", "--out", "copy"},
      {"lra", "--out", "grid"},
      {"bench", "--json", "file"}};
  for (const std::vector<std::string>& arguments : cases) {
    CAPTURE(arguments.front());
    const Finished f = w.finish(arguments, second);
    CHECK(f.code == 2);
    CHECK(contains(f.err, arguments.front() + ": started as 2 processes"));
  }
  CHECK_FALSE(fs::exists(w.folder.path() / "datasets"));
  CHECK(w.finish({"info"}, second).code == 0);
  CHECK(contains(w.finish({"cost"}, {.launcher = second.launcher, .program = program_path()}).err,
                 "cost is a command of skytape-lab"));
  const Finished srun =
      w.finish({"gradcheck"}, {.launcher = {"env", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=3"}});
  CHECK(srun.code == 2);
  CHECK(contains(srun.err, "gradcheck: started as 3 processes"));
}

TEST_CASE("--lr is the highest learning rate of train, and of pretrain that of its own phase") {
  if (!program_or_skip()) return;
  const Workshop w;
  const auto origin = [&](const char* command, const std::string& key) {
    const Finished f = w.finish({command, "--lr", "3e-4", "--steps", "500", "--print-config"});
    CAPTURE(f.err);
    CHECK(f.code == 0);
    const std::size_t line = f.out.find("\n  " + key + " ");
    REQUIRE(line != std::string::npos);
    std::istringstream words(f.out.substr(line));
    std::string name, value, said_by;
    words >> name >> value >> said_by;
    return value + " " + said_by;
  };
  CHECK(origin("train", "lr") == "3e-4 --lr");
  CHECK(origin("train", "pretrain_lr") == "1e-3 default");
  CHECK(origin("pretrain", "pretrain_lr") == "3e-4 --lr");
}

TEST_CASE("missing, foreign and broken data exit with 3 and name file and line") {
  if (!program_or_skip()) return;
  const Workshop w;
  const auto data_error = [&](const std::vector<std::string>& arguments, const std::string& part) {
    const Finished f = w.finish(arguments);
    CAPTURE(f.err);
    CHECK(f.code == 3);
    // One line, behind whatever warnings the reader had.
    const std::size_t error = f.err.find(": error: ");
    REQUIRE(error != std::string::npos);
    CHECK(std::count(f.err.begin() + static_cast<std::ptrdiff_t>(error), f.err.end(), '\n') == 1);
    CHECK(f.err.find(part) != std::string::npos);
  };
  const std::string head = "Source\tTarget\n( ( [MAX 2 ) ] )\t2\n";
  const auto read_tsv = [&](const std::string& bad, const std::string& part) {
    w.folder.write("tsv/basic_train.tsv", head + bad);
    w.folder.write("tsv/basic_val.tsv", head);
    w.folder.write("tsv/basic_test.tsv", head);
    const fs::path fresh = w.folder.path() / "fresh";
    data_error({"data", "--task", "listops", "--from", (w.folder.path() / "tsv").string(), "--data",
                fresh.string()},
               part);
    CHECK_FALSE(data::is_prepared(data::find_task("listops"), fresh));
  };
  read_tsv("( ( [MAX 2 ) ] )\t12\n", "basic_train.tsv:3");
  read_tsv("( ( [MAX two ) ] )\t2\n", "basic_train.tsv:3");
  read_tsv("( ( [MAX 2 ) ] )", "basic_train.tsv:3");
  data_error({"data", "--from", (w.folder.path() / "nowhere").string()}, "does not exist");
  data_error({"eval", "--run", (w.folder.path() / "nowhere").string()}, "holds no run");
  data_error({"goldens", "--dir", (w.folder.path() / "nowhere").string()}, "nowhere");

  REQUIRE(w.finish(w.train("run", 12, {"--stop-after", "3"})).code == 0);
  const fs::path last = w.run("run") / "last.safetensors";
  const std::string good = read_file(last);
  std::ofstream(last, std::ios::binary) << good.substr(0, good.size() / 2);
  data_error(w.train("run", 12, {"--resume"}), "last.safetensors");
  train::write_safetensors(last, {{"w", Tensor::zeros({2}, DType::f32, Device::cpu)}}, {});
  data_error(w.train("run", 12, {"--resume"}), "not a checkpoint of skytape");
  data_error({"eval", "--weights", last.string(), "--data", w.data.string()}, "no tensor");
}

TEST_CASE("a full disk exits with 1, names the file and leaves no half of it") {
  if (!program_or_skip()) return;
  const Workshop w;
  const Finished f = w.finish(w.train("run", 12), {.largest_file = 8192});
  CAPTURE(f.err);
  CHECK(f.code == 1);
  CHECK(f.err.find(".safetensors") != std::string::npos);
  CHECK_FALSE(fs::exists(w.run("run") / "last.safetensors"));
  CHECK(files_in(w.run("run"), ".tmp") == 0);
}

TEST_CASE("a loss that is not finite exits with 4, and --check-finite names the op") {
  if (!program_or_skip()) return;
  const Workshop w;
  // `others`: settings in place of the workshop's.
  const auto blown_up = [&](std::vector<std::string> more, const std::vector<std::string>& others) {
    more.insert(more.end(), {"--set", "lr=10", "--set", "weight_decay=10", "--set", "warmup=2",
                             "--set", "clip_value=0", "--force"});
    std::vector<std::string> arguments = w.train("run", 400, std::move(more));
    for (const std::string& other : others) {
      for (std::string& argument : arguments) {
        if (argument.starts_with(other.substr(0, other.find('=') + 1))) argument = other;
      }
    }
    return w.finish(arguments);
  };
  const Finished plain = blown_up({}, {});
  CAPTURE(plain.err);
  CHECK(plain.code == 4);
  CHECK(plain.err.find("not finite") != std::string::npos);
  // Wherever it is met first, the files that are named are there.
  for (const std::vector<std::string>& others : {std::vector<std::string>{},
                                                 {"eval_every=1"},
                                                 {"checkpoint_every=1"},
                                                 {"eval_every=1000", "checkpoint_every=1000"}}) {
    const Finished f = blown_up({}, others);
    CAPTURE(f.err);
    CHECK(f.code == 4);
    std::istringstream words(f.err.substr(f.err.rfind("skytape: error: ")));
    int named_files = 0;
    for (std::string word; words >> word;) {
      if (!word.ends_with(".safetensors")) continue;
      CHECK(fs::exists(word));
      ++named_files;
    }
    CHECK(named_files == 1);
  }
  const Finished named = blown_up({"--check-finite"}, {});
  CAPTURE(named.err);
  CHECK(named.code == 4);
}
