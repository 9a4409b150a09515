#!/usr/bin/env bash
# Kills ranks, or the whole job, in training, evaluation and checkpointing, and resumes each time; a
# run that came to its end must have the bits of one that was never killed.
#   kill_ranks.sh [KILLS]
# The last line is "N passed, N failed". Needs mpirun, or the one that SKYTAPE_MPIRUN names.
set -u
source train/scripts/common.sh
kills=${1:-50}
program=${SKYTAPE_PROGRAM:-build/skytape} mpirun=${SKYTAPE_MPIRUN:-mpirun}
scratch=$(mktemp -d)
run=$scratch/run
passed=0 failed=0
trap 'rm -rf "$scratch"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none

eval_every=4
train=("$program" train --task tsv --data "$scratch/data" --steps 200 --batch 8 --threads 1 --log-every 1
  --set accumulate=4 --set max_length=64 --set width=16 --set ff_width=16
  --set eval_every=$eval_every --set checkpoint_every=3)
same() { cmp <(tensors "$scratch/one/$1") <(tensors "$run/$1"); }
check() {
  if "${@:2}"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "== $1: FAILED"; fi
}
both_files() { for file in last.safetensors best.safetensors; do check "$1: $file" same $file; done; }
# The step before an evaluation is known, the evaluation is not yet.
evaluates() {
  local step
  step=$(tail -n 1 "$run/metrics.jsonl" 2>/dev/null | sed -n '/"kind": *"train"/s/.*"step": *\([0-9]*\).*/\1/p')
  [ -n "$step" ] && [ $((step % eval_every)) -eq 0 ]
}
trains() { grep -q "^step " "$scratch/err"; } # this job, a step at least
writes() { compgen -G "$run/*.tmp" >/dev/null; }
# Waits until something is so, or the job has ended.
until_it() { while kill -0 "$job" 2>/dev/null && ! "$1"; do sleep 0.005; done; }

# Sums modulo 3, as texts: small enough that a job is soon in its first step.
for i in $(seq 1500); do echo "$(((i * 7 + i / 9) % 3))"$'\t'"$((i * 7)) and $((i / 9)) of $i"; done >"$scratch/own.tsv"
check "the data" "$program" data --task tsv --from "$scratch/own.tsv" --data "$scratch/data" >"$scratch/out" 2>"$scratch/err"
check "one process" "${train[@]}" --out "$scratch/one" >"$scratch/out" 2>"$scratch/err"
killed=0 runs=0
declare -A hits=([starting]=0 [training]=0 [evaluating]=0 [checkpointing]=0)
while [ $killed -lt "$kills" ]; do
  "$mpirun" -np 2 "${train[@]}" --resume --out "$run" >"$scratch/out" 2>"$scratch/err" &
  job=$!
  # Most often when it trains again: somewhere, in an evaluation, or while a file is being written.
  when=$((RANDOM % 7))
  if [ $when -gt 0 ]; then until_it trains; fi
  sleep $((RANDOM % 2)).$((RANDOM % 10))$((RANDOM % 10))
  ranks=($(pgrep -f -- "^$program train .*--out $run\$"))
  case $when in
    3 | 4) until_it evaluates ;;
    5 | 6) while kill -0 "$job" 2>/dev/null && ! writes; do :; done ;;
  esac
  case $((RANDOM % 4)) in
    0) victims=${ranks[0]:-} ;;
    1) victims=${ranks[1]:-} ;;
    2) victims=$job ;;
    3) victims="$job ${ranks[*]}" ;;
  esac
  moment=
  if writes; then moment=checkpointing; fi
  hit=
  [ -n "$victims" ] && kill -9 $victims 2>/dev/null && killed=$((killed + 1)) && hit=1
  start=$SECONDS
  wait $job 2>/dev/null
  for rank in "${ranks[@]}"; do
    while kill -0 "$rank" 2>/dev/null && [ $((SECONDS - start)) -lt 60 ]; do sleep 0.1; done
  done
  if [ -n "$hit" ]; then
    check "kill $killed: everything has stopped within a minute" [ $((SECONDS - start)) -lt 60 ]
    if ! trains; then moment=starting
    elif [ -n "$moment" ] || writes; then moment=checkpointing
    elif evaluates; then moment=evaluating
    else moment=training; fi
    hits[$moment]=$((hits[$moment] + 1))
  fi
  if [ -e "$run/result.json" ]; then
    runs=$((runs + 1))
    both_files "run $runs"
    rm -rf "$run"
  fi
done
check "the last run resumes" "$mpirun" -np 2 "${train[@]}" --resume --out "$run" >"$scratch/out" 2>"$scratch/err"
both_files "the last run"
check "nothing is left to clean" [ -z "$(find "$run" -name '*.tmp')" ]
echo "$killed kills: ${hits[training]} in training, ${hits[evaluating]} in an evaluation," \
  "${hits[checkpointing]} while a checkpoint was written, ${hits[starting]} before the first step;" \
  "$((runs + 1)) runs to their end"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
