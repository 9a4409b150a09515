#!/usr/bin/env bash
# make gpu-check: everything that only a GPU can show. Checks come in slices of under ten minutes,
# what most hangs on first; each check has a separate limit, and its verdict is written as soon as
# it is known.
#   CHECKS   slices to run, in this order (default: all of SLICES below)
#   METHODS, PRECISIONS  of the checks that take each in turn, the benchmark's too (default: all)
#   BENCH_LENGTHS  sequence lengths of the benchmark (default: BENCH_LENGTHS of common.sh)
#   B        folder of a CUDA build, or of a bundle (make gpu-bundle), which also brings what a CPU
#            can compute beforehand: small data, the losses of a CPU
#   OUT      where reports go (default runs/gpu-check): gpu_check.md, verdicts.jsonl, and
#            gpu_check.tar.gz, which holds both and all logs and figures; packed every few seconds
#   GOLDENS  folder of reference vectors (default: the bundle's, or tests/goldens)
#   DATA     prepared data sets for the long training; made where they are missing (default datasets)
#   ARENA    flags of the slice arena's grid (--seeds 3, --budget 2m, --set conv_width=0, …); it continues
#            from OUT/arena.tar.gz if that was copied here, and leaves it for the next time
#   PEER     the baseline to compare with (default: train/lab/baseline's), run with PYTHON; its methods PEERS
#   SLICE_SECONDS, ALL_SECONDS  time of a slice (default 570) and of all; what does not fit is "not run"
#   JOBS     checks that run side by side where none is timed: slices tests, goldens, bits
#            and sanitizers (default: half of the cores, at most 8); those of races would be too slow
# Exit status 1: a check failed, ran out of time or was not run. One for which this machine lacks
# something is "not available", which is no failure unless nothing passed.
set -u
source train/scripts/common.sh

SLICES="smoke tests kernels bench race train arena goldens bits races sanitizers long"
: "${CHECKS:=$SLICES}" "${OUT:=runs/gpu-check}" "${B:=build/gpu-bundle}" "${DATA:=datasets}"
: "${PYTHON:=python3}" "${SLICE_SECONDS:=570}" "${ALL_SECONDS:=86400}" "${PRECISIONS:=bf16 fp32 tf32}"
# Those with a stated goal first.
: "${PEERS:=softmax_sdpa skyformer linformer nystrom kernelized performer skeinformer informer vmean softmax_plain}"
cores=$(nproc)
: "${JOBS:=$((cores < 2 ? 1 : cores > 16 ? 8 : cores / 2))}"
PROGRAM=$(realpath -m "$B/skytape-lab") # it has the commands of skytape, too
# in_bundle PATH: the bundle's, if it has one.
in_bundle() { [ -e "$B/$1" ] && echo "$B/$1"; }
: "${GOLDENS:=$(in_bundle goldens || echo tests/goldens)}" "${PEER:=train/lab/baseline/torch_baseline.py}"
PARITY=$(in_bundle parity) SMALL=$(in_bundle datasets)

# stop STATUS WORDS
stop() {
  echo "gpu-check: $2" >&2
  exit "$1"
}
for slice in $CHECKS; do
  [[ " $SLICES " == *" $slice "* ]] || stop 2 "CHECKS: expected some of '$SLICES', got '$slice'"
done
[ -x "$PROGRAM" ] || stop 2 "B: no program $PROGRAM; expected the folder of a CUDA build or a bundle"
mkdir -p "$OUT"
gpu=$(nvidia-smi -L 2>&1) || stop 1 "no GPU answers on this machine (nvidia-smi -L failed)"

scratch=$(mktemp -d)
results=$scratch/results # what gpu_check.tar.gz packs
export TORCHINDUCTOR_CACHE_DIR=$scratch/inductor
mkdir -p "$results/logs"
: >"$OUT/verdicts.jsonl"
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$scratch"' EXIT
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
nvidia-smi dmon -d 30 >/dev/null 2>&1 & # without a program that has it open the driver starts anew

# A portable program finds cuBLAS in the toolkit's folder or where the loader looks anyway; else another
# toolkit may have it, or a Python wheel.
cublas=$(ldd "$PROGRAM" | sed -n 's/^[[:space:]]*\(libcublas\.so[^ ]*\) => not found.*/\1/p')
while [ -n "$cublas" ] && read -r folder; do
  [ -e "$folder/$cublas" ] || continue
  export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  echo "gpu-check: $cublas from $folder"
  break
