// train/scripts/gpu_check.sh with a made-up GPU and program: its verdicts, limits and order. What
// it runs on a real GPU is worth nothing if a fault there were called a success.
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>

#include "data/files/json.hpp"
#include "tests/data/synthetic.hpp"
#include "tests/support/doctest.hpp"

using namespace skytape;
using data::synthetic::Folder;
using data::synthetic::read_file;

namespace {

namespace fs = std::filesystem;

// Does what the checks ask for, as far as they can see; variables make it go wrong.
constexpr const char* kProgram = R"sh(#!/bin/bash
set -e
out= json= graph=1
arguments=("$@")
while [ $# -gt 0 ]; do
  case $1 in --out) out=$2 ;; --json) json=$2 ;; --no-graph) graph=0 ;; esac
  shift
done
case ${arguments[*]} in
  "info attention --names") printf 'softmax\nskyformer\n' ;;
  info\ gpu*) exit ${NO_TENSOR_CORES:-0} ;;
  bench*)
    sleep ${SLEEP:-0}
    if [ -n "${MEET:-}" ]; then  # waits until a second one has come
      mktemp "$MEET/XXXXXX" >/dev/null
      for ((tries = 0; $(ls "$MEET" | wc -l) < 2; ++tries)); do
        [ $tries -lt 100 ] || exit 1
        sleep 0.1
      done
    fi
    [ -z "$json" ] || echo "{\"steps_replayed\": ${REPLAYED:-1}}" >"$json" ;;
  data*${MISSING:-nothing}*) exit 3 ;;
  lra*)
    mkdir -p "$out/done" "$out/going"; echo table >"$out/lra.csv"
    touch "$out"/{done,going}/last.safetensors "$out/done/result.json"
    echo "asked for ${arguments[*]}" >>"$out/asked" ;;
  train*)
    mkdir -p "$out"
    printf '\x02\0\0\0\0\0\0\0{}weights' >"$out/last.safetensors"
    [ "$graph" = 0 ] || echo "${OTHER_BITS:-}" >>"$out/last.safetensors"
    [ "$graph" = 1 ] || echo >>"$out/last.safetensors"
    loss=2.3
    case ${arguments[*]} in *"--device cuda"*) loss=${CUDA_LOSS:-2.3001} ;; esac
    for i in 1 2 3 4 5 6 7 8; do echo "{\"kind\":\"train\",\"loss\":$loss,\"step\":$i}"; done >"$out/metrics.jsonl"
    echo "how steps ran: $((graph * ${REPLAYED:-1})) replayed, 1 of them when captured, 1 op by op" >&2 ;;
esac
)sh";

/// A folder with the made-up program, and what gpu_check.sh said of it.
struct Check {
  Folder folder;
  int status = 0;
  std::string said;
  std::string verdicts;

  explicit Check(const std::string& variables) {
    script("bin/nvidia-smi", "echo 'GPU 0: made up'; exit ${NO_GPU:-0}");
    script("bin/compute-sanitizer",
           "[ -z \"${REFUSES:-}\" ] || { echo 'Error: Device not supported'; exit 1; }\n"
           "[ \"$2\" != racecheck ] || [ \"$4\" = kns=skytape ] || exit 1\n"
           "until [ \"$1\" = 9 ]; do shift; done; shift\n"     // --error-exitcode 9
           "while [[ $1 == --* ]]; do shift 2; done\n"         // which launches
           "case $1 in */skytape-lab) ;; *) exit 0 ;; esac\n"  // it watches this program alone
           "\"$@\" || exit\n"
           "[ -n \"${BLIND:-}\" ] || echo \"========= ERROR SUMMARY: ${FINDS:-0} errors\"\n"
           "exit ${FINDS:-0}");
    script(
        "build/skytape_tests",
        "case $* in *\"${STICKY:-nothing}\"*) exit 1 ;; esac\n"
        "case $* in *\"${SKIPS:-nothing}\"*) echo '3 CUDA cases skipped: no GPU answers' ;; esac");
    folder.write("build/skytape-lab", kProgram);
    ::chmod((folder.path() / "build/skytape-lab").c_str(), 0755);
    const std::string root = folder.path().string();
    const std::string command = "PATH=" + root + "/bin:$PATH B=" + root + "/build OUT=" + root +
                                "/out " + variables + " train/scripts/gpu_check.sh 2>&1";
    FILE* const pipe = ::popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    char part[4096];
    while (std::fgets(part, sizeof part, pipe) != nullptr) said += part;
    status = WEXITSTATUS(::pclose(pipe));
    verdicts = read_file(folder.path() / "out/verdicts.jsonl");
  }

