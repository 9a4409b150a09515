# shellcheck shell=bash disable=SC2034,SC2154
# The commands of gpu_check.sh, in groups: a function each, what most hangs on first.
#   DATA     prepared data sets for training; made where they are missing (default datasets)
#   GOLDENS  folder of reference vectors (default: the bundle's, or tests/goldens)
#   PRECISIONS, BENCH_LENGTHS  of the benchmark and the sanitizers
#   PYTHON, PEER  interpreter with PyTorch, and another baseline's file, for the group race
#   ARENA    flags of the grid (default --attentions skyformer --jobs 5); it continues from
#            OUT/arena.tar.gz if that was copied there, and leaves it for the next time
#   TASKS    of the grid (default: all five), as far as their data are at hand
ALL_CHECKS="smoke tests steps kernels bench race real lengths train arena goldens races sanitizers long"
: "${DATA:=datasets}" "${PYTHON:=python3}" "${PEER:=train/lab/baseline/torch_baseline.py}"
: "${PRECISIONS:=bf16 fp32 tf32}" "${BENCH_LENGTHS:=2048 1024 4096}"
[ -n "${GOLDENS:-}" ] || GOLDENS=$([ -e "$B/goldens" ] && echo "$B/goldens" || echo tests/goldens)
SMALL=$B/datasets # a few examples of ListOps, which a bundle brings

# The rest cannot run where one step cannot.
check_smoke() {
  run smoke 180 "$LAB" bench --device cuda --attention skyformer --n 256 --batch 2 \
    --features 16 --steps 2 --no-rates || exit 1
  run tensor-cores 120 "$LAB" info gpu --require-tensor-cores
}

