#include "autograd/tape_print.hpp"

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "autograd/initial_values.hpp"
#include "autograd/ops.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using test::contains;

namespace {

Tensor ones(const Shape& shape) { return Tensor::full(shape, 1, DType::f64, Device::cpu); }

/// loss = sum of (x w + x w) reshaped, with a parameter in a layer, an input and a constant.
struct SmallTape {
  ParameterStore store;
  Parameter& weight = store.add("model.layer_0.fc.weight", {3, 2}, constant_init(0.5));
  Tape tape;
  Var loss;

  SmallTape() {
    store.pack(DType::f64, Device::cpu, 1);
    const Var x = tape.input(ones({4, 2}));
    const Var y = linear(x, tape.parameter(weight), Var());
    const Var flat = reshape(y + y, {12});
    loss = sum_all(flat * tape.constant(ones({12})));
  }
};

/// Edges of a graph as "n0 -> n2", with how often each is written.
std::map<std::string, int> edges_of(const std::string& dot) {
  std::map<std::string, int> edges;
  const std::regex pattern(R"(\n  (n\d+ -> n\d+)( \[style=dashed\])?;)");
  for (std::sregex_iterator it(dot.begin(), dot.end(), pattern), end; it != end; ++it) {
    ++edges[(*it)[1]];
  }
  return edges;
}

/// Nodes that the graph declares.
std::set<std::string> nodes_of(const std::string& dot) {
  std::set<std::string> nodes;
  const std::regex pattern(R"((n\d+) \[label=)");
  for (std::sregex_iterator it(dot.begin(), dot.end(), pattern), end; it != end; ++it) {
    nodes.insert((*it)[1]);
  }
  return nodes;
}

}  // namespace

TEST_CASE("a tape prints one line a node") {
  const SmallTape small;
  CHECK(to_text(small.tape) ==
        "node  op         inputs  shape   gradient  parameter\n"
        "   0  input              [4, 2]  yes\n"
        "   1  parameter          [3, 2]  yes       model.layer_0.fc.weight\n"
        "   2  linear     0 1 -   [4, 3]  yes\n"
        "   3  add        2 2     [4, 3]  yes\n"
        "   4  reshape    3       [12]    yes\n"
        "   5  constant           [12]    no\n"
        "   6  multiply   4 5     [12]    yes\n"
        "   7  sum_all    6       []      yes\n");
}

TEST_CASE("after backward a tape prints what it released, and keeps leaves and output") {
  SmallTape small;
  small.tape.backward(small.loss);
  const std::string text = to_text(small.tape);
  CHECK(contains(text, "   3  add        2 2     released  yes\n"));
  CHECK(contains(text, "   0  input              [4, 2]    yes\n"));
  CHECK(contains(text, "   7  sum_all    6       []        yes\n"));
}

TEST_CASE("an evaluation's tape names its parameters, which need no gradient") {
  ParameterStore store;
  Parameter& p = store.add("p", {2}, constant_init(1));
  store.pack(DType::f64, Device::cpu, 1);
  Tape tape(Tape::Mode::eval);
  (void)tape.parameter(p);
  CHECK(to_text(tape) ==
        "node  op         inputs  shape  gradient  parameter\n"
        "   0  parameter          [2]    no        p\n");
}

TEST_CASE("an empty tape prints its heading and an empty graph") {
  const Tape tape;
  CHECK(to_text(tape) == "node  op  inputs  shape  gradient  parameter\n");
  CHECK(nodes_of(to_dot(tape)).empty());
}

TEST_CASE("a graph has every node, and every edge once") {
  const SmallTape small;
  const std::string dot = to_dot(small.tape, {"a \"small\" tape", false});
  CHECK(nodes_of(dot) == std::set<std::string>{"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"});
  CHECK(edges_of(dot) == std::map<std::string, int>{{"n0 -> n2", 1},
                                                    {"n1 -> n2", 1},
                                                    {"n2 -> n3", 1},  // y + y: one edge
                                                    {"n3 -> n4", 1},
                                                    {"n4 -> n6", 1},
                                                    {"n5 -> n6", 1},
                                                    {"n6 -> n7", 1}});
  CHECK(std::ranges::count(dot, '{') == std::ranges::count(dot, '}'));
  CHECK(std::ranges::count(dot, '[') == std::ranges::count(dot, ']'));
  CHECK(contains(dot, R"(label="a \"small\" tape";)"));
  CHECK(contains(dot, R"(subgraph "cluster_model.layer_0" {)"));
  CHECK(contains(dot, R"(n1 [label="fc.weight\n[3, 2]", shape=box)"));
  CHECK(contains(dot, "n5 -> n6 [style=dashed];"));  // the constant
  const std::size_t framed_end = dot.find("\n  }\n");
  CHECK(dot.find("n2 [") < framed_end);  // linear stands with its weight, and so what follows
  CHECK(dot.find("n7 [") < framed_end);
  CHECK(contains(dot, R"(n7 [label="sum_all\n[]", shape=box, style="rounded,filled", )"
                      R"(fillcolor="#c8eec8", peripheries=2])"));
}

TEST_CASE("a merged graph has parameters in their op's box and no op that only moves values") {
  const SmallTape small;
  const std::string dot = to_dot(small.tape, {"", true});
  CHECK(nodes_of(dot) == std::set<std::string>{"n0", "n2", "n3", "n5", "n6", "n7"});
  CHECK(edges_of(dot) ==
        std::map<std::string, int>{
            {"n0 -> n2", 1}, {"n2 -> n3", 1}, {"n3 -> n6", 1}, {"n5 -> n6", 1}, {"n6 -> n7", 1}});
  CHECK(contains(dot, R"(n2 [label="linear [4, 3]\nfc.weight [3, 2]")"));
  CHECK_FALSE(contains(dot, "label=\"\""));
}

TEST_CASE("a parameter that two ops read keeps its node in a merged graph") {
  ParameterStore store;
  Parameter& shared = store.add("model.layer_0.fc.weight", {3, 3}, constant_init(0.5));
  store.pack(DType::f64, Device::cpu, 1);
  Tape tape;
  const Var x = tape.input(ones({4, 3}));
  const Var w = tape.parameter(shared);  // n1
  (void)sum_all(linear(linear(x, w, Var()), w, Var()));
  const std::string dot = to_dot(tape, {"", true});
  CHECK(edges_of(dot) ==
        std::map<std::string, int>{
            {"n0 -> n2", 1}, {"n1 -> n2", 1}, {"n1 -> n3", 1}, {"n2 -> n3", 1}, {"n3 -> n4", 1}});
  CHECK(contains(dot, R"(n1 [label="fc.weight [3, 3]")"));
  CHECK(contains(dot, R"(n3 [label="linear [4, 3]")"));
}
