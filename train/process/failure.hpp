// Reports errors: the message when something went wrong, and the program's exit code.
#pragma once

#include <exception>
#include <string>

namespace skytape::train {

/// The text of our own errors; of a library's, whose texts name functions, a sentence.
[[nodiscard]] std::string describe(const std::exception& error);

/// That of our own errors, 1 for others.
[[nodiscard]] int exit_code_of(const std::exception& error);

/// If ranks of a job fail alike, the lowest reports the error, and the launcher ends the others
/// when it has left. Waits for that: `turn` seconds for each of the up to ten ranks below. False if
/// a signal came: then it is reported; true if none below did in time, so that this rank must.
[[nodiscard]] bool waits_to_report(int rank, double turn);

}  // namespace skytape::train
