#include "train/process/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <ctime>

#include "tensor/core/error.hpp"
#include "train/process/streams.hpp"

namespace skytape::train {
namespace {

constexpr int kBarWidth = 30;                        // characters
constexpr std::chrono::milliseconds kRedraw{100};    // time between two drawings of the bar
constexpr std::string_view kClearLine = "\r\x1b[K";  // to the line's start, erase it

}  // namespace

Progress::Progress()
    : terminal_(::isatty(STDERR_FILENO) == 1), colour_(std::getenv("NO_COLOR") == nullptr) {}

Progress::~Progress() { clear_bar(); }

void Progress::clear_bar() {
  if (!bar_shown_) return;
  write_stderr(kClearLine);
  bar_shown_ = false;
}

void Progress::line(std::string_view text) {
  if (silent_) return;
  clear_bar();
  write_stderr(fmt::format("{}\n", text));
  if (!terminal_) drawn_ = std::chrono::steady_clock::now();
}

void Progress::log(const LogPoint& point) { line(to_text(point)); }

void Progress::at(std::string_view what, std::int64_t done, std::int64_t total) {
  if (silent_) return;
  const auto now = std::chrono::steady_clock::now();
  const std::string count = grouped(done) + (total > 0 ? "/" + grouped(total) : "");
  if (!terminal_) {
    if (now - drawn_ >= quiet_) line(fmt::format("{} {}", what, count));
    return;
  }
  if (bar_shown_ && now - drawn_ < kRedraw && done != total) return;
  drawn_ = now;
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0;
  const int filled = std::clamp(static_cast<int>(share * kBarWidth), 0, kBarWidth);
  write_stderr(fmt::format("{}{} {}[{}{}]{} {}", kClearLine, what, colour_ ? "\x1b[36m" : "",
                           std::string(static_cast<std::size_t>(filled), '#'),
                           std::string(static_cast<std::size_t>(kBarWidth - filled), '.'),
                           colour_ ? "\x1b[0m" : "", count));
  bar_shown_ = true;
}

std::string to_text(const LogPoint& p) {
  return fmt::format("step {}/{}  {}  lr {:.2e}  {:.2f} steps/s  {} tokens/s  {} left", p.step,
                     p.steps, p.scores, p.lr, p.steps_per_second,
                     grouped(static_cast<std::int64_t>(p.tokens_per_second)),
                     duration_text(p.seconds_left));
}

std::string duration_text(double seconds) {
  if (seconds < 100) return fmt::format("{:.0f} s", seconds);
  if (seconds < 6000) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

double parse_duration(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [unit, error] = std::from_chars(text.data(), end, value);
  const double scale = unit + 1 != end ? 0
                       : *unit == 's'  ? 1
                       : *unit == 'm'  ? 60
                       : *unit == 'h'  ? 3600
                                       : 0;
  if (error != std::errc() || scale == 0 || !(value > 0 && value < 1e9)) {
    throw UsageError(fmt::format(
        "--budget: expected a number above 0 and below 1e9 with its unit right behind it, such as "
        "90s, 20m or 1.5h, got '{}'",
        text));
  }
  return value * scale;
}

std::string utc_now(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[64];
  return {text, std::strftime(text, sizeof(text), format, ::gmtime_r(&now, &parts))};
}

std::string grouped(std::int64_t count) {
  std::string digits = std::to_string(count < 0 ? -count : count);
  for (auto at = static_cast<std::int64_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return count < 0 ? "-" + digits : digits;
}

std::string counted(std::int64_t count, std::string_view thing) {
  return fmt::format("{} {}{}", grouped(count), thing, count == 1 ? "" : "s");
}

}  // namespace skytape::train
