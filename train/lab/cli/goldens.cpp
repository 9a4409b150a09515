#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "tensor/core/error.hpp"
#include "train/lab/cli/lab_cli.hpp"
#include "train/lab/goldens/goldens.hpp"
#include "train/process/version.hpp"

namespace skytape::train {
namespace {

int run(const std::string& folder, const std::string& device) {
  const std::vector<GoldenRow> rows = run_goldens(folder, parse_device(device));
  fmt::print("{}", golden_table(rows));
  // A folder of methods that are not here yet checks nothing, and that is no success.
  const bool any = std::any_of(rows.begin(), rows.end(), [](const GoldenRow& row) {
    return row.status == GoldenRow::Status::passed;
  });
  return any && all_passed(rows) ? 0 : 1;
}

}  // namespace

void add_goldens(const Command& program) {
  const Command command =
      program.add_command("goldens", "compare with reference vectors in a folder");
  const auto folder = std::make_shared<std::string>("tests/goldens");
  const auto device = std::make_shared<std::string>("auto");
  command.add_option("--dir", *folder, "folder of <method>/<case>/meta.json and .npy files");
  command.add_option("--device", *device, "auto, cpu or cuda");
  command.runs([folder, device] { return run(*folder, *device); });
}

}  // namespace skytape::train
