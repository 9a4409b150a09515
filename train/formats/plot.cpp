#include "train/formats/plot.hpp"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>

#include "data/files/output.hpp"
#include "tensor/core/error.hpp"
#include "tensor/core/tensor.hpp"
#include "train/formats/looks.hpp"

extern char** environ;

namespace skytape::train {
namespace {

namespace fs = std::filesystem;

/// Text between single quotes, as gnuplot reads it.
std::string literal(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') out += '\'';
    out += c == '\n' ? ' ' : c;
  }
  return out + "'";
}

bool drawable(double x, const Axis& axis) {
  return std::isfinite(x) && (axis.scale == Scale::linear || x > 0);
}

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "NaN";
}

/// Returns the end of an axis's range; * lets the numbers decide.
std::string range_end(const std::optional<double>& value) { return value ? number(*value) : "*"; }

// ---- the numbers
// ---------------------------------------------------------------------------------

/// One block of NAME.dat: x, y and the ends of the error bar, or of the band; a gap where there is
/// no point at all, because gnuplot does not count a block without lines. On a logarithmic axis a
/// bar that reaches zero ends a tenth below its point.
std::string block(const LinePanel& panel, const Series& s) {
  const std::size_t points = s.x.size();
  ENSURE(s.y.size() == points && (s.errors.empty() || s.errors.size() == points) &&
             (s.low.empty() || s.low.size() == points) && s.high.size() == s.low.size(),
         "plot: series ", s.name, ": ", points, " x, ", s.y.size(), " y, ", s.errors.size(),
         " errors, ", s.low.size(), " and ", s.high.size(), " ends of a band");
  std::string text = fmt::format("# {}: {}\n# x y low high\n", panel.title, s.name);
  if (points == 0) text += "NaN NaN NaN NaN\n";
  for (std::size_t i = 0; i < points; ++i) {
    if (!drawable(s.x[i], panel.x) || !drawable(s.y[i], panel.y)) {
      text += "NaN NaN NaN NaN\n";
      continue;
    }
    const double error = s.errors.empty() || !std::isfinite(s.errors[i]) ? 0 : s.errors[i];
    const double low = s.low.empty() ? s.y[i] - error : s.low[i];
    const double high = s.high.empty() ? s.y[i] + error : s.high[i];
    text += fmt::format("{} {} {} {}\n", number(s.x[i]), number(s.y[i]),
                        number(drawable(low, panel.y) ? low : 0.9 * s.y[i]), number(high));
  }
  return text + "\n\n";
}

/// One block of NAME.dat: column, row and value of every cell.
std::string block(const HeatMap& map) {
  ENSURE(map.values.size() == map.rows.size(), "plot: heat map ", map.title, ": ",
         map.values.size(), " rows of values for ", map.rows.size(), " names");
  std::string text = fmt::format("# {}\n# column row value\n", map.title);
  for (std::size_t row = 0; row < map.rows.size(); ++row) {
    ENSURE(map.values[row].size() == map.columns.size(), "plot: heat map ", map.title,
           ": a row of ", map.values[row].size(), " values for ", map.columns.size(), " columns");
    for (std::size_t column = 0; column < map.columns.size(); ++column) {
      text += fmt::format("{} {} {}\n", column, row, number(map.values[row][column]));
    }
  }
  return text + "\n\n";
}

std::string data_text(const Figure& figure) {
  std::string text;
  for (const auto& panel : figure.panels) {
    if (const auto* lines = std::get_if<LinePanel>(&panel)) {
      for (const Series& s : lines->series) text += block(*lines, s);
    } else {
      text += block(std::get<HeatMap>(panel));
    }
  }
  return text;
}

// ---- the script
// ----------------------------------------------------------------------------------

// Pixels.
constexpr int kPanelWidth = 390, kPanelHeight = 300;
constexpr int kLeft = 85, kRight = 20, kTop = 35, kBottom = 55;  // around the plot area of a panel
constexpr int kColourBox = 85;                                   // more at the right of a heat map
constexpr int kLabel = 45;                                       // an axis' label and its distance
constexpr int kCell = 14;                                        // of a heat map, at least
constexpr int kTitle = 30, kLegendLine = 17, kLegendSample = 60, kLetter = 8, kTitleLetter = 10;
constexpr std::size_t kMarkers = 16;  // on a line, at most twice as many

