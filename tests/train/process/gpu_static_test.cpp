// train/scripts/gpu_static.sh on made-up notes of ptxas: what it reckons, and what it refuses.
#include <sys/stat.h>

#include <cstdio>

#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using data::synthetic::Folder;
using data::synthetic::read_file;

namespace {

/// What ptxas says of a kernel for sm_90.
std::string note(const std::string& kernel, int registers, int shared, int spilled) {
  const std::string bytes = std::to_string(spilled) + " bytes spill ";
  return "ptxas info    : Compiling entry function '" + kernel + "' for 'sm_90'\n" +
         "ptxas info    : Function properties for " + kernel + "\n    8 bytes stack frame, " +
         bytes + "stores, " + bytes + "loads\n" + "ptxas info    : Used " +
         std::to_string(registers) + " registers, used 1 barriers" +
         (shared > 0 ? ", " + std::to_string(shared) + " bytes smem" : "") + "\n";
}

std::string map(const std::string& functor) {
  return "void skytape::cuda::map_kernel<skytape::(anonymous namespace)::" + functor +
         " >(long, skytape::(anonymous namespace)::" + functor + ")";
}
constexpr const char* kTile =
    "void skytape::attention::tiled_cuda::(anonymous namespace)::forward_kernel<"
    "(skytape::Precision)2, 64>(skytape::attention::TiledPlan)";

constexpr const char* kBlocks =
    "void skytape::attention::(anonymous namespace)::block_forward_kernel<(skytape::Precision)1, "
    "32, true>(skytape::attention::BlockPlan)";

struct Static {
  Folder folder;
  int status = 0;
  std::string said, page;

  /// Notes by file; `instruction` is what a made-up cuobjdump finds in every kernel of the tiles.
  explicit Static(const std::map<std::string, std::string>& notes,
                  const std::string& instruction = "HMMA.16816.F32.BF16") {
    for (const auto& [file, text] : notes) {
      folder.write("build/" + file + ".cuda.o.ptxas", text);
    }
    const auto tool =
        folder.write("bin/cuobjdump",
                     "#!/bin/bash\nprintf 'arch = sm_90\\n\\tFunction : forward_kernel\\n"
                     "/*0000*/ LDG.E.128 R4, [R2] ;\\n/*0010*/ LDG.E R4, [R2] ;\\n"
                     "/*0020*/ STG.E.64 [R2], R4 ;\\n/*0030*/ " +
                         instruction + " R4, R8, R12, R4 ;\\n'\n");
    ::chmod(tool.c_str(), 0755);
    const std::string root = folder.path().string();
    FILE* const pipe = ::popen(("PATH=" + root + "/bin:$PATH B=" + root + "/build OUT=" + root +
                                "/page.md train/scripts/gpu_static.sh 2>&1")
                                   .c_str(),
                               "r");
    REQUIRE(pipe != nullptr);
    char part[4096];
    while (std::fgets(part, sizeof part, pipe) != nullptr) said += part;
    status = WEXITSTATUS(::pclose(pipe));
    page = read_file(folder.path() / "page.md");
  }
  [[nodiscard]] bool has(const std::string& row) const { return page.find(row) != page.npos; }
};

}  // namespace

TEST_CASE("gpu-static: occupancy follows from registers, shared memory and threads") {
  const Static s(
      {{"tensor/a.kernel.cpp", note(map("Add<float>"), 32, 0, 0) + note(map("Add<int>"), 40, 0, 0) +
                                   note(map("Add<double>"), 128, 0, 16)},
       {"attention/tiled/tiled_tensor_core.cu", note(kTile, 168, 0, 0)},
       {"attention/blocks/block_attention_tensor_core.cu", note(kBlocks, 167, 0, 0)}});
  CAPTURE(s.said);
  CAPTURE(s.page);
  CHECK(s.status == 0);  // f64 may spill
  // 40 registers: 1280 a warp, 51 warps, 48 in fours, 6 blocks of 8 warps: 48 of 64.
  CHECK(s.has("| tensor/a.kernel.cpp | `Add (map)` | f32 | 2 | 256 | 40 | 0 | 0 | 75 |"));
  CHECK(s.has("| tensor/a.kernel.cpp | `Add (map)` | f64 | 1 | 256 | 128 | 0 | 32 | 25 |"));
  // 168 registers: 5376 a warp, 12 warps, 3 blocks of 4 warps; shared memory is the launch's.
  CHECK(s.has("| `forward_kernel<bf16, 64>` | bf16 | 1 | 128 | 168 | 37376 | 0 | 19 |"));
  CHECK(
      s.has("| `block_forward_kernel<tf32, 32, true>` | tf32 | 1 | 128 | 167 | 43040 | 0 | 19 |"));
  CHECK(s.has("| `forward_kernel` | sm_90 | 1 | 1, 0, 1 | 0, 1, 0 |"));
}

