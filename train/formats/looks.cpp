#include "train/formats/looks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "attention/registry.hpp"

namespace skytape::train {
namespace {

constexpr int kSolid = 1, kDashed = 2, kDotted = 3;  // gnuplot's dash types
constexpr std::array kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00",
                                 "#56b4e9", "#8c2d04", "#6a3d9a", "#7f7f7f"};
/// Towards black, or white: the colours above in so many rounds, no one twice.
constexpr std::array kShades = {0.0, -0.4, 0.45, -0.65, 0.7};
constexpr std::array kFilled = {7, 5, 9, 11, 13, 15, 1, 2, 3};  // gnuplot's point types
constexpr std::array kOpen = {6, 4, 8, 10, 12, 14, 1, 2, 3};
constexpr int kUntilWider = 90;  // lines of one width, each with a separate look

/// The name's place in the registry.
std::optional<int> method_position(std::string_view name) {
  int position = 0;
  for (const attention::Spec& spec : attention::registry()) {
    if (spec.name == name) return position;
    ++position;
  }
  return std::nullopt;
}

/// The `position`-th of the colours, round by round; after 45 from the front again.
std::string colour_at(std::size_t position) {
  const char* const base = kColours[position % kColours.size()];
  const double shade = kShades[position / kColours.size() % kShades.size()];
  std::string colour = "#";
  for (int channel = 0; channel < 3; ++channel) {
    const int value = std::stoi(std::string(base + 1 + 2 * channel, 2), nullptr, 16);
    const double end = shade < 0 ? 0 : 255;
    colour += fmt::format("{:02x}", std::lround(value + std::abs(shade) * (end - value)));
  }
  return colour;
}

}  // namespace

Look method_look(int position) {
  // A round of colours with filled markers on solid lines, then one with open markers on dashed
  // lines. Later rounds have the next marker for each colour, on solid and on dashed lines in turn.
  const std::size_t i = static_cast<std::size_t>(position) % kColours.size();
  const std::size_t round = static_cast<std::size_t>(position) / kColours.size();
  const std::size_t marker = (i + round / 2) % kColours.size();
  const int extra = position / kUntilWider;
  const std::string colour = colour_at(static_cast<std::size_t>(position));
  if (round % 2 == 0) return {colour, kFilled[marker], kSolid, extra};
  return {colour, kOpen[marker], kDashed, extra};
}

Look other_look(int position) {
  // Dotted, black first; nine markers and ten colours meet again after ninety: then wider.
  const auto turn = static_cast<std::size_t>(position);
  const std::size_t colour = turn % (kColours.size() + 1);
  return {colour == 0 ? "#000000" : kColours[colour - 1], kOpen[turn % kOpen.size()], kDotted,
          position / kUntilWider};
}

Look look_of(std::string_view name, int other) {
  const std::optional<int> position = method_position(name);
  return position ? method_look(*position) : other_look(other);
}

std::map<std::string, Look> looks_of(const std::vector<std::string>& names) {
  std::map<std::string, Look> looks;
  std::set<std::string> taken;
  const bool methods = std::any_of(names.begin(), names.end(),
                                   [](const auto& name) { return method_position(name); });
  for (const std::string& name : names) {
    if (method_position(name)) taken.insert((looks[name] = look_of(name)).colour);
  }
  int other = 0;
  for (const std::string& name : names) {
    if (method_position(name)) continue;
    Look look = other_look(other++);
    for (std::size_t i = 0; taken.contains(look.colour) && i < kColours.size() * kShades.size();
         ++i) {
      look.colour = colour_at(i);
    }
    taken.insert(look.colour);
    if (!methods) look.dash = kSolid;
    looks[name] = look;
  }
  return looks;
}

}  // namespace skytape::train