done < <(ls -d "${CUDA_HOME:-/usr/local/cuda}"/lib64 /usr/local/cuda*/lib64 2>/dev/null
  "$PYTHON" -c 'import glob, sys
for p in sys.path: print(*glob.glob(p + "/nvidia/cublas/lib") + glob.glob(p + "/nvidia/cu*/lib"), sep="\n")' 2>/dev/null)

# ---- verdicts and report ---------------------------------------------------------------------

packed=-60 # when, in seconds of this run
report() {
  packed=$SECONDS
  {
    echo "# GPU check, $(date -u +%Y-%m-%d)"
    echo
    echo "$gpu; $("$PROGRAM" --version 2>&1 | head -1)"
    echo
    echo "| check | verdict | seconds |"
    echo "|---|---|---|"
    sed -n 's/^{"name": "\(.*\)", "verdict": "\(.*\)", "seconds": \(.*\)}$/| \1 | \2 | \3 |/p' "$OUT/verdicts.jsonl"
    local log name
    for log in "$results"/logs/{tensor-cores,kernels-*,bench-*,race,listops-skytape,arena,listops-50000}.log; do
      [ -e "$log" ] || continue
      name=${log##*/}
      printf '\n## %s\n\n' "${name%.log}"
      tail -n 80 "$log" | sed 's/^/    /'
    done
  } >"$OUT/gpu_check.md"
  cp "$OUT/gpu_check.md" "$OUT/verdicts.jsonl" "$results/"
  tar -C "$results" -czf "$OUT/packed.tmp" . && mv "$OUT/packed.tmp" "$OUT/gpu_check.tar.gz"
}

failed=0 passed=0
# verdict NAME WORDS SECONDS
verdict() {
  case $2 in
    passed) passed=$((passed + 1)) ;;
    "not available") ;;
    *) failed=$((failed + 1)) ;;
  esac
  printf '{"name": "%s", "verdict": "%s", "seconds": %d}\n' "$1" "$2" "$3" >>"$OUT/verdicts.jsonl"
  echo "== $1: $2 ($3 s)"
  # A run that is cut short loses its last seconds, not its first minutes.
  [ $((SECONDS - packed)) -lt 5 ] || report
}

