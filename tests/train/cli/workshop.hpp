// A place to train in: small data, small models, and the program.
#pragma once

#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tests/data/synthetic.hpp"
#include "tests/train/cli/program.hpp"

namespace skytape::test {

/// A small ListOps, and runs of a small model on it.
struct Workshop {
  data::synthetic::Folder folder;
  std::filesystem::path data = folder.path() / "data";

  Workshop() { data::synthetic::small_listops(data, 150); }

  [[nodiscard]] std::filesystem::path run(const std::string& name) const {
    return folder.path() / name;
  }

  /// `train` with a model of 8 channels on 64 positions; evaluations every 5 steps.
  [[nodiscard]] std::vector<std::string> train(const std::string& name, int steps,
                                               const std::vector<std::string>& more = {},
                                               int batch = 4, int microbatches = 2) const {
    std::istringstream words("train --task listops --threads 1 --device cpu --steps " +
                             std::to_string(steps) + " --batch " + std::to_string(batch) +
                             " --features 8 --log-every 2 --set max_length=64 width=8 ff_width=8 "
                             "eval_every=5 checkpoint_every=3 accumulate=" +
                             std::to_string(microbatches));
    std::vector<std::string> arguments(std::istream_iterator<std::string>(words), {});
    arguments.insert(arguments.end(), {"--data", data, "--out", run(name)});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  [[nodiscard]] Finished finish(const std::vector<std::string>& arguments,
                                const Place& place = {}) const {
    return run_program(folder.path(), arguments, place);
  }
};

}  // namespace skytape::test
