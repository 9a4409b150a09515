#!/usr/bin/env bash
# make gpu-check: runs what only a GPU can show, the commands of gpu_commands.sh, each with a limit on
# its time. What they have written is packed whenever one ends: a call that is cut short loses little.
#   CHECKS       groups of commands to run, in this order (default: all)
#   B            folder of a CUDA build or of a bundle (make gpu-bundle; default build/gpu-bundle)
#   OUT          gets verdicts.tsv and gpu_check.tar.gz with all logs and figures (default
#                runs/gpu-check)
#   ALL_SECONDS  time of all; a command that begins later is "not run" (default: no limit)
#   JOBS         commands that run in parallel where none is timed (default: half of the cores,
#                at most 8)
#   COMMANDS     another file of commands
# Exit status 1: a command failed, ran out of time or was not run. One for which this machine lacks
# something is "not available", which is no failure unless nothing passed.
set -u
source train/scripts/common.sh
: "${OUT:=runs/gpu-check}" "${B:=build/gpu-bundle}" "${ALL_SECONDS:=86400}"
: "${JOBS:=$(($(nproc) > 16 ? 8 : ($(nproc) + 1) / 2))}" "${COMMANDS:=train/scripts/gpu_commands.sh}"
LAB=$(realpath -m "$B/skytape-lab") TESTS=$(realpath -m "$B/skytape_tests") # LAB has skytape's commands, too
stop() { echo "gpu-check: $2" >&2; exit "$1"; }
[ -x "$LAB" ] || stop 2 "B: no program $LAB; expected the folder of a CUDA build or a bundle"
missing=$(ldd "$LAB" | sed -n 's/^[[:space:]]*\([^ ]*\) => not found.*/\1/p' | xargs)
[ -z "$missing" ] || stop 2 "$LAB needs $missing; LD_LIBRARY_PATH is to name the folder"
gpu=$(nvidia-smi -L 2>&1) || stop 1 "no GPU answers on this machine (nvidia-smi -L failed)"
scratch=$(mktemp -d) || exit 1
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin # for compute-sanitizer
nvidia-smi dmon -d 30 >/dev/null 2>&1 &      # keeps the driver loaded: else each command starts it anew
keeper=$!
disown

mkdir -p "$OUT"
RESULTS=$scratch/results
mkdir -p "$RESULTS/logs"
trap 'kill "$keeper" $(jobs -p) 2>/dev/null; rm -rf "$scratch"' EXIT
echo "$gpu; $("$LAB" --version 2>&1 | head -1)" >"$RESULTS/machine.txt"
: >"$RESULTS/verdicts.tsv"

# verdict NAME WORDS SECONDS: notes it, and packs what there is.
verdict() {
  (
    flock 9 # one packs at a time: an older archive must not replace a newer one
    printf '%s\t%s\t%s\n' "$@" >>"$RESULTS/verdicts.tsv"
    echo "== $1: $2 ($3 s)"
    cp "$RESULTS/verdicts.tsv" "$OUT/"
    tar -C "$RESULTS" -czf "$OUT/gpu_check.tar.gz.part" . 2>/dev/null # others may still write
    mv "$OUT/gpu_check.tar.gz.part" "$OUT/gpu_check.tar.gz"
  ) 9>"$scratch/lock"
}
# limited NAME SECONDS COMMAND…: runs a command or function.
limited() {
  local name=$1 limit=$2 left=$((ALL_SECONDS - SECONDS)) start=$SECONDS status words=FAILED
  shift 2
  if [ "$left" -le 0 ]; then
    verdict "$name" "not run" 0
    return 1
  fi
  timeout -k 10 "$((limit < left ? limit : left))" bash -c '"$@"' - "$@" >"$RESULTS/logs/$name.log" 2>&1
  status=$?
  case $status in 0) words=passed ;; 77) words="not available" ;; 124) words="out of time" ;; esac
  # 137 is a kill: by the limit above, or by the system, for memory.
  if [ "$status" = 137 ]; then [ $((SECONDS - start)) -ge "$limit" ] && words="out of time" || words=killed; fi
  tail -n 2 "$RESULTS/logs/$name.log"
  verdict "$name" "$words" $((SECONDS - start))
  return "$status"
}
# run NAME SECONDS COMMAND…: alone.  beside NAME SECONDS COMMAND…: in parallel with others.
run() {
  wait
  limited "$@"
}
beside() {
  while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do wait -n; done
  OMP_NUM_THREADS=$((($(nproc) + JOBS - 1) / JOBS)) limited "$@" &
}

# shellcheck source=/dev/null
source "$COMMANDS"
: "${CHECKS:=$ALL_CHECKS}"
for check in $CHECKS; do
  [[ " $ALL_CHECKS " == *" $check "* ]] || stop 2 "CHECKS: expected some of '$ALL_CHECKS', got '$check'"
done
export B LAB TESTS RESULTS OUT
export DATA GOLDENS PRECISIONS BENCH_LENGTHS PYTHON PEER ARENA SMALL # as gpu_commands.sh sets them
# shellcheck disable=SC2046  # a list
export -f $(compgen -A function)
for check in $CHECKS; do "check_$check"; done
wait
cp "$RESULTS/verdicts.tsv" "$OUT/"
passed=$(grep -c $'\tpassed\t' "$OUT/verdicts.tsv")
failed=$(grep -cv -e $'\tpassed\t' -e $'\tnot available\t' "$OUT/verdicts.tsv")
echo "$passed passed, $failed failed; $OUT/gpu_check.tar.gz"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