# begin NAME LIMIT COMMAND…: starts it, or an exported function, once fewer than JOBS checks run, for
# LIMIT seconds at most, or what is left of the slice, with a log, a folder `own` of its own and its
# share of the cores. Exit status 77 says that this machine lacks what the check needs.
declare -A name_of=() begun=() # of the checks that run, by process
own=
begin() {
  local name=$1 limit=$2 left threads=$((cores < JOBS ? 1 : cores / JOBS))
  shift 2
  while [ ${#name_of[@]} -ge "$JOBS" ]; do end_one; done
  left=$((slice_end - SECONDS))
  if [ "$left" -le 0 ]; then
    verdict "$name" "not run" 0
    return 1
  fi
  if declare -F -- "$1" >/dev/null; then set -- bash -c '"$@"' - "$@"; fi
  mkdir -p "$scratch/$name"
  own=$scratch/$name OMP_NUM_THREADS=$threads timeout -k 10 "$((limit < left ? limit : left))" "$@" \
    >"$results/logs/$name.log" 2>&1 &
  name_of[$!]=$name begun[$!]=$SECONDS
}

# end_one: waits for one of them and gives its verdict; its exit status.
end_one() {
  local pid status name seconds
  wait -n -p pid "${!name_of[@]}"
  status=$?
  name=${name_of[$pid]} seconds=$((SECONDS - begun[$pid]))
  unset "name_of[$pid]" "begun[$pid]"
  rm -rf "${scratch:?}/$name"
  tail -n 2 "$results/logs/$name.log"
  case $status in
    0) verdict "$name" passed "$seconds" ;;
    77) verdict "$name" "not available" "$seconds" ;;
    124 | 137) verdict "$name" "out of time" "$seconds" ;;
    *) verdict "$name" FAILED "$seconds" ;;
  esac
  return "$status"
}
end_all() { while [ ${#name_of[@]} -gt 0 ]; do end_one; done; }

# check NAME LIMIT COMMAND…: one by itself. Fails unless it passed.
check() {
  end_all
  JOBS=1 begin "$@" && end_one
}

# small_data: makes sure of $SMALL.
small_data() {
  [ -z "$SMALL" ] || return 0
  SMALL=$scratch/datasets
  check small-data 60 "$PROGRAM" data --task listops --limit 1500 --data "$SMALL"
}

# ---- slices ----------------------------------------------------------------------------------

slice_smoke() {
  check version 90 "$PROGRAM" --version &&
    check first-step 180 "$PROGRAM" bench --device cuda --attention skyformer --n 256 --batch 2 \
      --features 16 --steps 2 --no-rates || return 1
  check tensor-cores 120 "$PROGRAM" info gpu --require-tensor-cores
  return 0
}

# tests FILE: here is a GPU, and no case may be skipped for want of one.
tests() {
  OMP_WAIT_POLICY=passive SKYTAPE_PROGRAM=$PROGRAM "$B/skytape_tests" -sf="*$1" 2>&1 | tee "$own/said"
  [ "${PIPESTATUS[0]}" -eq 0 ] && ! grep -q 'CUDA cases skipped' "$own/said"
}
# A fault that sticks to a process fails the rest of it: each file of tests has one of its own.
slice_tests() {
  local file name
  while read -r file; do
    name=${file#tests/} name=${name%_test.cpp}
    begin "test-${name//\//-}" 150 tests "$file"
  done < <(cuda_test_files)
}

# parity METHOD: the losses of the first steps on the GPU are those of the CPU: the same draws, other
# roundings.
parity() {
  local cpu=$PARITY/$1.jsonl
  if [ -z "$PARITY" ]; then
    cpu=$own/cpu/metrics.jsonl
    small_run "$PROGRAM" "$SMALL" "$own/cpu" "$1" cpu fp32 || return 1
  fi
  small_run "$PROGRAM" "$SMALL" "$own/cuda" "$1" cuda fp32 || return 1
  paste <(losses "$cpu") <(losses "$own/cuda/metrics.jsonl") | awk '
    NF != 2 { print "a loss is missing in step " NR; bad = 1; next }
    { d = $1 - $2; if (d < 0) d = -d; print "step " NR ": cpu " $1 ", cuda " $2; if (!(d <= 1e-3 * $1)) bad = 1 }
    END { if (NR != 8) { print "expected 8 steps, got " NR; bad = 1 }; if (bad) print "the losses differ"; exit bad }'
}
slice_goldens() {
  local method
  small_data
  begin goldens 300 "$PROGRAM" goldens --dir "$GOLDENS" --device cuda
  for method in $METHODS; do begin "parity-$method" 60 parity "$method"; done
}

# replayed LOG: fails unless the run that wrote the log replayed steps.
replayed() { grep -q 'how steps ran: [1-9][0-9]* replayed' "$1" || { echo "no step was replayed"; return 1; }; }
# same_bits METHOD PRECISION: direct steps, replayed ones, and these again, give the same weights.
same_bits() {
  local name flags=(--no-graph)
  for name in direct once again; do
    small_run "$PROGRAM" "$SMALL" "$own/$name" "$1" cuda "$2" "${flags[@]}" 2>&1 | tee "$own/$name.log"
    [ "${PIPESTATUS[0]}" -eq 0 ] || return 1
    flags=()
  done
  replayed "$own/once.log" || return 1
  for name in direct again; do
    cmp <(tensors "$own/once/last.safetensors") <(tensors "$own/$name/last.safetensors") || return 1
  done
}
slice_bits() {
  local method precision
  small_data
  for precision in $PRECISIONS; do
    for method in $METHODS; do begin "bits-$method-$precision" 60 same_bits "$method" "$precision"; done
  done
}

# Every kernel of the steps that have stated goals. The tables are in the logs, each method's next to
# the sums at the end.
slice_kernels() {
  local kernels=("$PROGRAM" bench --kernels --device cuda --batch 32)
  check kernels-bf16 120 "${kernels[@]}" --precision bf16 --n 2048 --features 128 --steps 20 \
    --attention skyformer,softmax,linformer,kernelized,nystrom,informer,routing,bigbird,blockbert,sparse_transformer,vmean \
    --json "$results/kernels-bf16.json"
  check kernels-tiny 60 "${kernels[@]}" --precision bf16 --n 64 --recipe skytape --steps 20 \
    --attention skyformer --json "$results/kernels-tiny.json"
  check kernels-fp32 90 "${kernels[@]}" --precision fp32 --n 2048 --features 128 --steps 5 \
    --attention softmax,bigbird,blockbert,reformer --json "$results/kernels-fp32.json"
}

slice_bench() {
  local n precision
  for n in $BENCH_LENGTHS; do
    for precision in $PRECISIONS; do
      # shellcheck disable=SC2086  # BENCH_CASES is a list
      check "bench-$precision-$n" 150 "$PROGRAM" bench --device cuda --precision $precision \
        $BENCH_CASES --n "$n" --steps 10 --json "$results/bench-$precision-$n.json" \
       
    done
  done
}

# All of the baseline's methods in one call: they compile in parallel and are timed alone.
race() {
  if ! timeout 90 "$PYTHON" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    echo "$PYTHON has no torch that sees the GPU"
    return 77
  fi
  "$PYTHON" train/lab/baseline/race.py --peer "$PEER" --skytape "$PROGRAM" --device cuda --rounds 1 \
    --methods "${PEERS// /,}" --out "$results/race"
}
slice_race() { check race 400 race; }

# same_table: a grid with four cells at a time gives the table of one at a time.
same_table() {
  local jobs
  for jobs in 1 4; do
    "$PROGRAM" lra --tasks listops --attentions skyformer,linformer --seeds 2 --steps 40 \
      --device cuda --data "$SMALL" --set eval_every=20 --jobs $jobs --out "$own/jobs$jobs" ||
      return 1
  done
  cmp "$own/jobs1/lra.csv" "$own/jobs4/lra.csv"
}
# to_45_percent OUT: the main training as a user types it, and when it reached 45 % of dev.
to_45_percent() {
  "$PROGRAM" train --task listops --data "$DATA" --recipe skytape --device cuda --precision bf16 \
    --out "$1" --force || return 1
  sed -n '/"kind": *"eval"/s/.*"accuracy": *\([^,}]*\).*"step": *\([^,}]*\).*"train_seconds": *\([^,}]*\).*/\1 \2 \3/p' \
    "$1/metrics.jsonl" | awk '
    $1 > 0.45 && !reached++ { printf "above 45 %% of dev after %.1f s of training, step %d\n", $3, $2 }
    END { if (!reached) print "never above 45 % of dev" }'
}
slice_train() {
  check listops-data 90 "$PROGRAM" data --task listops --data "$DATA"
  check listops-skytape 120 to_45_percent "$results/listops-skytape"
  small_data
  check grid-jobs 90 same_table
}
# data_of TASK: found, or generated; 77 where it can be neither.
data_of() { "$PROGRAM" data --task "$1" --data "$DATA" || return 77; }
# Recipe skytape on every task whose data are here, what most hangs on first, several at a time. What
# is not finished in time keeps its state, in arena.tar.gz.
slice_arena() {
  local task tasks='' runs=$scratch/arena-runs
  mkdir -p "$runs"
  [ ! -e "$OUT/arena.tar.gz" ] || tar -C "$runs" -xzf "$OUT/arena.tar.gz"
  for task in listops image text pathfinder retrieval; do
    check "arena-data-$task" 120 data_of "$task" && tasks+=,$task
  done
  # shellcheck disable=SC2086  # ARENA is a list
  check arena 480 "$PROGRAM" lra --tasks "${tasks#,}" --attentions skyformer --jobs 5 --device cuda \
    --data "$DATA" --out "$runs" ${ARENA:-}
  check arena-page 60 "$PROGRAM" report --runs "$runs" --out "$results/arena"
  find "$runs" -name result.json -execdir sh -c 'rm -f ./*.safetensors' \; # finished: weights stay here
  tar -C "$runs" -czf "$OUT/arena.tar.gz" .
}
slice_long() {
  check listops-data 90 "$PROGRAM" data --task listops --data "$DATA"
  check listops-50000 400 "$PROGRAM" train --task listops --data "$DATA" --recipe skyformer \
    --attention skyformer --steps 50000 --device cuda --precision bf16 --set group_by_length=1 \
    eval_every=5000 --out "$results/listops-50000" --force
}

# sanitized TOOL FLAGS… PROGRAM ARGUMENTS…: 77 where the tool is missing or refuses the device. The tool
# watches the program itself and none that it starts, and it counts only if it says what it saw.
sanitized() {
  local tool=$1 log=$own/sanitized.log status
  shift
  local of_ours=() # of cuBLAS's kernels racecheck finds hazards that are none
  [ "$tool" != racecheck ] || of_ours=(--kernel-name kns=skytape)
  command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not on PATH"; return 77; }
  compute-sanitizer --tool "$tool" "${of_ours[@]}" --error-exitcode 9 "$@" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  grep -q -e 'Device not supported' -e 'Unable to find injection library' "$log" && return 77
  grep -q 'SUMMARY: 0 ' "$log" || { echo "the tool reports no clean summary"; return 1; }
  return "$status"
}
# sanitized_ops TOOL PRECISION: every method, op by op and replayed, at a ragged length.
sanitized_ops() {
  local json=$own/sanitized.json
  sanitized "$1" "$PROGRAM" bench --device cuda --attention "${METHODS// /,}" --precision "$2" --n 250 \
    --batch 2 --features 16 --steps 1 --no-rates \
    --json "$json" || return $?
  if grep '"steps_replayed": 0' "$json" || ! grep -q '"steps_replayed": [1-9]' "$json"; then
    echo "a method's step was not replayed"
    return 1
  fi
}
# sanitized_training TOOL PRECISION METHOD: replayed steps with dropout and padding.
sanitized_training() {
  local arguments
  small_training "$SMALL" "$own/sanitized" "$3" cuda "$2"
  sanitized "$1" "$PROGRAM" "${arguments[@]}" || return $?
  replayed "$own/sanitized.log"
}
# race_free METHOD PRECISION SKIP: no races in 100 kernels of ours behind the first SKIP, of a
# model's making and its first step.
race_free() {
  sanitized racecheck --launch-skip "$3" --launch-count 100 "$PROGRAM" train --task listops \
    --recipe skyformer --data "$SMALL" --out "$own/races" --force --attention "$1" --device cuda \
    --precision "$2" --seed 7 --steps 1000 --stop-after 1 --batch 2 --set max_length=250
}
# One at a time: side by side none of them ended within a minute. Each method stands for a group that
# has kernels in common, what the most methods run first; the last ones' are the same in all precisions.
slice_races() {
  local precision method skip methods
  small_data
  for precision in $PRECISIONS; do
    methods="skyformer softmax bigbird"
    [ "$precision" != bf16 ] || methods+=" informer routing nystrom linformer reformer skeinformer performer sinkhorn"
    for method in $methods; do
      for skip in 0 100; do check "racecheck-$method-$precision-$skip" 60 race_free "$method" "$precision" "$skip"; done
    done
  done
}
slice_sanitizers() {
  local precision method
  small_data
  for precision in $PRECISIONS; do
    begin "memcheck-ops-$precision" 300 sanitized_ops memcheck "$precision"
    # Each precision has kernels of its own for tiled attention and for the inverse.
    for method in softmax skyformer $([ "$precision" != bf16 ] || echo reformer); do
      begin "memcheck-train-$method-$precision" 150 sanitized_training memcheck "$precision" "$method"
    done
  done
  # In fp32: elsewhere cuBLAS writes in ways that the tool does not see before its version 2025.4.
  begin initcheck-ops-fp32 300 sanitized_ops initcheck fp32
}

# The variables that the functions need in the processes that `check` starts.
METHODS=$(tr , ' ' <<<"${METHODS:-$("$PROGRAM" info attention --names 2>/dev/null)}" | xargs)
export B PROGRAM PYTHON PEER PEERS SMALL PARITY DATA METHODS results
# shellcheck disable=SC2046  # a list
export -f $(compgen -A function)
for slice in $CHECKS; do
  slice_end=$((SECONDS + SLICE_SECONDS))
  slice_end=$((slice_end < ALL_SECONDS ? slice_end : ALL_SECONDS))
  if ! "slice_$slice" && [ "$slice" = smoke ]; then
    echo "gpu-check: the program cannot take a step here: nothing else is worth trying"
    break
  fi
done
end_all
report
echo "$passed passed, $failed failed; $OUT/gpu_check.md"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
