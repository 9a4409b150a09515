#include <fmt/format.h>

#include <memory>

#include "attention/inverse/iterative_inverse_plan.hpp"
#include "attention/registry.hpp"
#include "data/files/json.hpp"
#include "data/task.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/on_device.hpp"
#include "tensor/core/suggest.hpp"
#include "tensor/gemm/gemm_rate.hpp"
#include "train/cli/cli.hpp"
#include "train/config/keys.hpp"
#include "train/formats/table.hpp"
#include "train/process/product_rates.hpp"
#include "train/process/progress.hpp"
#include "train/process/version.hpp"
#include "train/run/run_summary.hpp"

namespace skytape::train {
namespace {

void print_build() {
  const data::Json machine = machine_facts();
  fmt::print("{}machine   {}, {}, {:.1f} GB\n", build_facts(), machine.at("cpu").get<std::string>(),
             counted(machine.at("cores").get<int>(), "core"),
             1e-9 * static_cast<double>(machine.at("memory_bytes").get<std::int64_t>()));
  const std::string fault = cuda_fault();
  fmt::print("devices   cpu{}\n", fault.empty() ? ", cuda" : kHaveCuda ? "; cuda: " + fault : "");
}

/// Prints which kernels invert the landmarks' matrices of the papers' layers at batch 32, and their
/// time.
void print_inverse() {
  if constexpr (kHaveCuda) {
    constexpr int kMatrices = 64, kSize = 128;
    const Tensor m = Tensor::empty({1, kSize, kSize}, DType::f32, Device::cuda);
    if (attention::inverse_kept_on(Cuda{}, m) == attention::InverseKept::factors) return;
    fmt::print("iterative inverse of {} matrices [{}, {}], forward and backward:", kMatrices, kSize,
               kSize);
    for (const Precision precision : {Precision::tf32, Precision::bf16}) {
      const PrecisionScope scope(Device::cuda, precision);
      for (int blocks = attention::inverse_blocks_on(Cuda{}, kMatrices, kSize); blocks > 0;
           --blocks) {
        fmt::print(" {:.3f} ms at {} by {} each{}",
                   measure_inverse_ms(precision, kMatrices, kSize, blocks),
                   precision == Precision::tf32 ? "tf32" : "bf16", counted(blocks, "block"),
                   precision == Precision::bf16 && blocks == 1 ? "\n" : ",");
      }
    }
  }
}

/// Prints the costs of kernels on this GPU, and the peak throughput of a kernel's own products.
void print_facts() {
  const GpuFacts facts = measure_gpu_facts();
  fmt::print("clock under load {:.0f} MHz\n", facts.clock_mhz);
  fmt::print(
      "nodes of a graph of empty kernels {:.0f} ns, {}\n", facts.node_ns,
      facts.why_no_dependent.empty()
          ? fmt::format("{:.0f} ns where each is launched ahead of time", facts.dependent_node_ns)
          : "none is launched ahead of time: " + facts.why_no_dependent);
  fmt::print("mma.sync, bf16 {:.0f} TFLOP/s\n", facts.mma_tflops);
}

/// Rates of the GPU. With `required`, an Error unless products run on tensor cores.
void print_gpu(bool required) {
  const Device device = parse_device("cuda");
  const ProductRates rates = measure_products(device);
  const auto line = [&](const char* precision, double rate) {
    fmt::print("{} products {:9.0f} GFLOP/s, {:5.2f} times fp32\n", precision, rate,
               rate / rates.fp32);
  };
  line("fp32", rates.fp32);
  line("tf32", rates.tf32);
  line("bf16", rates.bf16);
  fmt::print("copies        {:9.0f} GB/s\n", tensor::measure_copy_gbs(device));
  print_facts();
  print_inverse();
  const std::string problem = why_no_tensor_cores(rates);
  if (problem.empty()) return;
  if (required) throw Error("info gpu: " + problem);
  fmt::print("no tensor cores: {}\n", problem);
}

/// Trainable parameters of one layer at the LRA sizes, e.g. "E [128, 2048]"; "none".
std::string parameters_of(const attention::Spec& spec) {
  ParameterStore store;
  const auto method = spec.make({.nominal_length = 2048, .prefix = "", .store = &store}, {});
  std::vector<std::string> parts;
  for (const Parameter* p : method->parameters()) parts.push_back(join(p->name, " ", p->shape));
  return parts.empty() ? "none" : listed(parts);
}

/// The cases in which a method equals an exact one; "is exact" of those that others equal.
std::string exact_of(const attention::Spec& spec) {
  std::vector<std::string> parts;
  for (const attention::Spec& other : attention::registry()) {
    for (const attention::Exact& exact : other.exact) {
      if (exact.equals == spec.name) return "is exact";
    }
  }
  for (const attention::Exact& exact : spec.exact) {
    parts.push_back(fmt::format("{}: {}", exact.equals, exact.when));
  }
  return parts.empty() ? "never" : listed(parts, "; ");
}

/// random, reads padding, budget from the batch, and what else a method takes or leaves.
std::string traits_of(const attention::Spec& spec) {
  std::string text = spec.random ? "random" : "deterministic";
  if (spec.reads_padding) text += ", reads padding";
  if (!spec.per_example) text += ", budget from the batch";
  if (spec.shared_qk) text += ", queries are the keys";
  if (spec.reads_x) text += ", reads the layer's input";
  if (spec.carries_state) text += ", hands a state to the next layer";
  return text;
}

void print_methods() {
  for (const attention::Spec& spec : attention::registry()) {
    fmt::print("{:<16} {} [{}]\n", spec.name, spec.idea, spec.paper);
    fmt::print("{:<16} cost {}; memory {}; parameters {}\n", "", spec.cost, spec.memory,
               parameters_of(spec));
    fmt::print("{:<16} {}; sequential operations {}; exact: {}\n", "", traits_of(spec),
               spec.sequential, exact_of(spec));
    for (const attention::OptionInfo& option : spec.options) {
      fmt::print("    {:<28} {:<12} {:<24} {}\n", spec.name + "." + option.key, option.default_text,
                 option.range, option.meaning);
    }
  }
}

/// "`features=128` `gamma=0.1`"; "none".
std::string options_of(const attention::Spec& spec) {
  std::vector<std::string> parts;
  for (const attention::OptionInfo& option : spec.options) {
    parts.push_back(fmt::format("`{}={}`", option.key, option.default_text));
  }
  return parts.empty() ? "none" : listed(parts, " ");
}

/// The same as JSON, of which make readme writes attention/README.md. Three narrow tables: one wide
/// one could only be read by scrolling.
void print_methods_json() {
  Table compute{
      "compute", "What they compute", {{"method"}, {"idea"}, {"paper"}, {"exact when"}}, {}, {}};
  Table cost{"cost",
             "What they cost",
             {{"method"}, {"forward"}, {"sequential"}, {"memory"}, {"parameters"}, {"traits"}},
             {},
             {}};
  Table options{"options", "Their options", {{"method"}, {"options and defaults"}}, {}, {}};
  for (const attention::Spec& spec : attention::registry()) {
    const std::string name = fmt::format("`{}`", spec.name);
    compute.add({name, spec.idea, spec.paper, exact_of(spec)});
    cost.add({name, spec.cost, spec.sequential, spec.memory, parameters_of(spec), traits_of(spec)});
    options.add({name, options_of(spec)});
  }
  const data::Json tables = {to_json(compute), to_json(cost), to_json(options)};
  fmt::print("{}\n", data::json_text({{"tables", tables}}, {.indent = 1}));
}

void print_recipes() {
  for (const Recipe& recipe : recipes()) fmt::print("{:<12} {}\n", recipe.name, recipe.idea);
  fmt::print("\n{:<18} {:<39} {:<14} {:<9} {}\n", "key", "range", "default", "category", "meaning");
  constexpr const char* kCategories[] = {"encoder", "model", "schedule", "data"};
  for (const KeyInfo& key : recipe_keys()) {
    fmt::print("{:<18} {:<39} {:<14} {:<9} {}\n", key.key, range_of(key),
               key.standard.empty() ? "–" : key.standard,
               kCategories[static_cast<int>(key.category)], key.meaning);
  }
}

void print_tasks() {
  Table table{"tasks",
              "tasks, with the sequence length padded to a power of two",
              {{"task"}, {"classes"}, {"vocabulary"}, {"length"}, {"sequences"}, {"what"}},
              {},
              {}};
  for (const data::TaskInfo& task : data::tasks()) {
    table.add(
        {std::string(task.name), task.classes, task.vocabulary, task.nominal_length, task.sequences,
         fmt::format("{}{}", task.description, task.generator.empty() ? "" : " (generated)")});
  }
  fmt::print("{}", to_text(table));
}

void print_method_names() {
  for (const attention::Spec& spec : attention::registry()) fmt::print("{}\n", spec.name);
}

struct InfoFlags {
  std::string topic, folder;
  bool json = false, names = false, require_tensor_cores = false;
};

int run(const InfoFlags& flags) {
  const std::string& what = flags.topic;
  if (flags.json && what != "attention") {
    throw UsageError("info: --json is for the topic attention");
  }
  if (flags.names && what != "attention") {
    throw UsageError("info: --names is for the topic attention");
  }
  if (flags.require_tensor_cores && what != "gpu") {
    throw UsageError("info: --require-tensor-cores is for the topic gpu");
  }
  if (what == "run" && flags.folder.empty()) {
    throw UsageError("info run: expected the folder of a run, as in info run runs/NAME");
  }
  const bool of_recipe = what == "recipe" || what == "recipes";
  if (what != "run" && !of_recipe && !flags.folder.empty()) {
    throw UsageError(fmt::format("info: a folder is for the topic run, got '{}'", flags.folder));
  }
  if (what.empty() || what == "build") {
    print_build();
  } else if (what == "attention") {
    flags.json ? print_methods_json() : flags.names ? print_method_names() : print_methods();
  } else if (what == "gpu") {
    print_gpu(flags.require_tensor_cores);
  } else if (of_recipe && !flags.folder.empty()) {
    fmt::print("{}", find_recipe(flags.folder).text);
  } else if (of_recipe) {
    print_recipes();
  } else if (what == "task" || what == "tasks") {
    print_tasks();
  } else if (what == "run") {
    fmt::print("{}", to_text(run_summary(flags.folder)));
  } else {
    throw UsageError(
        unknown_name("topic", what, {"build", "attention", "gpu", "recipe", "task", "run"}));
  }
  return 0;
}

}  // namespace

void add_info(const Command& program) {
  const Command command = program.add_command(
      "info", "information: build, attention, gpu, recipe, task, or run FOLDER");
  const auto flags = std::make_shared<InfoFlags>();
  command.add_option("topic", flags->topic,
                     "build (default), attention, gpu, recipe, task, or run with its folder");
  command.add_option("folder", flags->folder,
                     "of the run; of recipe: the name of one, which is printed as a file has it");
  command.add_flag("--json", flags->json,
                   "print the methods of attention as JSON, as tables with titles");
  command.add_flag("--names", flags->names, "print the names of the methods of attention alone")
      .excludes({"--json"});
  command.add_flag("--require-tensor-cores", flags->require_tensor_cores,
                   "gpu: fail unless tf32 and bf16 products are as fast as tensor cores make them");
  // Each rank of `mpirun … info` says what its host has.
  command.runs_as_rank([flags] { return run(*flags); });
}

}  // namespace skytape::train
