// The tables and JSON of the study of spectra.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "data/files/json.hpp"
#include "train/lab/studies/spectrum.hpp"

namespace skytape::train {
namespace {

using data::Json;

constexpr double kMost = 0.9;  // share of the spectrum that the table's ranks reach

/// Returns the spectra of attention matrices as means over the heads of each layer.
std::vector<HeadSpectrum> means_of_layers(const std::vector<HeadSpectrum>& heads) {
  std::map<std::int64_t, double> heads_of;  // each layer
  for (const HeadSpectrum& s : heads) ++heads_of[s.layer];
  std::vector<HeadSpectrum> means;
  for (const HeadSpectrum& s : heads) {
    if (means.empty() || means.back().layer != s.layer) {
      means.emplace_back();
      means.back().layer = s.layer;
    }
    HeadSpectrum& mean = means.back();
    const double share = 1 / heads_of[s.layer];
    add(mean.softmax.cumulative, s.softmax.cumulative, share);
    add(mean.kernelized.cumulative, s.kernelized.cumulative, share);
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
    for (std::size_t i = 1; i < values.size(); i += std::max<std::size_t>(1, i / 8)) {
      points.push_back(Json::array({i, values[i - 1]}));
    }
    points.push_back(Json::array({values.size(), values.back()}));
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

}  // namespace skytape::train
