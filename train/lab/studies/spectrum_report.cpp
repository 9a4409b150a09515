// The tables, JSON and figures of the study of spectra.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "data/files/json.hpp"
#include "train/lab/studies/spectrum.hpp"

namespace skytape::train {
namespace {

using data::Json;

constexpr double kMost = 0.9;  // share of the spectrum that the table's ranks reach

constexpr std::int64_t kAllHeads = -1;  // number of the "head" that stands for all of a layer
constexpr std::size_t kMostLines = 24;  // of a figure; more heads are drawn as means of layers

std::string head_name(const HeadSpectrum& s) {
  if (s.head == kAllHeads) return fmt::format("layer {}, mean of heads", s.layer);
  return fmt::format("layer {} head {}", s.layer, s.head);
}

/// Returns the lines of the figures, and their shares, as means over the heads of each layer.
std::vector<HeadSpectrum> means_of_layers(const std::vector<HeadSpectrum>& heads) {
  std::map<std::int64_t, double> heads_of;  // each layer
  for (const HeadSpectrum& s : heads) ++heads_of[s.layer];
  std::vector<HeadSpectrum> means;
  for (const HeadSpectrum& s : heads) {
    if (means.empty() || means.back().layer != s.layer) {
      means.emplace_back();
      means.back().layer = s.layer;
      means.back().head = kAllHeads;
    }
    HeadSpectrum& mean = means.back();
    const double share = 1 / heads_of[s.layer];
    add(mean.output, s.output, share);
    add(mean.softmax.cumulative, s.softmax.cumulative, share);
    add(mean.kernelized.cumulative, s.kernelized.cumulative, share);
    add(mean.leverage, s.leverage, share);
    for (std::size_t r = 0; r < kRidges.size(); ++r) mean.dimension[r] += share * s.dimension[r];
  }
  return means;
}

/// Linformer's comparison: which layers have much of their spectrum in few singular values.
Table layer_table(const std::vector<HeadSpectrum>& heads) {
  Table table{"layers",
              "Cumulative spectra of attention matrices by layer: means over the heads",
              {{"layer", "{:.0f}"},
               {"softmax: share at n/4", "{:.4f}"},
               {"of its heads"},
               {"90 % rank", "{:.0f}"},
               {"kernelized: share at n/4", "{:.4f}"},
               {"of its heads"},
               {"90 % rank", "{:.0f}"}},
              {},
              {}};
  for (const HeadSpectrum& mean : means_of_layers(heads)) {
    const auto range = [&](MatrixSpectrum HeadSpectrum::*matrix) {
      double low = 1, high = 0;
      for (const HeadSpectrum& s : heads) {
        if (s.layer != mean.layer) continue;
        low = std::min(low, share_at_quarter(s.*matrix));
        high = std::max(high, share_at_quarter(s.*matrix));
      }
      return fmt::format("{:.2f}..{:.2f}", low, high);
    };
    table.add({mean.layer, share_at_quarter(mean.softmax), range(&HeadSpectrum::softmax),
               rank_at(mean.softmax, kMost), share_at_quarter(mean.kernelized),
               range(&HeadSpectrum::kernelized), rank_at(mean.kernelized, kMost)});
  }
  return table;
}

/// Values over their first, which is the largest.
std::vector<double> over_first(const std::vector<double>& values) {
  std::vector<double> out;
  for (const double value : values) out.push_back(value / values.front());
  return out;
}

}  // namespace

std::vector<Table> tables(const std::vector<HeadSpectrum>& heads) {
  const std::size_t n = heads.front().softmax.cumulative.size();
  Table spectra{"spectra",
                fmt::format("Singular values of output and attention matrices at n = {}: means "
                            "over the examples, geometric means of condition numbers",
                            n),
                {{"layer", "{:.0f}"},
                 {"head", "{:.0f}"},
                 {"output: first", "{:.4g}"},
                 {"middle / first", "{:.4g}"},
                 {"softmax: share at n/4", "{:.4f}"},
                 {"90 % rank", "{:.0f}"},
                 {"condition", "{:.3g}"},
                 {"kernelized: share at n/4", "{:.4f}"},
                 {"90 % rank", "{:.0f}"},
                 {"condition", "{:.3g}"}},
                {},
                {"Condition numbers are capped at 2^52."}};
  Table theory{"kernel-theory",
               "Kernel matrix of queries and keys: statistical dimension at lambda = a share of "
               "its norm, and condition numbers of what Skyformer inverts",
               {{"layer", "{:.0f}"}, {"head", "{:.0f}"}},
               {},
               {"In brackets: 2 n times the largest share of a leverage score; 1: all alike."}};
  for (const double ridge : kRidges) theory.columns.push_back({fmt::format("{:g}", ridge)});
  for (const char* title : {"landmarks' kernel", "+ gamma I", "scaled"}) {
    theory.columns.push_back({title, "{:.3g}"});
  }
  for (const HeadSpectrum& s : heads) {
    spectra.add({s.layer, s.head, s.output.front(),
                 s.output[s.output.size() / 2] / s.output.front(), share_at_quarter(s.softmax),
                 rank_at(s.softmax, kMost), s.softmax.condition, share_at_quarter(s.kernelized),
                 rank_at(s.kernelized, kMost), s.kernelized.condition});
    std::vector<Cell> row = {s.layer, s.head};
    for (std::size_t r = 0; r < kRidges.size(); ++r) {
      row.emplace_back(fmt::format("{:.1f} ({:.1f})", s.dimension[r], s.coherence[r]));
    }
    row.insert(row.end(), {s.landmarks, s.shifted, s.scaled});
    theory.add(std::move(row));
  }
  return {layer_table(heads), std::move(spectra), std::move(theory)};
}

Json to_json(const std::vector<HeadSpectrum>& heads) {
  const auto list = [](const auto& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  const auto curve = [](const std::vector<double>& values) {
    Json points = Json::array();
    for (std::size_t i = 1; i <= values.size(); i *= 2)
      points.push_back(Json::array({i, values[i - 1]}));
    return points;
  };
  const auto matrix = [&](const MatrixSpectrum& m) -> Json {
    return {{"cumulative", curve(m.cumulative)},
            {"share_at_quarter", share_at_quarter(m)},
            {"rank_90", rank_at(m, kMost)},
            {"condition", m.condition}};
  };
  Json results = Json::array();
  for (const HeadSpectrum& s : heads) {
    results.push_back({{"layer", s.layer},
                       {"head", s.head},
                       {"output_singular_values", s.output},
                       {"softmax", matrix(s.softmax)},
                       {"kernelized", matrix(s.kernelized)},
                       {"ridges", list(kRidges)},
                       {"statistical_dimension", list(s.dimension)},
                       {"coherence", list(s.coherence)},
                       {"leverage", curve(s.leverage)},
                       {"landmarks_condition", s.landmarks},
                       {"shifted_condition", s.shifted},
                       {"scaled_condition", s.scaled}});
  }
  return results;
}

// ---- figures
// -------------------------------------------------------------------------------------

namespace {

/// A line for each layer and head over the index of its values.
template <class F> LinePanel panel(const std::vector<HeadSpectrum>& heads, const std::string& title,
                                   const Axis& x, const Axis& y, const F& values) {
  LinePanel panel{title, x, y, {}};
  panel.x.low = 1;
  panel.x.high = static_cast<double>(values(heads.front()).size());
  for (const HeadSpectrum& s : heads) {
    const std::vector<double> ys = values(s);
    std::vector<double> index(ys.size());
    std::iota(index.begin(), index.end(), 1.0);
    panel.series.push_back({head_name(s), index, ys, {}});
  }
  return panel;
}

HeatMap heat_map(const std::vector<HeadSpectrum>& heads, const std::string& title,
                 MatrixSpectrum HeadSpectrum::*matrix) {
  HeatMap map;
  map.title = title;
  map.x_label = "head";
  map.y_label = "layer";
  map.value_label = "cumulative share (1)";
  for (const HeadSpectrum& s : heads) {
    const auto layer = static_cast<std::size_t>(s.layer), head = static_cast<std::size_t>(s.head);
    if (map.rows.size() <= layer) {
      map.rows.push_back(std::to_string(layer));
      map.values.emplace_back();
    }
    if (map.columns.size() <= head) map.columns.push_back(std::to_string(head));
    map.values[layer].push_back(share_at_quarter(s.*matrix));
  }
  return map;
}

/// `lines` are the heads, or the means of layers where there are many heads.
Figure attention_figure(const std::vector<HeadSpectrum>& heads,
                        const std::vector<HeadSpectrum>& lines, const std::string& source) {
  const std::size_t n = heads.front().softmax.cumulative.size();
  Figure figure{"attention-spectrum", "Spectra of attention matrices: " + source, {}, 2};
  const Axis x{fmt::format("index of {} singular values", n), Scale::linear, {}, {}};
  const Axis y{"cumulative share (1)", Scale::linear, 0, 1};
  const std::string at = fmt::format(" matrix: share at index {}", std::max<std::size_t>(1, n / 4));
  figure.panels = {panel(lines, "softmax matrix", x, y,
                         [](const HeadSpectrum& s) { return s.softmax.cumulative; }),
                   heat_map(heads, "softmax" + at, &HeadSpectrum::softmax),
                   panel(lines, "kernelized matrix", x, y,
                         [](const HeadSpectrum& s) { return s.kernelized.cumulative; }),
                   heat_map(heads, "kernelized" + at, &HeadSpectrum::kernelized)};
  return figure;
}

Figure theory_figure(const std::vector<HeadSpectrum>& lines, const std::string& source) {
  Figure figure{"kernel-theory", "Kernel matrix of queries and keys: " + source, {}, 2};
  LinePanel dimension{"statistical dimension",
                      {"lambda (share of the matrix's norm)", Scale::log10, {}, {}},
                      {"statistical dimension (count)", Scale::log10, {}, {}},
                      {}};
  for (const HeadSpectrum& s : lines) {
    dimension.series.push_back({head_name(s),
                                {kRidges.begin(), kRidges.end()},
                                {s.dimension.begin(), s.dimension.end()},
                                {}});
  }
  figure.panels = {
      dimension,
      panel(lines, fmt::format("leverage scores, lambda = {:g}", kRidges[kLeverageRidge]),
            {"rank among queries and keys", Scale::log10, {}, {}},
            {"leverage score (1)", Scale::log10, {}, {}},
            [](const HeadSpectrum& s) { return s.leverage; })};
  return figure;
}

}  // namespace

std::vector<Figure> figures(const std::vector<HeadSpectrum>& heads, const std::string& source) {
  const bool many = heads.size() > kMostLines;
  const std::vector<HeadSpectrum> lines = many ? means_of_layers(heads) : heads;
  Figure output{"output-spectrum", "Singular values of attention outputs: " + source, {}, 2};
  const auto add = [&](const std::string& title, const std::vector<HeadSpectrum>& some) {
    output.panels.emplace_back(panel(some, title, {"index", Scale::linear, {}, {}},
                                     {"singular value (share of first)", Scale::log10, {}, {}},
                                     [](const HeadSpectrum& s) { return over_first(s.output); }));
  };
  if (many) add("layers", lines);
  for (std::int64_t layer = 0; !many && layer <= heads.back().layer; ++layer) {
    std::vector<HeadSpectrum> some;
    for (const HeadSpectrum& s : heads) {
      if (s.layer == layer) some.push_back(s);
    }
    add(fmt::format("layer {}", layer), some);
  }
  return {output, attention_figure(heads, lines, source), theory_figure(lines, source)};
}

}  // namespace skytape::train
