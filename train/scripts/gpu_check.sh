#!/usr/bin/env bash
# make gpu-check: everything that only a GPU can show, in one command. Writes $OUT/gpu_check.md,
# $OUT/gpu_check.json and one log per check; exits 1 if a check failed.
#   B        build folder of a CUDA build          OUT      where reports go (default runs/gpu-check)
#   PEER     torch_lra.py to race against (optional), run with $PYTHON
#   GOLDENS  folder of reference vectors (default tests/goldens)
set -u
OUT=${OUT:-runs/gpu-check}
GOLDENS=${GOLDENS:-tests/goldens}
PYTHON=${PYTHON:-python3}
mkdir -p "$OUT"
if ! nvidia-smi -L >"$OUT/gpu.txt" 2>&1; then
  echo "gpu-check: no GPU answers on this machine (nvidia-smi -L failed)"
  exit 1
fi

names=() verdicts=() seconds=()
# check NAME COMMAND…: runs it into a log of its own and keeps the verdict.
check() {
  local name=$1 start=$SECONDS
  shift
  echo "== $name: $*"
  if "$@" >"$OUT/$name.log" 2>&1; then verdicts+=(passed); else verdicts+=(FAILED); fi
  names+=("$name")
  seconds+=($((SECONDS - start)))
  tail -n 2 "$OUT/$name.log"
  echo "== $name: ${verdicts[-1]} (${seconds[-1]} s)"
}

small=(--device cuda --attention all --n 256 --batch 2 --features 16 --steps 1)
check tests env SKYTAPE_PROGRAM="$PWD/$B/skytape" "$B/skytape_tests"
check goldens "$B/skytape" goldens --dir "$GOLDENS" --device cuda
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck initcheck; do
    check "sanitizer-$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$B/skytape" bench "${small[@]}"
  done
else
  echo "== sanitizer: compute-sanitizer is not on PATH, not run"
fi
for precision in fp32 tf32 bf16; do
  check "bench-$precision" "$B/skytape" bench --device cuda --precision $precision --attention all \
    --n 1024,2048,4096 --batch 32 --features 128 --steps 10 --json "$OUT/bench-$precision.json"
done

# What training on a GPU promises: replayed steps give the bits of direct ones, the same seed twice
# gives the same bits, and no tool finds a fault in a replay.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# train_run FOLDER FLAGS…: 60 steps of ListOps on the GPU.
train_run() {
  local folder=$scratch/$1
  shift
  "$B/skytape" train --task listops --device cuda --steps 60 --seed 7 --out "$folder" --force \
    --set eval_every=30 --set eval_examples=200 "$@"
}
# equal_weights A B: the two runs ended with the same bits; exits 1 and says so if not.
equal_weights() {
  cmp "$scratch/$1/weights" "$scratch/$2/weights"
}
# weights FOLDER: the checkpoint's numbers without its header, which names paths and times.
weights() {
  "$PYTHON" - "$scratch/$1/last.safetensors" "$scratch/$1/weights" <<'PY'
import struct, sys
data = open(sys.argv[1], "rb").read()
open(sys.argv[2], "wb").write(data[8 + struct.unpack("<Q", data[:8])[0]:])
PY
}
# same_bits METHOD PRECISION: direct, replayed, and replayed again.
same_bits() {
  train_run direct --attention "$1" --precision "$2" --no-graph &&
    train_run once --attention "$1" --precision "$2" && train_run again --attention "$1" --precision "$2" &&
    grep -q '"replayed": [1-9]' "$scratch/once/result.json" &&
    weights direct && weights once && weights again && equal_weights once direct && equal_weights once again
}
for method in softmax skyformer skeinformer linformer reformer; do
  for precision in fp32 bf16; do check "same-bits-$method-$precision" same_bits $method $precision; done
done
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck initcheck; do
    check "sanitizer-train-$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$B/skytape" train \
      --task listops --device cuda --steps 6 --batch 4 --out "$scratch/sanitized" --force --set eval_examples=8
  done
fi
# jobs_table JOBS: the table of a small grid with so many cells at a time.
jobs_table() {
  "$B/skytape" lra --tasks listops --attentions skyformer,linformer --seeds 2 --steps 40 --device cuda \
    --set eval_every=20 --set eval_examples=200 --jobs "$1" --out "$scratch/jobs$1"
}
same_table() {
  jobs_table 1 && jobs_table 4 && cmp "$scratch/jobs1/lra.csv" "$scratch/jobs4/lra.csv"
}
check jobs same_table
check listops-50000-predicted "$B/skytape" cost --tables roofline
if [ -n "${PEER:-}" ]; then
  check race "$PYTHON" train/scripts/race.py --peer "$PEER" --skytape "$B/skytape" --device cuda --out "$OUT"
fi

failed=0
{
  echo "# GPU check, $(date -u +%Y-%m-%d)"
  echo
  echo "$(cat "$OUT/gpu.txt"); $("$B/skytape" --version | head -1)"
  echo
  echo "| check | verdict | seconds |"
  echo "|---|---|---|"
  for i in "${!names[@]}"; do echo "| ${names[$i]} | ${verdicts[$i]} | ${seconds[$i]} |"; done
  for i in "${!names[@]}"; do
    case ${names[$i]} in bench-* | race | listops-*) printf '\n## %s\n\n```\n%s\n```\n' "${names[$i]}" "$(cat "$OUT/${names[$i]}.log")" ;; esac
  done
} >"$OUT/gpu_check.md"
{
  echo '{"checks": ['
  for i in "${!names[@]}"; do
    [ "$i" -eq 0 ] || echo ','
    printf '  {"name": "%s", "passed": %s, "seconds": %d}' "${names[$i]}" \
      "$([ "${verdicts[$i]}" = passed ] && echo true || echo false)" "${seconds[$i]}"
    [ "${verdicts[$i]}" = passed ] || failed=$((failed + 1))
  done
  echo
  echo ']}'
} >"$OUT/gpu_check.json"
echo "$((${#names[@]} - failed)) passed, $failed failed; $OUT/gpu_check.md"
[ "$failed" -eq 0 ]
