#!/usr/bin/env bash
# make gpu-check: everything that only a GPU can show, in one command. Writes $OUT/gpu_check.md,
# $OUT/gpu_check.json and one log per check; exits 1 if a check failed.
#   B        build folder of a CUDA build          OUT      where reports go (default runs/gpu-check)
#   PEER     torch_lra.py to bench beside (optional), run with $PYTHON
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
if [ -n "${PEER:-}" ]; then
  check peer-eager "$PYTHON" "$PEER" --attn all --n 2048 --batch 32 --features 128 --device cuda
  check peer-compiled-bf16 "$PYTHON" "$PEER" --attn all --n 2048 --batch 32 --features 128 --device cuda --amp bf16 --compile
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
    case ${names[$i]} in bench-* | peer-*) printf '\n## %s\n\n```\n%s\n```\n' "${names[$i]}" "$(cat "$OUT/${names[$i]}.log")" ;; esac
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
