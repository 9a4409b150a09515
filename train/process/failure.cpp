#include "train/process/failure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <new>
#include <system_error>
#include <thread>

#include "train/process/signals.hpp"

namespace skytape::train {
namespace {

constexpr int kMostTurns = 10;                  // of ranks that wait for a lower one to report
constexpr std::chrono::milliseconds kLook{50};  // between two looks for a signal

}  // namespace

std::string describe(const std::exception& error) {
  if (dynamic_cast<const Error*>(&error) != nullptr) return error.what();
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    return fmt::format("{}: {}", file->path1().string(), file->code().message());
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return "out of memory: a shorter max_length or a smaller batch needs less";
  }
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    const bool of_thread = system->code() == std::errc::resource_unavailable_try_again;
    return (of_thread ? "cannot start a thread: " : "") + system->code().message();
  }
  return fmt::format("an error that is the program's own, please report it: {}", error.what());
}

int exit_code_of(const std::exception& error) {
  if (const auto* coded = dynamic_cast<const CodedError*>(&error)) return coded->exit_code;
  if (dynamic_cast<const UsageError*>(&error) != nullptr) return kWrongUsage;
  if (dynamic_cast<const DataError*>(&error) != nullptr) return kBadData;
  if (dynamic_cast<const NonFiniteError*>(&error) != nullptr) return kNotFinite;
  return kFailed;
}

bool waits_to_report(int rank, double turn) {
  if (rank == 0) return true;
  watch_signals();
  const auto start = std::chrono::steady_clock::now();
  const std::chrono::duration<double> patience(turn * std::min(rank, kMostTurns));
  while (signal_received() == 0 && std::chrono::steady_clock::now() - start < patience) {
    std::this_thread::sleep_for(kLook);
  }
  return signal_received() == 0;
}

}  // namespace skytape::train