bool has_gaps_only(const LinePanel& panel) {
  for (const Series& s : panel.series) {
    for (std::size_t i = 0; i < s.x.size(); ++i) {
      if (drawable(s.x[i], panel.x) && drawable(s.y[i], panel.y)) return false;
    }
  }
  return true;
}

/// Returns whether the names of the columns would run into each other.
bool names_stand_upright(const HeatMap& map, int plot_width) {
  std::size_t letters = 0;
  for (const std::string& name : map.columns) letters += name.size() + 1;
  return static_cast<int>(letters) * kLetter > plot_width;
}

std::size_t longest_of(const std::vector<std::string>& names) {
  std::size_t longest = 0;
  for (const std::string& name : names) longest = std::max(longest, name.size());
  return longest;
}

/// Numbers of five digits touch each other below an axis; in thousands they do not: 12k.
bool has_long_numbers(const LinePanel& panel) {
  return std::any_of(panel.series.begin(), panel.series.end(), [](const Series& s) {
    return std::any_of(s.x.begin(), s.x.end(), [](double x) { return std::abs(x) >= 1e4; });
  });
}

/// Writes the script of one figure line by line.
class Script {
 public:
  explicit Script(const Figure& figure) : figure_(figure) {
    ENSURE(figure.columns >= 1 && !figure.panels.empty(), "plot: figure ", figure.name, ": ",
           figure.panels.size(), " panels in ", figure.columns, " columns");
    for (const auto& panel : figure.panels) {
      if (const auto* lines = std::get_if<LinePanel>(&panel)) add_names(*lines);
      if (const auto* map = std::get_if<HeatMap>(&panel)) make_room(*map);
    }
    looks_ = looks_of(legend_);
    const int panels = static_cast<int>(figure.panels.size());
    columns_ = std::min(figure.columns, panels);
    const int rows = ceil_div(panels, columns_);
    const int letters = kLetter * static_cast<int>(longest_of(legend_));
    const int legend = legend_.empty() ? 0 : kLegendSample + letters;
    width_ = std::max(columns_ * panel_width_ + legend,
                      kTitleLetter * static_cast<int>(figure.title.size()));
    height_ =
        kTitle + std::max(rows * panel_height_, kLegendLine * static_cast<int>(legend_.size() + 1));
  }

  std::string text() {
    line("# gnuplot {}.gp", figure_.name);
    line("set encoding utf8");
    line("do for [kind in 'png svg'] {{");
    line("if (kind eq 'png') {{");
    line("set terminal pngcairo size {},{} font 'Sans,10' noenhanced", width_, height_);
    line("}} else {{");
    line("set terminal svg size {},{} font 'Sans,12' noenhanced background 'white'", width_,
         height_);
    line("}}");
    line("set output '{}.'.kind", figure_.name);
    line("set multiplot");
    int index = 0;
    for (std::size_t p = 0; p < figure_.panels.size(); ++p) {
      std::visit([&](const auto& panel) { index = draw_panel(panel, static_cast<int>(p), index); },
                 figure_.panels[p]);
    }
    draw_legend();
    line("unset multiplot");
    line("unset output");
    line("}}");
    return text_;
  }

 private:
  template <class... Args> void line(fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }

  void add_names(const LinePanel& panel) {
    for (const Series& s : panel.series) {
      if (std::find(legend_.begin(), legend_.end(), s.name) == legend_.end()) {
        legend_.push_back(s.name);
      }
    }
  }

  [[nodiscard]] std::string style(const std::string& name) const {
    const Look& look = looks_.at(name);
    return fmt::format("lc rgb '{}' pt {} dt {} lw {} ps 0.8", look.colour, look.marker, look.dash,
                       1.5 + look.extra);
  }

