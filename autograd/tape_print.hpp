// Prints a tape for readers: as lines of text, and as a graph for Graphviz.
#pragma once

#include <string>
#include <vector>

#include "autograd/tape.hpp"

namespace skytape {

/// Returns one line a node: its index, op, inputs ("-": absent, "7.1": the second output of node
/// 7), shapes of its outputs, whether it needs a gradient, and the parameter's name. Leaves are
/// called parameter, input and constant. A value that backward has released has the shape
/// "released".
[[nodiscard]] std::string to_text(const Tape& tape);

/// Returns the name of every node in order, leaves as "leaf".
[[nodiscard]] std::vector<std::string> names(const Tape& tape);

struct DotOptions {
  std::string title;  // below the graph; empty: none
  /// Leaves out ops that only move values (reshape, transpose, ...), and writes the name of a
  /// parameter that one op reads into that op's box.
  bool merge = false;
};

/// The graph in the language of Graphviz: `dot -Tsvg`. Parameters, and ops that they are merged
/// into, are yellow, inputs blue, constants grey, other ops white, the last node green with a
/// double line. Broken edges carry no gradient. Nodes stand in one frame per layer, which is what
/// parameters' names begin with ("model.transformer_0"); an op without parameters stands where its
/// latest input does.
[[nodiscard]] std::string to_dot(const Tape& tape, const DotOptions& options = {});

}  // namespace skytape