  void script(const std::string& name, const std::string& text) const {
    ::chmod(folder.write(name, "#!/bin/bash\n" + text + "\n").c_str(), 0755);
  }
  [[nodiscard]] std::string verdict(const std::string& name) const {
    std::istringstream lines(verdicts);
    for (std::string line; std::getline(lines, line);) {
      const data::Json one = data::parse_json(line);
      if (one.at("name").get<std::string>() == name) return one.at("verdict").get<std::string>();
    }
    return "none";
  }
};

}  // namespace

TEST_CASE("gpu-check passes what works, and says what the machine lacks") {
  const Check all("METHODS=softmax PYTHON=false");  // every slice
  CAPTURE(all.said);
  CHECK(all.status == 0);
  for (const char* name :
       {"version", "tensor-cores", "test-tensor-gemm-gemm", "goldens", "parity-softmax",
        "bits-softmax-tf32", "kernels-bf16", "kernels-tiny", "bench-bf16-2048", "grid-jobs",
        "listops-skytape", "arena-data-text", "arena", "arena-page", "listops-50000",
        "racecheck-bigbird-tf32-100", "initcheck-ops-fp32", "memcheck-train-reformer-bf16"}) {
    CHECK_MESSAGE(all.verdict(name) == "passed", name);
  }
  CHECK(all.verdict("race") == "not available");
  CHECK(all.verdicts.find("FAILED") == std::string::npos);
  int files = 0;
  for (const auto& file : fs::directory_iterator(all.folder.path() / "out")) {
    CHECK(file.is_regular_file());
    ++files;
  }
  CHECK(files <= 8);  // few enough to be fetched from another machine
  const std::string packed = "tar -xOzf " + (all.folder.path() / "out/gpu_check.tar.gz").string();
  CHECK(std::system((packed + " ./gpu_check.md ./logs/goldens.log >/dev/null").c_str()) == 0);
  CHECK(read_file(all.folder.path() / "out/gpu_check.md").find("| goldens | passed |") !=
        std::string::npos);
}

TEST_CASE(
    "gpu-check: a tool that refuses the device is not available, one that finds a fault fails") {
  const Check refuses(
      "CHECKS='goldens races sanitizers' PRECISIONS=bf16 METHODS=softmax REFUSES=1");
  CHECK(refuses.status == 0);
  CHECK(refuses.verdict("racecheck-skyformer-bf16-0") == "not available");
  CHECK(refuses.verdict("memcheck-train-softmax-bf16") == "not available");
  const Check finds("CHECKS='races sanitizers' PRECISIONS=bf16 METHODS=softmax FINDS=9");
  CHECK(finds.status == 1);
  CHECK(finds.verdict("racecheck-skyformer-bf16-0") == "FAILED");
  CHECK(finds.verdict("memcheck-ops-bf16") == "FAILED");
  const Check blind("CHECKS=sanitizers METHODS=softmax BLIND=1");
  CHECK(blind.verdict("memcheck-train-softmax-bf16") == "FAILED");
}

TEST_CASE("gpu-check: sanitizers and equal bits count only where steps were replayed") {
  const Check check("CHECKS='bits sanitizers' METHODS=softmax REPLAYED=0");
  CHECK(check.status == 1);
  CHECK(check.verdict("bits-softmax-bf16") == "FAILED");
  CHECK(check.verdict("memcheck-ops-fp32") == "FAILED");
  CHECK(check.verdict("memcheck-train-softmax-bf16") == "FAILED");
}