  /// Widens all panels until the cells of a heat map, and the names next to them, have room.
  void make_room(const HeatMap& map) {
    const int cells_wide = kCell * static_cast<int>(map.columns.size());
    const int cells_high = kCell * static_cast<int>(map.rows.size());
    left_ = std::max(left_, kLabel + kLetter * static_cast<int>(longest_of(map.rows)));
    const int sides = left_ + kRight + kColourBox;
    panel_width_ = std::max(panel_width_, sides + cells_wide);
    if (names_stand_upright(map, panel_width_ - sides)) {
      bottom_ = std::max(bottom_, kLabel + kLetter * static_cast<int>(longest_of(map.columns)));
    }
    panel_height_ = std::max(panel_height_, kTop + bottom_ + cells_high);
  }

  /// Puts the plot area of panel `p` in its place.
  void place(int p, int right) {
    const int left = p % columns_ * panel_width_;
    const int top = height_ - kTitle - p / columns_ * panel_height_;
    const auto x = [&](int pixel) { return static_cast<double>(pixel) / width_; };
    const auto y = [&](int pixel) { return static_cast<double>(pixel) / height_; };
    line("set lmargin at screen {:.5f}", x(left + left_));
    line("set rmargin at screen {:.5f}", x(left + panel_width_ - right));
    line("set tmargin at screen {:.5f}", y(top - kTop));
    line("set bmargin at screen {:.5f}", y(top - panel_height_ + bottom_));
  }

  void axis(const char* name, const Axis& axis, bool thousands = false) {
    line("set {}label {}", name, literal(axis.label));
    line("unset logscale {}", name);
    if (axis.scale != Scale::linear) {
      line("set logscale {} {}", name, axis.scale == Scale::log2 ? 2 : 10);
    }
    line("set format {} '{}'", name, thousands ? "%.0s%c" : "%g");
    line("set {}range [{}:{}]", name, range_end(axis.low), range_end(axis.high));
  }

  int draw_panel(const LinePanel& panel, int p, int index) {
    line("reset");
    place(p, kRight);
    line("unset key");
    line("set border 3");
    line("set tics nomirror");
    line("set grid lc rgb '#dddddd' lt 1");
    line("set title {} offset 0,-0.5", literal(panel.title));
    axis("x", panel.x, panel.x.scale == Scale::linear && has_long_numbers(panel));
    axis("y", panel.y);
    if (has_gaps_only(panel)) {
      line("set label 2 'no data' at graph 0.5,0.5 center");
      line("plot [1:2] [1:2] NaN");
      return index + static_cast<int>(panel.series.size());
    }
    std::string plots;
    for (std::size_t i = 0; i < panel.series.size(); ++i) {  // bands lie behind all lines
      const Series& s = panel.series[i];
      if (s.low.empty()) continue;
      plots += fmt::format(
          "{}'{}.dat' index {} using 1:3:4 with filledcurves lc rgb '{}' fs transparent solid 0.2 "
          "noborder",
          plots.empty() ? "" : ", \\\n", figure_.name, index + static_cast<int>(i),
          looks_.at(s.name).colour);
    }
    for (const Series& s : panel.series) {
      const bool bars = !s.errors.empty();
      plots += fmt::format("{}'{}.dat' index {} using {} with {} {} pi {}",
                           plots.empty() ? "" : ", \\\n", figure_.name, index++,
                           bars ? "1:2:3:4" : "1:2", bars ? "yerrorlines" : "linespoints",
                           style(s.name), std::max<std::size_t>(1, s.x.size() / kMarkers));
    }
    line("plot {}", plots);
    return index;
  }

