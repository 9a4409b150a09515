// Reports errors: the message when something went wrong, and the program's exit code.
#pragma once

#include <exception>
#include <string>

#include "tensor/core/error.hpp"

namespace skytape::train {

/// The text of our own errors; of a library's, whose texts name functions, a sentence.
[[nodiscard]] std::string describe(const std::exception& error);

// The program's exit codes (the table in train/cli/README.md), of Error and any other exception,
// UsageError, DataError and NonFiniteError.
inline constexpr int kFailed = 1, kWrongUsage = 2, kBadData = 3, kNotFinite = 4;

/// An error that brings its exit code: a signal, or what went wrong on another rank.
struct CodedError : Error {
  CodedError(const std::string& text, int code) : Error(text), exit_code(code) {}
  int exit_code;
};

/// Returns the exit code that belongs to the error's type.
[[nodiscard]] int exit_code_of(const std::exception& error);

/// If ranks of a job fail alike, the lowest reports the error, and the launcher ends the others
/// when it has left. Waits for that: `turn` seconds for each of the up to ten ranks below. False if
/// a signal came: then it is reported; true if none below did in time, so that this rank must.
[[nodiscard]] bool waits_to_report(int rank, double turn);

}  // namespace skytape::train