TEST_CASE("gpu-check: other bits, other losses, slow bf16 and one bad file of tests fail alone") {
  CHECK(Check("CHECKS=bits METHODS=softmax OTHER_BITS=x").verdict("bits-softmax-fp32") == "FAILED");
  const Check losses("CHECKS=goldens METHODS=softmax CUDA_LOSS=2.31");
  CHECK(losses.verdict("parity-softmax") == "FAILED");
  CHECK(losses.verdict("goldens") == "passed");
  const Check smoke("CHECKS='smoke goldens' METHODS=softmax NO_TENSOR_CORES=1");
  CHECK(smoke.status == 1);
  CHECK(smoke.verdict("tensor-cores") == "FAILED");
  CHECK(smoke.verdict("goldens") == "passed");
  const Check tests("CHECKS=tests STICKY=gemm_test SKIPS=layout_test");
  CHECK(tests.status == 1);
  CHECK(tests.verdict("test-tensor-gemm-gemm") == "FAILED");
  CHECK(tests.verdict("test-tensor-movement-layout") == "FAILED");
  CHECK(tests.verdict("test-attention-tiled-tiled_precision") == "passed");
  CHECK(tests.verdict("test-layout") == "none");  // has no CUDA half
}

TEST_CASE("gpu-check: what does not fit into a slice is out of time, then not run") {
  const Check slow("CHECKS=bench SLICE_SECONDS=2 SLEEP=4");
  CHECK(slow.status == 1);
  CHECK(slow.verdict("bench-bf16-2048") == "out of time");
  CHECK(slow.verdict("bench-fp32-2048") == "not run");
}

TEST_CASE("gpu-check runs checks side by side where none is timed") {
  const Folder met;
  const std::string meet = " METHODS=softmax MEET=" + met.path().string();
  // Two of them wait for each other; alone, the first would give up.
  const Check both("CHECKS=sanitizers JOBS=2" + meet);
  CAPTURE(both.said);
  CHECK(both.status == 0);
  CHECK(both.verdict("memcheck-ops-bf16") == "passed");
  CHECK(both.verdict("initcheck-ops-fp32") == "passed");
  const Folder alone;
  const Check timed("CHECKS=bench JOBS=2 ALL_SECONDS=3 MEET=" + alone.path().string());
  CHECK(timed.verdict("bench-bf16-2048") == "out of time");
  CHECK(timed.verdict("bench-fp32-2048") == "not run");
}

TEST_CASE("gpu-check refuses unknown slices and machines without a GPU") {
  const Check unknown("CHECKS='smoke test'");
  CHECK(unknown.status == 2);
  CHECK(unknown.said.find("got 'test'") != std::string::npos);
  const Check none("CHECKS=smoke NO_GPU=1");
  CHECK(none.status == 1);
  CHECK(none.said.find("no GPU answers") != std::string::npos);
}

TEST_CASE("gpu-check: the arena continues with copied runs, and keeps weights of that alone") {
  const auto holds = [](const Check& check, const std::string& command) {
    const std::string packed = (check.folder.path() / "out/arena.tar.gz").string();
    return std::system(("tar -xOzf " + packed + " " + command + " >/dev/null 2>&1").c_str()) == 0;
  };
  const Check first("CHECKS=arena MISSING=text ARENA='--seeds 3'");
  CAPTURE(first.said);
  CHECK(first.verdict("arena-data-text") == "not available");
  CHECK(first.verdict("arena") == "passed");
  CHECK(
      holds(first, "./asked | grep 'tasks listops,image,pathfinder,retrieval .*cuda .*--seeds 3'"));
  CHECK(holds(first, "./going/last.safetensors"));
  CHECK_FALSE(holds(first, "./done/last.safetensors"));
  const Check second("CHECKS=arena bash -c 'mkdir -p $OUT && cp " +
                     (first.folder.path() / "out/arena.tar.gz").string() + " $OUT && exec $0'");
  CAPTURE(second.said);
  CHECK(holds(second, "./asked | grep --max-count 1 'listops,image,text'"));
  CHECK(holds(second, "./asked | grep 'listops,image,pathfinder'"));  // of the first
}