TEST_CASE("gpu-static: the shared memory that fused kernel products ask for limits them") {
  const auto kernel = [](const std::string& args) {
    return note("void skytape::attention::kernel_cuda::(anonymous namespace)::form_kernel<" + args +
                    ">(skytape::attention::kernel_cuda::Sizes, skytape::attention::kernel_cuda::"
                    "Arrays)",
                64, 0, 0);
  };
  const std::string form = ", (skytape::attention::kernel_cuda::Form)3";
  const Static s({{"attention/feature_maps/gaussian_kernel_tensor_core.cu",
                   kernel("(skytape::Precision)2, 32, 48" + form)},
                  {"attention/feature_maps/gaussian_kernel_fp32.cu", kernel("32, 32" + form)}});
  CAPTURE(s.said);
  CAPTURE(s.page);
  // 128 rows of 40 and 56 numbers on both sides, and their terms: four blocks of 8 warps, as many
  // as 64 registers allow.
  CHECK(
      s.has("| `form_kernel<bf16, 32, 48, backward dy>` | bf16 | 1 | 256 | 64 | 50176 | 0 | 50 |"));
  // 160 rows of 36 and 36 numbers and a term, two arrays of 32 by 132: two blocks.
  CHECK(s.has("| `form_kernel<32, 32, backward dy>` | f32 | 1 | 256 | 64 | 80512 | 0 | 25 |"));
}

TEST_CASE("gpu-static: the shared memory that the f32 tiles ask for limits them") {
  const Static s(
      {{"attention/tiled/tiled.cu",
        note("void skytape::attention::(anonymous namespace)::backward_kernel<float, "
             "64>(skytape::attention::TiledPlan)",
             64, 0, 0) +
            note("void skytape::attention::(anonymous namespace)::forward_kernel<float, 32, "
                 "(skytape::attention::Score)0>(skytape::attention::TiledPlan)",
                 64, 0, 0)},
       {"attention/blocks/block_attention.cu",
        note("void skytape::attention::(anonymous namespace)::block_gradient_kernel<float, 32, "
             "true>(skytape::attention::BlockPlan)",
             64, 0, 0) +
            note("void skytape::attention::(anonymous namespace)::block_forward_kernel<double, "
                 "128>(skytape::attention::BlockPlan)",
                 64, 0, 0)}});
  CAPTURE(s.page);
  // 4 ((3 * 128) * 36 + 128 * 132 + 2 * 128) bytes, once in 228 KiB.
  CHECK(s.has("| `forward_kernel<float, 32, softmax>` | f32 | 1 | 256 | 64 | 123904 | 0 | 12 |"));
  // 4 ((2 * 128 + 2 * 64) * 68 + 128 * 68 + 2 * 64 + 128) bytes, once in 228 KiB.
  CHECK(s.has("| `backward_kernel<float, 64>` | f32 | 1 | 256 | 64 | 140288 | 0 | 12 |"));
  // 4 (4 * 64 * 36 + 64 * 68) bytes and 16 for each of 2 * 64 rows, four times in 228 KiB.
  CHECK(
      s.has("| `block_gradient_kernel<float, 32, true>` | f32 | 1 | 128 | 64 | 56320 | 0 | 25 |"));
  // 8 ((2 * 32 + 16) * 132 + 16 * 36 + 16) bytes and 32 for each of 16 + 32 rows, twice.
  CHECK(s.has("| `block_forward_kernel<double, 128>` | f64 | 1 | 128 | 64 | 90752 | 0 | 12 |"));
}

TEST_CASE("gpu-static refuses spills, tiles without tensor cores, and kernels it does not know") {
  const Static spills({{"tensor/a.kernel.cpp", note(map("Add<float>"), 255, 0, 4)}});
  CHECK(spills.status == 1);
  CHECK(spills.said.find("tensor/a.kernel.cpp: Add (map) on sm_90 spills 8 bytes") !=
        std::string::npos);
  const Static scalar({{"attention/tiled/tiled_tensor_core.cu", note(kTile, 168, 0, 0)}}, "FFMA");
  CHECK(scalar.status == 1);
  CHECK(scalar.said.find("no tensor-core instructions in:") != std::string::npos);
  const Static blocks(
      {{"attention/blocks/block_attention_tensor_core.cu", note(kBlocks, 167, 0, 0)}}, "FFMA");
  CHECK(blocks.status == 1);
  const Static unknown({{"tensor/a.cu", note("other_kernel(int)", 8, 0, 0)}});
  CHECK(unknown.status == 1);
  CHECK(unknown.said.find("no block size known for other_kernel") != std::string::npos);
  CHECK(Static({}).status == 1);
}
