// train/scripts/gpu_static.sh on made-up notes of ptxas: what it lists, and what it refuses.
#include <cstdio>

#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using data::synthetic::Folder;
using data::synthetic::read_file;

namespace {

/// Returns what ptxas says of a kernel for sm_90.
std::string note(const std::string& kernel, int registers, int shared, int spilled) {
  const std::string bytes = std::to_string(spilled) + " bytes spill ";
  return "ptxas info    : Compiling entry function '" + kernel + "' for 'sm_90'\n" +
         "ptxas info    : Function properties for " + kernel + "\n    8 bytes stack frame, " +
         bytes + "stores, " + bytes + "loads\n" + "ptxas info    : Used " +
         std::to_string(registers) + " registers, used 1 barriers" +
         (shared > 0 ? ", " + std::to_string(shared) + " bytes smem" : "") + "\n";
}

struct Static {
  Folder folder;
  int status = 0;
  std::string said, table;

  explicit Static(const std::map<std::string, std::string>& notes) {
    for (const auto& [file, text] : notes) {
      folder.write("build/" + file + ".cuda.o.ptxas", text);
    }
    const std::string root = folder.path().string();
    FILE* const pipe = ::popen(
        ("B=" + root + "/build OUT=" + root + "/table train/scripts/gpu_static.sh 2>&1").c_str(),
        "r");
    REQUIRE(pipe != nullptr);
    char part[4096];
    while (std::fgets(part, sizeof part, pipe) != nullptr) said += part;
    status = WEXITSTATUS(::pclose(pipe));
    if (!notes.empty()) table = read_file(folder.path() / "table");
  }
};

}  // namespace

TEST_CASE("gpu-static lists registers, shared memory and spills, which f64 alone may have") {
  const Static s(
      {{"tensor/a.cu", note("_Z3addIfEvT_", 40, 512, 0) + note("_Z3addIdEvT_", 128, 0, 16)},
       {"attention/b.cu", note("_Z4tilev", 168, 0, 0)}});
  CHECK(s.status == 0);
  CHECK(s.table ==
        "source\tarchitecture\tregisters\tshared bytes\tspilled bytes\tkernel\n"
        "attention/b.cu\tsm_90\t168\t0\t0\ttile()\n"
        "tensor/a.cu\tsm_90\t40\t512\t0\tvoid add<float>(float)\n"
        "tensor/a.cu\tsm_90\t128\t0\t32\tvoid add<double>(double)\n");
  CHECK(s.said.starts_with("3 kernels, 1 of them, in f64, with spills"));
}

TEST_CASE("gpu-static refuses spills, and a folder without notes") {
  const Static spills({{"tensor/a.cu", note("_Z3addIfEvT_", 255, 0, 4)}});
  CHECK(spills.status == 1);
  CHECK(spills.said == "gpu_static: tensor/a.cu on sm_90 spills 8 bytes: void add<float>(float)\n");
  const Static none({});
  CHECK(none.status == 1);
  CHECK(none.said.find("expected a CUDA build's folder") != std::string::npos);
}
