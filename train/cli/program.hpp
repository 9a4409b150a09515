// A program of subcommands: from main to one of them, and back to an exit code.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "train/cli/command_line.hpp"

namespace skytape::train {

/// Runs the subcommand that the arguments choose of those that `add_commands` adds; `idea` is what
/// --help begins with. An error is one line on stderr that begins with the program's name. Returns
/// the exit code; 1 also where standard output could not be written.
[[nodiscard]] int run_program(const std::string& name, const std::string& idea,
                              const std::function<void(const Command&)>& add_commands, int argc,
                              char** argv);

/// Subcommands that skytape-lab alone has. The list stands here, as skytape has none of its code.
inline constexpr std::string_view kLabCommands[] = {
    "approx",     "bench",  "cost",     "goldens",   "lra",   "matrix",
    "mlm-curves", "report", "spectrum", "stability", "theory"};

/// Adds them, hidden, to skytape: whoever types one is told what to type instead, in a UsageError.
void add_moved_commands(const Command& program);

}  // namespace skytape::train
