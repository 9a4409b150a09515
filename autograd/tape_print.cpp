#include "autograd/tape_print.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

namespace skytape {
namespace {

std::string kind(const NodeView& node) {
  if (!node.inputs.empty()) return node.name;
  if (node.parameter != nullptr) return "parameter";
  return node.is_input ? "input" : "constant";
}

/// The shapes of its outputs.
std::string shape_of(const NodeView& node) {
  std::string text;
  for (const Tensor* const value : node.values) {
    if (!text.empty()) text += ' ';
    text += value->defined() ? join(value->shape()) : "released";
  }
  return text;
}

std::string inputs_of(const NodeView& node) {
  std::string text;
  for (const auto [input, output] : node.inputs) {
    if (!text.empty()) text += ' ';
    text += input >= 0 ? std::to_string(input) : "-";
    if (output > 0) text += '.' + std::to_string(output);
  }
  return text;
}

}  // namespace

std::vector<std::string> names(const Tape& tape) {
  std::vector<std::string> all;
  for (int i = 0; i < tape.size(); ++i) all.emplace_back(tape.node(i).name);
  return all;
}

// ---- text --------------------------------------------------------------------------------------

std::string to_text(const Tape& tape) {
  using Row = std::array<std::string, 6>;
  std::vector<Row> rows = {{"node", "op", "inputs", "shape", "gradient", "parameter"}};
  for (int i = 0; i < tape.size(); ++i) {
    const NodeView node = tape.node(i);
    rows.push_back({std::to_string(i), kind(node), inputs_of(node), shape_of(node),
                    node.needs_grad ? "yes" : "no",
                    node.parameter != nullptr ? node.parameter->name : ""});
  }
  std::array<std::size_t, 6> widths{};
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line(widths[0] - row[0].size(), ' ');  // indices end together, all else starts so
    line += row[0];
    for (std::size_t c = 1; c < row.size(); ++c) {
      line += "  " + row[c] + std::string(widths[c] - row[c].size(), ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

// ---- graph -------------------------------------------------------------------------------------

namespace {

constexpr std::array<std::string_view, 5> kMovers = {"reshape", "transpose", "swap_middle",
                                                     "narrow", "expand"};

/// In double quotes; "\n" in the text stays Graphviz's line break.
std::string in_quotes(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"') result += '\\';
    result += c;
  }
  return result + '"';
}

/// "model.transformer_0" of "model.transformer_0.mha.W_q.weight", "norm" of "norm.weight".
std::string layer_of(const std::string& parameter) {
  const std::size_t first = parameter.find('.');
  if (first == std::string::npos) return "";
  const std::size_t second = parameter.find('.', first + 1);
  return parameter.substr(0, second == std::string::npos ? first : second);
}

class DotWriter {
 public:
  DotWriter(const Tape& tape, const DotOptions& options);
  [[nodiscard]] std::string text() const;

 private:
  [[nodiscard]] std::string find_layer(const NodeView& node) const;
  [[nodiscard]] bool is_left_out(const NodeView& node) const;
  [[nodiscard]] std::string parameter_text(int index) const;
  [[nodiscard]] std::string node_line(int index) const;

  struct Place {
    std::string layer;
    int source = 0;           // the node that is drawn for it: itself, or what a mover reads
    std::vector<int> inputs;  // sources of an op's inputs, each once
    int readers = 0;          // drawn ops that read it
    bool merged = false;      // a parameter that stands in its reader's box
  };
  const Tape& tape_;
  const DotOptions& options_;
  std::vector<Place> places_;
};

DotWriter::DotWriter(const Tape& tape, const DotOptions& options) : tape_(tape), options_(options) {
  for (int i = 0; i < tape.size(); ++i) {
    const NodeView node = tape.node(i);
    Place place;
    place.layer = find_layer(node);
    place.source = i;
    for (const auto [input, output] : node.inputs) {
      if (input < 0) continue;
      const int source = places_[input].source;
      if (std::ranges::find(place.inputs, source) == place.inputs.end()) {
        place.inputs.push_back(source);
      }
    }
    if (i + 1 < tape.size() && is_left_out(node)) {
      place.source = place.inputs.front();
    } else {
      for (const int input : place.inputs) ++places_[input].readers;
    }
    places_.push_back(std::move(place));
  }
  for (int i = 0; i < tape.size(); ++i) {
    places_[i].merged =
        options.merge && tape.node(i).parameter != nullptr && places_[i].readers == 1;
  }
}

/// An op belongs to the layer of its first parameter, else of its latest input that has one.
std::string DotWriter::find_layer(const NodeView& node) const {
  if (node.parameter != nullptr) return layer_of(node.parameter->name);
  int latest = -1;
  for (const auto [input, output] : node.inputs) {
    if (input < 0 || places_[input].layer.empty()) continue;
    if (tape_.node(input).parameter != nullptr) return places_[input].layer;
    latest = std::max(latest, input);
  }
  return latest < 0 ? "" : places_[latest].layer;
}

bool DotWriter::is_left_out(const NodeView& node) const {
  return options_.merge && node.inputs.size() == 1 && node.inputs.front().node >= 0 &&
         std::ranges::find(kMovers, std::string_view(node.name)) != kMovers.end();
}

/// Name inside its layer, and shape.
std::string DotWriter::parameter_text(int index) const {
  const NodeView node = tape_.node(index);
  const std::string& layer = places_[index].layer;
  const std::string name = node.parameter->name.substr(layer.empty() ? 0 : layer.size() + 1);
  return name + (options_.merge ? " " : "\\n") + shape_of(node);
}

std::string DotWriter::node_line(int index) const {
  const NodeView node = tape_.node(index);
  const bool is_output = index + 1 == tape_.size();
  const std::string gap = options_.merge ? " " : "\\n";
  std::string label = kind(node) + gap + shape_of(node);
  std::string look;
  if (node.parameter != nullptr) {
    label = parameter_text(index);
    look = "shape=box, style=filled, fillcolor=\"#fff0b0\"";
  } else if (node.inputs.empty()) {
    look = join("shape=ellipse, style=filled, fillcolor=\"", node.is_input ? "#cfe2ff" : "#e4e4e4",
                "\"");
  } else {
    const bool has_parameters = std::ranges::any_of(
        places_[index].inputs, [&](int input) { return places_[input].merged; });
    look = join("shape=box, style=\"rounded,filled\", fillcolor=\"",
                is_output        ? "#c8eec8"
                : has_parameters ? "#fff0b0"
                                 : "white",
                is_output ? "\", peripheries=2" : "\"");
  }
  for (const int input : places_[index].inputs) {
    if (places_[input].merged) label += "\\n" + parameter_text(input);
  }
  return join("n", index, " [label=", in_quotes(label), ", ", look, "];\n");
}

std::string DotWriter::text() const {
  std::vector<std::string> layers;  // in the order of their first nodes
  for (const Place& place : places_) {
    if (std::ranges::find(layers, place.layer) == layers.end()) layers.push_back(place.layer);
  }
  std::string text =
      "digraph tape {\n"
      "  graph [rankdir=TB, ranksep=0.25, nodesep=0.2, bgcolor=\"white\", fontname=\"Helvetica\", "
      "fontsize=12];\n"
      "  node [fontname=\"Helvetica\", fontsize=11, margin=\"0.1,0.04\", height=0.3];\n"
      "  edge [arrowsize=0.6];\n";
  if (!options_.title.empty()) text += "  label=" + in_quotes(options_.title) + ";\n";
  for (const std::string& layer : layers) {
    const std::string indent = layer.empty() ? "  " : "    ";
    if (!layer.empty()) {
      text += "  subgraph " + in_quotes("cluster_" + layer) + " {\n    label=" + in_quotes(layer) +
              "; labeljust=l; margin=14;\n    style=\"rounded,filled\"; color=\"#b8b8b8\"; "
              "fillcolor=\"#f6f6f6\";\n";
    }
    for (int i = 0; i < tape_.size(); ++i) {
      const Place& place = places_[i];
      if (place.layer == layer && place.source == i && !place.merged) text += indent + node_line(i);
    }
    if (!layer.empty()) text += "  }\n";
  }
  for (int i = 0; i < tape_.size(); ++i) {
    if (places_[i].source != i) continue;
    for (const int input : places_[i].inputs) {
      if (places_[input].merged) continue;
      const char* look = tape_.node(input).needs_grad ? "" : " [style=dashed]";
      text += join("  n", input, " -> n", i, look, ";\n");
    }
  }
  return text + "}\n";
}

}  // namespace

std::string to_dot(const Tape& tape, const DotOptions& options) {
  return DotWriter(tape, options).text();
}

}  // namespace skytape
