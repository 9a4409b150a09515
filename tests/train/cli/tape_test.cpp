// `skytape tape`: every method's training step can be printed and drawn.
#include "attention/registry.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"
#include "tests/train/cli/program.hpp"

using namespace skytape;
using namespace skytape::test;

TEST_CASE("skytape tape prints the step of every method, down to the loss") {
  if (!program_or_skip()) return;
  const data::synthetic::Folder folder;
  for (const attention::Spec& spec : attention::registry()) {
    const Finished done = run_program(folder.path(), {"tape", "--attention", spec.name});
    INFO(spec.name, ": ", done.err);
    CHECK(done.code == 0);
    CHECK(contains(done.out, "model.transformer_0.mha.W_v.weight"));
    CHECK(contains(done.out, "attention"));
    CHECK(contains(done.out, "classify"));
    CHECK(contains(done.out, "received a gradient"));
  }
}

TEST_CASE("skytape tape --dot writes a graph with the layers framed") {
  if (!program_or_skip()) return;
  const data::synthetic::Folder folder;
  const Finished whole = run_program(folder.path(), {"tape", "--dot", "--n", "8", "--batch", "3"});
  CHECK(whole.code == 0);
  CHECK(whole.out.starts_with("digraph tape {"));
  CHECK(whole.out.ends_with("}\n"));
  CHECK(contains(whole.out, "subgraph \"cluster_model.transformer_0\""));
  CHECK(contains(whole.out, "label=\"attention\\n[3, 2, 8, 4]\""));
  const Finished merged = run_program(folder.path(), {"tape", "--dot", "--merge"});
  CHECK(merged.code == 0);
  const std::string leaf = "shape=box, style=filled";  // how a parameter is drawn
  CHECK(contains(whole.out, leaf));
  CHECK_FALSE(contains(merged.out, leaf));
  CHECK_FALSE(contains(merged.out, "\"reshape"));
  CHECK(contains(merged.out, "\\nmha.W_q.weight [8, 8]"));
}

TEST_CASE("skytape tape refuses an unknown method and --merge without --dot") {
  if (!program_or_skip()) return;
  const data::synthetic::Folder folder;
  const Finished method = run_program(folder.path(), {"tape", "--attention", "skyfromer"});
  CHECK(method.code == 2);
  CHECK(contains(method.err, "skyformer"));
  const Finished merge = run_program(folder.path(), {"tape", "--merge"});
  CHECK(merge.code == 2);
  CHECK(contains(merge.err, "--merge is for --dot"));
}