# cuda_tests ARGUMENTS…: here is a GPU, and no case may be skipped for want of one.
cuda_tests() {
  local said=$RESULTS/said.$BASHPID
  OMP_WAIT_POLICY=passive SKYTAPE_PROGRAM=$LAB "$TESTS" "$@" | tee "$said"
  [ "${PIPESTATUS[0]}" -eq 0 ] && ! grep -q 'CUDA cases skipped' "$said"
}
# A fault that sticks to a process fails the rest of it: each file of tests has one of its own.
check_tests() {
  local file name
  while read -r file; do
    [ "$file" != tests/train/step/gpu_steps_test.cpp ] || continue # they are the group steps
    name=${file#tests/} name=${name%_test.cpp}
    beside "test-${name//\//-}" 150 cuda_tests -sf="*$file" -tse=gpu
  done < <(cuda_test_files)
}
check_steps() { run steps 400 cuda_tests -ts=gpu; }
check_goldens() { run goldens 300 "$LAB" goldens --dir "$GOLDENS" --device cuda; }

# Every kernel of the steps that have stated goals.
check_kernels() {
  local kernels=("$LAB" bench --kernels --device cuda --batch 32)
  run kernels-bf16 120 "${kernels[@]}" --precision bf16 --n 2048 --features 128 --steps 20 \
    --attention skyformer,softmax,linformer,kernelized,nystrom,informer,routing,bigbird,blockbert,sparse_transformer,vmean \
    --json "$RESULTS/kernels-bf16.json"
  run kernels-tiny 60 "${kernels[@]}" --precision bf16 --n 64 --recipe skytape --steps 20 \
    --attention skyformer --json "$RESULTS/kernels-tiny.json"
  run kernels-fp32 90 "${kernels[@]}" --precision fp32 --n 2048 --features 128 --steps 5 \
    --attention softmax,bigbird,blockbert,reformer --json "$RESULTS/kernels-fp32.json"
}
check_bench() {
  local n precision
  for n in $BENCH_LENGTHS; do
    for precision in $PRECISIONS; do
      run "bench-$precision-$n" 150 "$LAB" bench --device cuda --precision "$precision" --attention all \
        --batch 32 --features 128 --n "$n" --steps 10 --json "$RESULTS/bench-$precision-$n.json"
    done
  done
}
# All of the baseline's methods in one call: they compile in parallel and are timed alone.
has_torch() { "$PYTHON" -c 'import torch; assert torch.cuda.is_available()'; }
race() {
  has_torch || return 77
  "$PYTHON" train/lab/baseline/race.py --peer "$PEER" --skytape "$LAB" --device cuda --rounds 1 --methods \
    softmax_sdpa,skyformer,linformer,nystrom,kernelized,performer,skeinformer,informer,vmean,softmax_plain \
    --out "$RESULTS/race"
}
check_race() { run race 400 race; }

# BERT-base and MiniLM beside PyTorch, 16,384 tokens a batch; attention alone beside its fused kernels.
REAL="bert-base:512:softmax_sdpa:256 bert-base:2048:softmax_sdpa,linformer:256 bert-base:8192:softmax_sdpa,linformer:256
  bert-base:2048:skyformer:128 bert-base:8192:skyformer:128 minilm:512:softmax_sdpa:256 minilm:2048:softmax_sdpa:256"
# real_case SIZE N METHODS FEATURES [--forward]
real_case() {
  has_torch || return 77
  "$PYTHON" train/lab/baseline/race.py --skytape "$LAB" --device cuda --rounds 1 --steps 20 --size "$1" \
    --n "$2" --batch $((16384 / $2)) --methods "$3" --features "$4" --out "$RESULTS/real-$3-$4" "${@:5}"
}
fused_attention() {
  has_torch || return 77
  "$PYTHON" train/lab/baseline/fused_attention.py --heads 12 --width 64 &&
    "$PYTHON" train/lab/baseline/fused_attention.py --heads 12 --width 32
}
check_real() {
  local case size n methods features
  run fused-attention 90 fused_attention
  for n in 512 2048 8192; do
    run "kernels-bert-base-$n" 90 "$LAB" bench --kernels --device cuda --precision bf16 --size bert-base --steps 10 \
      --n "$n" --batch $((16384 / n)) --features 128 --attention softmax,linformer,skyformer \
      --json "$RESULTS/kernels-bert-base-$n.json"
  done
  for case in $REAL; do
    IFS=: read -r size n methods features <<<"$case"
    run "real-$size-$n-$methods" 200 real_case "$size" "$n" "$methods" "$features"
  done
  for n in 512 2048; do run "real-bert-base-$n-forward" 150 real_case bert-base "$n" softmax_sdpa 256 --forward; done
}
# Linformer's Table 3 and every method at BERT-base's width: from which length on each pays.
check_lengths() {
  run linformer-table-3 300 "$LAB" cost --tables inference --device cuda --precision bf16 --size bert-base --layers 2 \
    --materialised 60 --memory 130 --out "$RESULTS/linformer-table-3"
  run lengths 300 "$LAB" bench --device cuda --precision bf16 --size bert-base --layers 1 --forward --no-rates \
    --attention all --tokens 16384 --n 512,2048,8192 --features 256 --rounds 1 --json "$RESULTS/lengths.json"
}

listops_data() { run listops-data 90 "$LAB" data --task listops --data "$DATA"; }
check_train() {
  listops_data
  run listops-skytape 120 "$LAB" train --task listops --data "$DATA" --recipe skytape --device cuda \
    --precision bf16 --out "$RESULTS/listops-skytape" --force
}
check_long() {
  listops_data
  run listops-50000 400 "$LAB" train --task listops --data "$DATA" --recipe skyformer --attention skyformer \
    --steps 50000 --device cuda --precision bf16 --set group_by_length=1 eval_every=5000 \
    --out "$RESULTS/listops-50000" --force
}
# Recipe skytape on every task whose data are here, several at a time. What is not finished in time
# keeps its state, in arena.tar.gz.
data_of() { "$LAB" data --task "$1" --data "$DATA" || return 77; }
pack_arena() { # weights only of cells that are to be continued
  find "$1" -name result.json -execdir sh -c 'rm -f ./*.safetensors' \;
  tar -C "$1" -czf "$OUT/arena.tar.gz.part" . 2>/dev/null # runs that still write are whole next time
  mv "$OUT/arena.tar.gz.part" "$OUT/arena.tar.gz"
}
check_arena() {
  local task tasks='' runs=$scratch/arena-runs packer
  mkdir -p "$runs"
  [ ! -e "$OUT/arena.tar.gz" ] || tar -C "$runs" -xzf "$OUT/arena.tar.gz"
  for task in ${TASKS:-listops image text pathfinder retrieval}; do
    run "arena-data-$task" 120 data_of "$task" && tasks+=,$task
  done
  if [ -z "$tasks" ]; then
    verdict arena "not available" 0
    return
  fi
  (while sleep 60; do pack_arena "$runs"; done) & # a call that is cut short loses a minute
  packer=$!
  disown
  # shellcheck disable=SC2086  # ARENA is a list
  run arena 560 "$LAB" lra --tasks "${tasks#,}" ${ARENA:---attentions skyformer --jobs 5} --device cuda \
    --data "$DATA" --out "$runs"
  kill "$packer"
  run arena-page 60 "$LAB" report --runs "$runs" --out "$RESULTS/arena"
  pack_arena "$runs"
}

# sanitized TOOL FLAGS… PROGRAM ARGUMENTS…: the tool counts only if it says what it saw.
sanitized() {
  command -v compute-sanitizer || return 77
  local said=$RESULTS/said.$BASHPID
  compute-sanitizer --error-exitcode 9 --tool "$@" 2>&1 | tee "$said"
  [ "${PIPESTATUS[0]}" -eq 0 ] && grep -q 'SUMMARY: 0 ' "$said"
}
# training METHOD PRECISION: sets `arguments` to those of a short training with dropout and padding.
training() {
  [ -e "$SMALL/listops" ] || run small-data 60 "$LAB" data --task listops --limit 1500 --data "$SMALL"
  arguments=("$LAB" train --task listops --recipe skyformer --data "$SMALL" --out "$scratch/$1-$2" --force
    --attention "$1" --device cuda --precision "$2" --seed 7 --steps 1000)
}
check_sanitizers() {
  local precision method arguments
  local ops=("$LAB" bench --device cuda --attention all --n 250 --batch 2 --features 16 --steps 1 --no-rates)
  for precision in $PRECISIONS; do
    beside "memcheck-ops-$precision" 300 sanitized memcheck "${ops[@]}" --precision "$precision"
    # Models as wide as BERT-base have kernels of their own.
    beside "memcheck-wide-$precision" 200 sanitized memcheck "${ops[@]/all/softmax,skyformer,linformer,performer}" \
      --size bert-base --layers 1 --precision "$precision"
    # Each precision has kernels of its own for tiled attention and for the inverse.
    for method in softmax skyformer $([ "$precision" != bf16 ] || echo reformer); do
      training "$method" "$precision"
      beside "memcheck-train-$method-$precision" 150 sanitized memcheck "${arguments[@]}" --stop-after 8 \
        --batch 4 --set max_length=600
    done
  done
  # In fp32: elsewhere cuBLAS writes in ways that the tool does not see before its version 2025.4.
  beside initcheck-ops-fp32 300 sanitized initcheck "${ops[@]}" --precision fp32
}
# No races in the kernels of a model's making and its first step; of cuBLAS's kernels the tool reports
# hazards that are none. Each method stands for a group that has kernels in common.
check_races() {
  local precision method skip methods arguments
  for precision in $PRECISIONS; do
    methods="skyformer softmax bigbird"
    [ "$precision" != bf16 ] || methods+=" informer routing nystrom linformer reformer skeinformer performer sinkhorn"
    for method in $methods; do
      training "$method" "$precision"
      for skip in 0 100; do
        run "racecheck-$method-$precision-$skip" 60 sanitized racecheck --kernel-name kns=skytape \
          --launch-skip "$skip" --launch-count 100 "${arguments[@]}" --stop-after 1 --batch 2 --set max_length=250
      done
    done
  done
}
