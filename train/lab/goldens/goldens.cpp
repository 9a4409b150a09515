#include "train/lab/goldens/goldens.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "attention/inverse/iterative_inverse.hpp"
#include "attention/registry.hpp"
#include "autograd/ops.hpp"
#include "data/files/source.hpp"
#include "train/lab/goldens/golden_case.hpp"

namespace skytape {
namespace {

namespace fs = std::filesystem;
using attention::Draws;
using attention::OptionValues;
using Status = GoldenRow::Status;

// ---- attention methods -----------------------------------------------------------------------

/// Bits, most significant first, eight to a number: [B, H, N, N].
Tensor unpack_keep(const NpyArray& packed, const Shape& q, DType dtype) {
  const Shape shape = q.with(3, q[2]);
  ENSURE(packed.integer && static_cast<std::int64_t>(packed.integers.size()) * 8 >= shape.numel(),
         "goldens: rand_keep_packed is too short for ", shape);
  std::vector<double> keep(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < keep.size(); ++i) {
    keep[i] = static_cast<double>(packed.integers[i / 8] >> (7 - i % 8) & 1);
  }
  return Tensor::from(keep, shape, dtype, Device::cpu);
}

/// Every rand_* array under its own name; integers as i32.
Draws injected_draws(const GoldenCase& c, const Shape& q, DType dtype, Device device) {
  Draws draws;
  for (const auto& [name, array] : c.arrays) {
    if (!name.starts_with("rand_")) continue;
    if (name == "rand_keep_packed") {
      draws.set("keep", unpack_keep(array, q, dtype).to(device));
    } else {
      draws.set(name.substr(5), array.tensor(array.integer ? DType::i32 : dtype).to(device));
    }
  }
  return draws;
}

/// The parameter or buffer whose last name component is `name`.
Parameter& parameter_named(ParameterStore& store, const std::string& name) {
  for (Parameter& p : store.parameters()) {
    if (p.name == name || p.name.ends_with("." + name)) return p;
    if (p.name.ends_with("." + name + ".weight")) return p;  // a module of PyTorch, without bias
  }
  throw Error(fmt::format("goldens: the method has no parameter or buffer '{}'", name));
}

/// A head-level problem: q, k, v, dout and the names of the arrays to compare. Reformer's cases
/// call it qk, out_heads, … in addition to the problem with its projections.
struct Names {
  std::string q = "q", k = "k", v = "v", dout = "dout", out = "out", dq = "dq", dk = "dk",
              dv = "dv";
};

/// Runs the method with the given options; `rename` maps "dq" to the array to compare with (empty:
/// none).
void run_method(const attention::Spec& spec, const GoldenCase& c, const OptionValues& options,
                DType dtype, Device device, Comparison& comparison,
                const std::function<std::string(const std::string&)>& rename) {
  const bool shared = c.has("qk");
  const Names names =
      shared ? Names{"qk", "", "v", "dout_heads", "out_heads", "dqk", "", "dv"} : Names{};
  const auto tensor = [&](const std::string& name) { return c.get(name).tensor(dtype).to(device); };
  const Tensor q0 = tensor(names.q);  // [B, H, N, D]

  ParameterStore store;
  attention::LayerContext context{0, q0.size(1), q0.size(3), q0.size(2), "attn.", &store};
  if (c.has("x")) context.width = c.get("x").shape.at(2);  // [B, N, E]
  const std::unique_ptr<attention::Method> method = spec.make(context, options);
  store.pack(dtype, device, 1);
  store.zero_gradients();
  for (const auto& [name, array] : c.arrays) {
    const std::string last = name.substr(std::min<std::size_t>(6, name.size()));
    if (!name.starts_with("param_") || (shared && last.starts_with("W"))) continue;
    parameter_named(store, last).value.copy_from(array.tensor(dtype).to(device));
  }

  const Draws draws = injected_draws(c, q0.shape(), dtype, device);
  attention::Call call;
  call.injected = &draws;
  Tape tape;
  const Var q = tape.input(q0);
  const Var k = spec.shared_qk ? Var() : tape.input(tensor(shared ? "qk" : names.k));
  const Var v = tape.input(tensor(names.v));
  const Var x = spec.reads_x ? tape.input(tensor("x")) : Var();
  const Var out = attention::apply(*method, {q, k, v, x}, tensor("mask"), call);
  tape.backward(out, tensor(names.dout));

  const auto check = [&](const std::string& name, const Tensor& ours) {
    const std::string golden = name.empty() ? name : rename(name);
    if (!golden.empty() && c.has(golden)) comparison.check(golden, ours);
  };
  check(names.out, out.value());
  check(names.dq, tape.grad(q));
  if (k.defined()) check(names.dk, tape.grad(k));
  check(names.dv, tape.grad(v));
  if (x.defined()) check("dx", tape.grad(x));
  for (const auto& [name, array] : c.arrays) {
    if (!name.starts_with("dparam_") || shared) continue;
    check(name, parameter_named(store, name.substr(7)).grad);
  }
}

/// Arrays that hold another gradient of the same forward pass, and the option that asks for it.
struct Alternative {
  std::string prefix, suffix, option, value;
};
const Alternative kAlternatives[] = {
    {"official_", "", "pilot_gradient", "official"},
    {"", "_detached_stabiliser", "detach_stabiliser", "1"},
};

/// Tables rand_<buffer>_<nominal length> that the official code drew, without inputs: each entry
/// must be one that the method, as the papers' code draws (random_range = official), can draw in
/// that place. What it can draw is seen from many seeds.
void run_tables(const attention::Spec& spec, const GoldenCase& c, DType dtype,
                Comparison& comparison) {
  constexpr std::uint64_t kSeeds = 200;  // misses one of 13 candidates, 3 drawn: 1e-23
  for (const auto& [name, golden] : c.arrays) {
    const std::size_t last = name.rfind('_');
    const std::string buffer = name.substr(5, last - 5);
    attention::LayerContext context;
    context.heads = golden.shape[0];
    context.nominal_length = std::stoll(name.substr(last + 1));
    OptionValues options = c.options;
    options["random_range"] = "official";

    std::vector<std::set<double>> possible;  // of each row of the table
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      ParameterStore store;
      context.store = &store;
      const std::unique_ptr<attention::Method> method = spec.make(context, options);
      store.pack(dtype, Device::cpu, seed);
      const std::vector<double> drawn = parameter_named(store, buffer).value.to_vector();
      const std::size_t per_row =
          drawn.size() / static_cast<std::size_t>(golden.shape[0] * golden.shape[1]);
      possible.resize(drawn.size() / per_row);
      for (std::size_t i = 0; i < drawn.size(); ++i) possible[i / per_row].insert(drawn[i]);
    }
    std::vector<double> ours;  // the golden entry, or -1 where it cannot be drawn
    const auto per_row = static_cast<std::size_t>(golden.shape[2]);
    for (std::size_t i = 0; i < golden.integers.size(); ++i) {
      const auto entry = static_cast<double>(golden.integers[i]);
      ours.push_back(possible.at(i / per_row).contains(entry) ? entry : -1);
    }
    comparison.check(name, ours);
  }
}

void run_attention(const attention::Spec& spec, const GoldenCase& c, DType dtype, Device device,
                   Comparison& comparison) {
  if (!c.has("mask")) {
    run_tables(spec, c, dtype, comparison);
    return;
  }
  run_method(spec, c, c.options, dtype, device, comparison, [](const auto& name) { return name; });
  for (const Alternative& alternative : kAlternatives) {
    const auto rename = [&](const std::string& name) {
      return alternative.prefix + name + alternative.suffix;
    };
    if (!c.has(rename("dq"))) continue;
    if (!spec.has_option(alternative.option)) {
      comparison.note(Status::not_implemented, fmt::format("{}: the method has no option {}",
                                                           rename("dq"), alternative.option));
      continue;
    }
    OptionValues options = c.options;
    options[alternative.option] = alternative.value;
    run_method(spec, c, options, dtype, device, comparison, rename);
  }
}

// ---- methods that are no attention method ---------------------------------------------------

void run_inverse(const GoldenCase& c, DType dtype, Device device, Comparison& comparison) {
  const Tensor m = c.get("M").tensor(dtype).to(device);    // [B, H, L, L]
  const Tensor dz = c.get("dZ").tensor(dtype).to(device);  // [B, H, L, L]
  const auto gradient = [&](const OptionValues& more, Tensor* z) {
    attention::InverseConfig config;
    OptionValues options = c.options;
    options.insert(more.begin(), more.end());
    attention::assign(c.method, config.options(), options);
    attention::InverseSaved saved;
    const Tensor result = attention::inverse_forward(m, config, saved);
    if (z != nullptr) *z = result;
    return attention::inverse_backward(saved, dz);
  };
  Tensor z;  // [B, H, L, L]
  comparison.check("dM", gradient({}, &z));
  comparison.check("Z", z);
  comparison.check("dM_detached_init", gradient({{"detach_start", "1"}}, nullptr));
  // The implicit gradient is offered for converged iterations only.
  if (attention::inverse_residual(m, z) < 1e-3) {
    comparison.check("dM_implicit", gradient({{"inverse_backward", "implicit"}}, nullptr));
  }
}

void run_case(const GoldenCase& c, DType dtype, Device device, std::vector<GoldenRow>& rows) {
  Comparison comparison(c, dtype, rows);
  try {
    if (c.method == "iterative_inverse") return run_inverse(c, dtype, device, comparison);
    if (c.method == "model") return run_golden_model(c, dtype, device, comparison);
    for (const attention::Spec& spec : attention::registry()) {
      if (spec.name == c.method) return run_attention(spec, c, dtype, device, comparison);
    }
    comparison.note(Status::not_implemented, "not implemented");
  } catch (const DataError&) {
    throw;
  } catch (const Error& problem) {
    comparison.note(Status::failed, problem.what());
  }
}

std::vector<fs::path> folders_in(const fs::path& directory) {
  std::vector<fs::path> folders;
  for (const auto& entry : data::entries_of(directory)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  return folders;
}

}  // namespace

std::vector<GoldenRow> run_goldens(const fs::path& directory, Device device) {
  if (!fs::is_directory(directory)) {
    throw DataError(fmt::format("goldens: no directory {}", directory.string()));
  }
  std::vector<GoldenRow> rows;
  for (const fs::path& method : folders_in(directory)) {
    for (const fs::path& folder : folders_in(method)) {
      if (!fs::exists(folder / "meta.json")) continue;
      const GoldenCase c = read_golden_case(folder);
      for (const DType dtype : {DType::f64, DType::f32}) run_case(c, dtype, device, rows);
    }
  }
  if (rows.empty()) {
    throw DataError(
        fmt::format("goldens: no <method>/<case>/meta.json below {}", directory.string()));
  }
  return rows;
}

bool all_passed(const std::vector<GoldenRow>& rows) {
  return std::none_of(rows.begin(), rows.end(),
                      [](const GoldenRow& row) { return row.status == Status::failed; });
}

std::string golden_table(const std::vector<GoldenRow>& rows) {
  std::string text = fmt::format("{:34} {:4} {:24} {:>9} {:>9}  {}\n", "case", "type",
                                 "worst array", "error", "limit", "result");
  int passed = 0, failed = 0, missing = 0;
  const auto line = [&](const GoldenRow& row, const char* result) {
    if (row.array.empty() || !row.note.empty()) {
      text += fmt::format("{:34} {:4} {:24} {}: {}\n", row.folder, name(row.dtype), row.array,
                          result, row.note);
    } else {
      text += fmt::format("{:34} {:4} {:24} {:9.1e} {:9.1e}  {}\n", row.folder, name(row.dtype),
                          row.array, row.error, row.limit, result);
    }
  };
  for (auto row = rows.begin(); row != rows.end();) {
    const auto end = std::find_if(row, rows.end(), [&](const GoldenRow& r) {
      return r.folder != row->folder || r.dtype != row->dtype;
    });
    const GoldenRow* worst = nullptr;  // of those that passed
    bool any_failed = false;
    for (; row != end; ++row) {
      passed += row->status == Status::passed;
      failed += row->status == Status::failed;
      missing += row->status == Status::not_implemented;
      any_failed = any_failed || row->status == Status::failed;
      if (row->status == Status::failed) line(*row, "FAILED");
      if (row->status == Status::not_implemented) line(*row, "left out");
      if (row->status == Status::passed &&
          (worst == nullptr || row->error * worst->limit > worst->error * row->limit)) {
        worst = &*row;
      }
    }
    if (!any_failed && worst != nullptr) line(*worst, "ok");
  }
  text += fmt::format("{} passed, {} failed, {} not implemented\n", passed, failed, missing);
  return text;
}

}  // namespace skytape
