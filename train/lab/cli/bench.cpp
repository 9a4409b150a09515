#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "data/files/json.hpp"
#include "data/files/output.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/tensor.hpp"
#include "tensor/gemm/gemm_rate.hpp"
#include "tensor/gemm/precision.hpp"
#include "train/cli/cli.hpp"
#include "train/lab/bench/bench.hpp"
#include "train/lab/bench/bench_kernels.hpp"
#include "train/lab/bench/bench_ranks.hpp"
#include "train/lab/cli/lab_cli.hpp"
#include "train/process/launch.hpp"
#include "train/process/product_rates.hpp"
#include "train/process/progress.hpp"
#include "train/process/streams.hpp"
#include "train/process/threads.hpp"
#include "train/process/version.hpp"

namespace skytape::train {
namespace {

using data::Json;

constexpr const char* kAllLengths = "512,1024,2048,4096,8192";

struct BenchFlags {
  BenchCase all = {};  // what all cases have in common
  std::string attention = "all", n = "2048", device = "auto", recipe, json_file;
  std::int64_t tokens = 0, rounds = 3;
  int threads = 0;
  bool no_graph = false, no_rates = false, ranks = false, kernels = false;
  double model = 1e8;        // parameters of a larger model
  double microbatch_ms = 0;  // of another machine, for the model; 0: as measured
};

/// The number that an object has for the key, or a dash.
std::string cell(const Json& object, const char* key, int digits, double scale = 1) {
  const Json& value = data::member(object, key);
  return value.is_null() ? "-" : fmt::format("{:.{}f}", scale * value.get<double>(), digits);
}

// Each case has the machine's GEMM throughput of its time: shared machines change theirs.
constexpr const char* kRow =
    "{:<16} {:>6} {:>5} {:>8} {:>10} {:>9} {:>9} {:>9} {:>10} {:>9} {:>8} {:>9} {:>6} {:>6}\n";

void print_header() {
  fmt::print(kRow, "attention", "n", "batch", "features", "step ms", "min ms", "fwd ms", "attn fwd",
             "attn f+b", "peak MB", "rss MB", "GFLOP/s", "gemm", "share");
}

void print_row(const Json& r) {
  fmt::print(kRow, r.at("attention").get<std::string>(), r.at("n").get<std::int64_t>(),
             r.at("batch").get<std::int64_t>(), cell(r, "features", 0),
             cell(r, "step_ms_median", 1), cell(r, "step_ms_min", 1),
             cell(r, "forward_ms_median", 1), cell(r, "attention_forward_ms_median", 1),
             cell(r, "attention_forward_backward_ms_median", 1), cell(r, "peak_bytes", 1, 1e-6),
             cell(r, "rss_bytes", 1, 1e-6), cell(r, "gflops", 1), cell(r, "gemm_gflops", 0),
             cell(r, "gemm_share", 2));
  std::fflush(stdout);
}

/// The steps again, by what they spend their time on.
void print_parts(const Json& results) {
  fmt::print("\n{:<16} {:>6} {:>10} {:>10} {:>10} {:>10} {:>10} {:>7}\n", "ms of a step", "n",
             "attention", "products", "rest", "optimiser", "data", "serial");
  for (const Json& r : results) {
    if (!r.contains("step_parts_ms")) continue;
    const Json& parts = data::member(r, "step_parts_ms");
    fmt::print("{:<16} {:>6} {:>10} {:>10} {:>10} {:>10} {:>10} {:>7}\n",
               r.at("attention").get<std::string>(), r.at("n").get<std::int64_t>(),
               cell(parts, "attention", 2), cell(parts, "products", 2), cell(parts, "rest", 2),
               cell(parts, "optimiser", 2), cell(parts, "data", 2), cell(r, "serial_share", 3));
  }
}

/// The steps again, and how they ran on a GPU.
void print_replays(const Json& results) {
  fmt::print("\n{:<16} {:>6} {:>10} {:>9} {:>7}\n", "attention", "n", "step ms", "replayed",
             "nodes");
  for (const Json& r : results) {
    fmt::print("{:<16} {:>6} {:>10} {:>9} {:>7}\n", r.at("attention").get<std::string>(),
               r.at("n").get<std::int64_t>(), cell(r, "step_ms_median", 2),
               r.at("steps_replayed").get<std::int64_t>(), r.at("graph_nodes").get<std::int64_t>());
  }
}

/// Examples of n positions: as --batch says, or as many as make --tokens.
std::int64_t batch_for(const BenchFlags& flags, std::int64_t n) {
  if (flags.tokens == 0) return flags.all.batch;
  if (flags.tokens % n != 0) {
    throw UsageError(
        fmt::format("--tokens: expected a multiple of every --n, got {} for {}", flags.tokens, n));
  }
  return flags.tokens / n;
}

/// The recipe's own model, and its features.
void use_recipe(const std::string& recipe, const std::string& method, BenchCase& c) {
  c.recipe = recipe;
  c.papers_model = false;
  for (const Setting& s : recipe_settings(recipe, c.task, method)) {
    if (s.key == "features") c.features = std::stoll(s.value);
  }
}

/// A case for each method and length.
std::vector<BenchCase> cases_of(const BenchFlags& flags) {
  BenchCase c = flags.all;
  c.graphs = !flags.no_graph;
  c.gemm_rate = !flags.no_rates;
  const std::vector<std::string> methods = method_list(flags.attention);
  const std::vector<std::int64_t> lengths =
      number_list("--n", flags.n == "all" ? kAllLengths : flags.n, 1, 1 << 24);
  std::vector<BenchCase> cases;
  for (const std::string& method : methods) {
    if (!flags.recipe.empty()) use_recipe(flags.recipe, method, c);
    for (const std::int64_t n : lengths) {
      c.attention = method;
      c.n = n;
      c.batch = batch_for(flags, n);
      cases.push_back(c);
    }
  }
  return cases;
}

/// UsageError or Error where --json cannot be written, or would replace the recipe.
void check_json(const BenchFlags& flags) {
  if (flags.json_file.empty()) return;
  std::error_code absent;
  if (std::filesystem::equivalent(flags.recipe, flags.json_file, absent)) {
    throw UsageError(
        fmt::format("--json {}: is the file of --recipe, expected another", flags.json_file));
  }
  data::ensure_can_write(flags.json_file);
}

/// To --json, after each case: what is measured stays, whatever becomes of the next one.
void write_json(const BenchFlags& flags, const Json& report) {
  if (flags.json_file.empty()) return;
  data::write_file(flags.json_file, data::json_text(report, {.indent = 2}) + "\n");
}

int run(const BenchFlags& flags) {
  set_threads(flags.threads);
  const Device device = parse_device(flags.device);
  const Precision precision = parse_precision(flags.all.precision);
  (void)model_size(flags.all.size);
  std::vector<BenchCase> cases = cases_of(flags);

  Json machine = machine_facts();
  std::string rates = "rates not measured";
  set_precision(device, precision);  // of the rate, too
  if (!flags.no_rates) {
    const double gemm = tensor::measure_gemm_gflops(device);
    const double copy = tensor::measure_copy_gbs(device);
    machine["gemm_gflops"] = gemm;
    machine["copy_gbs"] = copy;
    rates = fmt::format("gemm {:.0f} GFLOP/s, copy {:.1f} GB/s", gemm, copy);
  }
  fmt::print("{}, {}, device {}, {}: {}, revision {}\n", machine.at("cpu").get<std::string>(),
             counted(thread_count(), "thread"), name(device), flags.all.precision, rates,
             revision());
  print_header();
  Json results = Json::array();
  // One case alone has nobody to take turns with.
  const auto rounds =
      cases.size() == 1 ? 1 : static_cast<int>(std::min(flags.rounds, flags.all.steps));
  for (BenchCase& c : cases) {
    c.device = device;
    c.steps = ceil_div(flags.all.steps, rounds);
  }
  std::vector<double> all_rates;
  run_in_turn(cases, rounds, [&](const BenchCase& c, const BenchResult& result) {
    all_rates.insert(all_rates.end(), result.gemm_rates.begin(), result.gemm_rates.end());
    results.push_back(to_json(c, result));
    print_row(results.back());
    write_json(flags, {{"machine", machine}, {"results", results}});
  });
  if (!flags.all.forward_only) print_parts(results);
  if (device == Device::cuda) print_replays(results);
  if (const std::string why = why_not_comparable(all_rates); !why.empty()) {
    write_stderr("warning: " + why + "\n");
  }
  return 0;
}

/// Each kernel of each case's step.
int run_kernels(const BenchFlags& flags) {
  const Device device = parse_device(flags.device);
  if (device != Device::cuda) {
    throw UsageError("bench: --kernels has no effect without --device cuda");
  }
  set_threads(flags.threads);
  const Precision precision = parse_precision(flags.all.precision);
  const std::vector<BenchCase> cases = cases_of(flags);
  Json machine = machine_facts();
  if (!flags.no_rates) {
    const auto tflops = [&](Precision of) {
      const PrecisionScope scope(device, of);
      return 1e-3 * tensor::measure_gemm_gflops(device);
    };
    const double copy = tensor::measure_copy_gbs(device);  // read plus written
    const double products = tflops(precision), fp32 = tflops(Precision::fp32);
    machine["copy_gbs"] = copy;
    machine["product_tflops"] = products;
    machine["fp32_tflops"] = fp32;
    fmt::print("copy {:.0f} GB/s, products {:.1f} TFLOP/s in {}, {:.1f} in fp32\n", copy, products,
               flags.all.precision, fp32);
  }
  fmt::print("revision {}\n", revision());
  Json steps = Json::array();
  std::vector<std::pair<BenchCase, StepKernels>> all;
  for (BenchCase c : cases) {
    c.device = device;
    const StepKernels& step = all.emplace_back(c, measure_kernels(c)).second;
    for (const Table& table : kernel_tables(c, step)) fmt::print("\n{}", to_text(table));
    std::fflush(stdout);
    steps.push_back(to_json(c, step));
    write_json(flags, {{"machine", machine}, {"steps", steps}});
  }
  fmt::print("\n{}", to_text(summary_table(all)));
  return 0;
}

/// The step of several ranks instead: measured, then modelled for more of them.
int run_ranks(const BenchFlags& flags, const Ranks& ranks) {
  BenchCase c = flags.all;
  together(ranks, [&] {
    set_threads(flags.threads == 0 ? ranks.default_threads() : flags.threads);
    c.device = parse_device(flags.device);
    c.graphs = !flags.no_graph;
    c.n = number_list("--n", flags.n, 1, 1 << 24).front();
    c.batch = batch_for(flags, c.n);
    c.attention = method_list(flags.attention).front();
    set_precision(c.device, parse_precision(c.precision));
  });
  RankTimes times = measure_ranks(c, ranks);
  if (!ranks.first()) return 0;
  const Json machine = machine_facts();
  fmt::print("{}, {} of {}, {}, n {}, batch {}, revision {}\n\n{}\n",
             machine.at("cpu").get<std::string>(), ranks.text(), counted(thread_count(), "thread"),
             c.attention, c.n, c.batch, revision(), to_text(measured_table(times)));
  if (flags.microbatch_ms > 0) times.microbatch_seconds = 1e-3 * flags.microbatch_ms;
  for (const double parameters : {static_cast<double>(times.parameters), flags.model}) {
    for (const Reduce reduce : {Reduce::ordered, Reduce::fast}) {
      fmt::print("{}\n", to_text(modelled_table(times, parameters, reduce)));
    }
  }
  return 0;
}

/// Declares the flags that choose the steps to time, and the device.
void declare_cases(const Command& command, BenchFlags& flags) {
  command.add_option("--attention", flags.attention, "methods a,b,… or all");
  command.add_option("--n", flags.n, "lengths a,b,… or all");
  command.add_option("--batch", flags.all.batch, "examples per step").between(1, 65536);
  command.add_option("--tokens", flags.tokens, "positions per step: as many examples at each n")
      .between(1, std::int64_t{1} << 32)
      .excludes({"--batch"})
      .no_default();
  command.add_option("--features", flags.all.features, "features of methods that have them")
      .between(1, 65536);
  add_size(command, flags.all.size, flags.all.layers);
  command.add_option("--steps", flags.all.steps, "timed repetitions").between(1, 1000000);
  command
      .add_option("--rounds", flags.rounds,
                  "times that several cases are taken in turn, --steps shared among them")
      .between(1, 1000);
  command.add_option("--device", flags.device, "auto, cpu or cuda");
  command.add_option("--precision", flags.all.precision, kPrecisionHelp);
  command.add_option("--threads", flags.threads, "CPU threads; 0: all cores");
}

}  // namespace

void add_bench(const Command& program) {
  const Command command =
      program.add_command("bench", "time training steps and the attention alone");
  const auto flags = std::make_shared<BenchFlags>();
  declare_cases(command, *flags);
  command.add_flag("--forward", flags->all.forward_only, "forward passes only");
  command.add_flag("--no-graph", flags->no_graph,
                   "cuda: submit every step op by op instead of replaying CUDA graphs");
  command
      .add_flag("--ranks", flags->ranks,
                "the first method's step at the first length on the ranks of mpirun, and "
                "modelled for 1 to 1,024")
      .excludes({"--forward"});
  command.add_option("--model", flags->model, "parameters of a larger model, with --ranks")
      .within(1.0, 1e13)
      .needs("--ranks");
  command
      .add_option("--microbatch-ms", flags->microbatch_ms,
                  "milliseconds of a microbatch on another machine, with --ranks; 0: as measured")
      .within(0.0, 1e9)
      .needs("--ranks");
  command
      .add_flag("--no-rates", flags->no_rates,
                "measure no GEMM throughput and no copies: a tool that watches every access would "
                "spend its time on them")
      .excludes({"--ranks"});
  command.add_option("--json", flags->json_file, "write machine and results there")
      .excludes({"--ranks"});
  command
      .add_option("--recipe", flags->recipe,
                  "with this recipe's model and features, not the papers'")
      .excludes({"--features", "--ranks"});
  command.add_flag("--kernels", flags->kernels, "cuda: every kernel of one step and its time")
      .excludes({"--forward", "--no-graph", "--ranks"});
  command.runs_as_rank([flags] {
    if (!flags->ranks) refuse_ranks("bench");
    check_json(*flags);
    if (flags->kernels) return run_kernels(*flags);
    if (!flags->ranks) return run(*flags);
    return with_ranks({}, [&](const Ranks& ranks) { return run_ranks(*flags, ranks); });
  });
}

}  // namespace skytape::train
