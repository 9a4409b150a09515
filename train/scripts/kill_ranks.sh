#!/usr/bin/env bash
# Kills ranks, or the whole job, at random moments of training, evaluation and checkpointing, and goes
# on each time; a run that came to its end must have the bits of one that was never killed.
#   kill_ranks.sh KILLS [DATA]
# The last line is "N passed, N failed". Needs mpirun.
set -u
kills=${1:-50} data=${2:-datasets}
program=${SKYTAPE_PROGRAM:-build/skytape}
scratch=$(mktemp -d)
passed=0 failed=0
trap 'rm -rf "$scratch"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none

train=("$program" train --task listops --data "$data" --steps 80 --batch 8 --threads 1 --log-every 5
  --set accumulate=4 --set max_length=128 --set eval_examples=64 --set width=16 --set ff_width=16
  --set eval_every=4 --set checkpoint_every=3)
tensors() { tail -c +$(($(od -An -t u8 -N8 "$1") + 9)) "$1"; } # of a checkpoint, without its times
same() {
  cmp <(tensors "$scratch/one/$1") <(tensors "$scratch/run/$1")
}
check() {
  if "${@:2}"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "== $1: FAILED"; fi
}

check "one process" "${train[@]}" --out "$scratch/one" 2>"$scratch/err"
killed=0 runs=0
while [ $killed -lt "$kills" ]; do
  mpirun -np 2 "${train[@]}" --resume --out "$scratch/run" >"$scratch/out" 2>"$scratch/err" &
  job=$!
  sleep $((RANDOM % 6)).$((RANDOM % 10))
  ranks=($(pgrep -P $job))
  case $((RANDOM % 4)) in
    0) victims=${ranks[0]:-} ;;
    1) victims=${ranks[1]:-} ;;
    2) victims=$job ;;
    3) victims="$job ${ranks[*]}" ;;
  esac
  hit=
  [ -n "$victims" ] && kill -9 $victims 2>/dev/null && killed=$((killed + 1)) && hit=1
  start=$SECONDS
  wait $job 2>/dev/null
  for rank in "${ranks[@]}"; do
    while kill -0 "$rank" 2>/dev/null && [ $((SECONDS - start)) -lt 60 ]; do sleep 0.1; done
  done
  [ -z "$hit" ] || check "kill $killed: everything has stopped within a minute" [ $((SECONDS - start)) -lt 60 ]
  if [ -e "$scratch/run/result.json" ]; then
    runs=$((runs + 1))
    for file in last.safetensors best.safetensors; do check "run $runs: $file" same $file; done
    rm -rf "$scratch/run"
  fi
done
check "the last run goes on" mpirun -np 2 "${train[@]}" --resume --out "$scratch/run" 2>"$scratch/err"
for file in last.safetensors best.safetensors; do check "the last run: $file" same $file; done
check "nothing is left to clean" [ -z "$(find "$scratch/run" -name '*.tmp')" ]
echo "$killed kills, $((runs + 1)) runs to their end"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