  /// From bright to dark; values of both signs from blue over white to red, as far on both sides.
  void colours(const HeatMap& map) {
    double low = 0, high = 0;
    for (const std::vector<double>& row : map.values) {
      for (const double value : row) {
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    const bool nothing = low == 0 && high == 0;
    if (((low < 0 && high > 0) || nothing) && !map.low && !map.high) {
      const double most = nothing ? 1 : std::max(-low, high);
      line("set palette defined (-1 '#2166ac', 0 '#ffffff', 1 '#b2182b')");
      line("set cbrange [{}:{}]", number(-most), number(most));
      return;
    }
    line("set palette defined (0 '#fde725', 1 '#5ec962', 2 '#21918c', 3 '#3b528b', 4 '#440154')");
    line("set cbrange [{}:{}]", range_end(map.low), range_end(map.high));
  }

  int draw_panel(const HeatMap& map, int p, int index) {
    line("reset");
    place(p, kRight + kColourBox);
    line("unset key");
    line("set title {} offset 0,-0.5", literal(map.title));
    line("set xlabel {}", literal(map.x_label));
    line("set ylabel {}", literal(map.y_label));
    line("set cblabel {}", literal(map.value_label));
    colours(map);
    const bool upright = names_stand_upright(map, panel_width_ - left_ - kRight - kColourBox);
    line("set xtics {}", upright ? "rotate by 90 right" : "norotate");
    const auto tics = [&](const char* name, const std::vector<std::string>& names) {
      std::string list;
      for (std::size_t i = 0; i < names.size(); ++i) {
        list += fmt::format("{}{} {}", i == 0 ? "" : ", ", literal(names[i]), i);
      }
      line("set {}tics ({}) scale 0", name, list);
    };
    tics("x", map.columns);
    tics("y", map.rows);
    line("set xrange [-0.5:{}]", static_cast<double>(map.columns.size()) - 0.5);
    line("set yrange [-0.5:{}]", static_cast<double>(map.rows.size()) - 0.5);
    line("plot '{}.dat' index {} using 1:2:3 with image pixels", figure_.name, index);
    return index + 1;
  }

  /// An empty plot with the figure's title, whose key is the legend of all panels.
  void draw_legend() {
    line("reset");
    line("unset border");
    line("unset tics");
    const int left = legend_.empty() ? 0 : columns_ * panel_width_;
    line("set lmargin at screen {:.5f}", static_cast<double>(left) / width_);
    line("set rmargin at screen 1");
    line("set tmargin at screen {:.5f}", 1 - static_cast<double>(kTitle) / height_);
    line("set bmargin at screen 0");
    line("set label {} at screen 0.5,{:.5f} center font ',12'", literal(figure_.title),
         1 - 0.5 * kTitle / height_);
    line("set key left top Left reverse samplen 3 spacing 1.1 width 0");
    std::string plots = "NaN notitle";
    for (const std::string& name : legend_) {
      plots += fmt::format(", \\\n NaN with linespoints {} title {}", style(name), literal(name));
    }
    line("plot [0:1] [0:1] {}", plots);
  }

  const Figure& figure_;
  std::vector<std::string> legend_;  // names of all series, each once
  std::map<std::string, Look> looks_;
  int columns_ = 1, width_ = 0, height_ = 0;
  int panel_width_ = kPanelWidth, panel_height_ = kPanelHeight, left_ = kLeft, bottom_ = kBottom;
  std::string text_;
};

// ---- gnuplot
// -------------------------------------------------------------------------------------

/// Runs the script in its folder. False if there is no gnuplot; Error if it fails.
bool run_gnuplot(const fs::path& folder, const std::string& script) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  std::string program = "gnuplot", argument = script;
  const std::array<char*, 3> argv = {program.data(), argument.data(), nullptr};
  pid_t process = 0;
  const int error = posix_spawnp(&process, "gnuplot", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT || error == EACCES) return false;
  ENSURE(error == 0, "gnuplot: cannot start it: ", std::strerror(error));
  int status = 0;
  while (::waitpid(process, &status, 0) < 0) {
    ENSURE(errno == EINTR, "gnuplot: lost it: ", std::strerror(errno));
  }
  ENSURE(WIFEXITED(status) && WEXITSTATUS(status) == 0, "gnuplot failed on ",
         (folder / script).string(), "; its output is above");
  return true;
}

}  // namespace

bool draw(const fs::path& folder, std::span<const Figure> figures) {
  data::make_folder(folder);
  for (const Figure& figure : figures) {
    data::write_file(folder / (figure.name + ".dat"), data_text(figure));
    data::write_file(folder / (figure.name + ".gp"), Script(figure).text());
  }
  for (const Figure& figure : figures) {
    if (!run_gnuplot(folder, figure.name + ".gp")) {
      fmt::print(stderr,
                 "No gnuplot here: {} has data and scripts without pictures. Install it with "
                 "`apt-get install gnuplot-nox`.\n",
                 folder.string());
      return false;
    }
  }
  return true;
}

}  // namespace skytape::train
