// 2. The tape's walk
// teaches: backward through a whole graph; gradients of what was used twice are added up
// minutes: 15
//
// A tape is a list of nodes in the order in which they were computed, so the inputs of a node stand
// before it. For f = (a b) + a, with a = 2 and b = 5, the tape is
//
//   node  value          inputs    slopes: dvalue/dinput, one for each input
//   0     a = 2          -         -
//   1     b = 5          -         -
//   2     c = a b = 10   0, 1      5, 2          dc/da = b, dc/db = a
//   3     f = c + a      2, 0      1, 1
//
// Forward has filled in inputs and slopes. You write the walk back: afterwards each node's `grad`
// shall be df/d(its value), where f is the node `output`:
//
//   - df/df = 1: there the walk begins.
//   - A node passes on grad x slope to each of its inputs (the chain rule, as in exercise 1).
//   - Node 0 above is used twice, by 2 and by 3: what both pass on is added up,
//     df/da = 1 x 5 + 1 x 1 = 6.
//   - A node may pass on its grad only when it is complete. In which order must one walk?
//   - Nodes that f does not depend on have grad 0, whatever stood there before.
//
// The real one: Tape::backward in autograd/tape.cpp.
#include "tests/exercises/judge.hpp"

using namespace skytape::exercises;

struct Node {
  std::vector<int> inputs;     // places of earlier nodes
  std::vector<double> slopes;  // dvalue/dinput, as many
  double grad = 0;
};

// ---- your part ----------------------------------------------------------------------------------

/// Fills in grad of all nodes: dvalue[output] / dvalue[node].
void backward(std::vector<Node>& tape, int output) { write_here(); }

// ---- the judge ----------------------------------------------------------------------------------

Matrix gradients(std::vector<Node> tape, int output) {
  backward(tape, output);
  Matrix all(1, static_cast<int>(tape.size()));
  for (int i = 0; i < all.columns; ++i) all(0, i) = tape[i].grad;
  return all;
}

/// Counts instead: the sum over all ways from the output down to the node.
double slope_of(const std::vector<Node>& tape, int from, int to) {
  if (from == to) return 1;
  double sum = 0;
  for (std::size_t k = 0; k < tape[from].inputs.size(); ++k) {
    sum += tape[from].slopes[k] * slope_of(tape, tape[from].inputs[k], to);
  }
  return sum;
}

int main() {
  return judge([](Judge& j) {
    const std::vector<Node> sum = {{{}, {}}, {{}, {}}, {{1, 0}, {2, 3}}};
    const char* const mixed_up =
        "A node's inputs are counted by k: the slope of its k-th input is slopes[k], the input's "
        "place in the tape inputs[k].";
    j.asks("one node: node 2 = 2 x node 1 + 3 x node 0, inputs 1, 0 and slopes 2, 3")
        .same("grads of nodes 0 to 2", gradients(sum, 2), Matrix({{3, 2, 1}}),
              "Node 2 passes 1 x 2 on to its input node 1, and 1 x 3 to its input node 0.",
              {{Matrix({{0, 0, 0}}),
                "The walk begins with grad 1 at the output: df/df = 1. (If you wrote that: "
                "`Node n = tape[i]` is a copy: write Node& n = tape[i].)"},
               {Matrix({{0, 0, 1}}),
                "Nothing was passed on. Is the node `output` left out, or does the sum go to a "
                "copy? `Node n = tape[i]` is a copy: write Node& n = tape[i]."},
               {Matrix({{2, 3, 1}}), mixed_up},
               {Matrix({{1, 1, 1}}), "A node passes on grad x slope, not its grad alone."}});
    const std::vector<Node> chain = {{{}, {}}, {{0}, {2}}, {{1}, {3}}, {{2}, {5}}};
    j.asks("a chain: node 1 = 2 x node 0, node 2 = 3 x node 1, node 3 = 5 x node 2")
        .same("grads of nodes 0 to 3", gradients(chain, 3), Matrix({{30, 15, 5, 1}}),
              "Along a chain slopes multiply: 5, then 5 x 3, then 5 x 3 x 2.",
              {{Matrix({{0, 0, 5, 1}}),
                "Only the last node passed something on: walk from the output to the first node, "
                "so that "
                "a node is complete before it passes its grad on."},
               {Matrix({{2, 3, 5, 1}}), "A node passes on grad x slope, not its slope alone."},
               {Matrix({{0, 15, 5, 1}}),
                "Node 1 passed nothing on: the walk goes down to node 0, and each node passes on "
                "to its "
                "inputs."}});
    const std::vector<Node> square = {{{}, {}}, {{0, 0}, {7, 7}}};
    const char* const add = "What a node receives twice is added up (+=), not overwritten (=).";
    j.asks("x x with x = 7: node 1 has inputs 0, 0 and slopes 7, 7")
        .same("grads of nodes 0, 1", gradients(square, 1), Matrix({{14, 1}}), add,
              {{Matrix({{7, 1}}), add}});
    const std::vector<Node> story = {{{}, {}}, {{}, {}}, {{0, 1}, {5, 2}}, {{2, 0}, {1, 1}}};
    j.asks("(a b) + a of the story")
        .same("grads of nodes 0 to 3", gradients(story, 3), Matrix({{6, 2, 1, 1}}), add);
    std::vector<Node> used = story;
    for (Node& node : used) node.grad = 100;
    j.asks("gradients of an earlier walk are forgotten")
        .same("grads of nodes 0 to 3", gradients(used, 3), Matrix({{6, 2, 1, 1}}),
              "Before the walk each grad must be zero: it is a sum, and a sum begins with zero.");
    j.asks("the output in the middle: nodes after it do not count")
        .same("grads of nodes 0 to 3", gradients(story, 2), Matrix({{5, 2, 1, 0}}),
              "Begin at `output`, not at the tape's end: what was computed later does not change "
              "it.");
    j.asks("the output in the middle, after an earlier walk")
        .same("grads of nodes 0 to 3", gradients(used, 2), Matrix({{5, 2, 1, 0}}),
              "All grads must be zero before the walk, those of nodes after `output`, too.");
    // Each node from 3 on uses the three before it.
    std::vector<Node> wide(3);
    for (int i = 3; i < 12; ++i) {
      wide.push_back({{i - 1, i - 3, i - 2}, {0.5, 0.1 * i, -0.25}});
    }
    Matrix expected(1, 12);
    for (int i = 0; i < 12; ++i) expected(0, i) = slope_of(wide, 11, i);
    j.asks("a graph with many ways through it")
        .same("grads of nodes 0 to 11", gradients(wide, 11), expected,
              "Each node must be complete before it passes its grad on.");
  });
}

// hint: Two loops, one inside the other: over nodes from `output` down to 0, and over a node's
// hint: inputs. Before them: all grads to zero, then the output's to one.
