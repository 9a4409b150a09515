// What CLI11 lacks for a program of subcommands.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>

namespace skytape::train {

/// Both ends included.
[[nodiscard]] inline CLI::Validator between(std::int64_t low, std::int64_t high) {
  return CLI::Range(low, high);
}
/// Digits only, below 2^64: CLI11 takes -1 for 2^64 - 1, and what is larger for the largest.
[[nodiscard]] CLI::Validator natural();

/// What the subcommand does once its arguments are read; the result is the program's exit code. The
/// variables of its flags must live in what `work` keeps.
void runs(CLI::App& command, std::function<int()> work);

/// Reads the arguments, runs the subcommand that they choose and returns the exit code. UsageError
/// for arguments that nothing declares, or of the wrong kind.
[[nodiscard]] int run_chosen(CLI::App& program, int argc, const char* const* argv);

}  // namespace skytape::train
