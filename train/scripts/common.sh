# shellcheck shell=bash disable=SC2034
# Functions that several scripts use: most of it gpu_bundle.sh prepares without a GPU and
# gpu_check.sh repeats
# with one.

# tensors FILE: a checkpoint without its header, which names paths and times.
tensors() { tail -c +$(($(od -An -t u8 -N8 "$1") + 9)) "$1"; }

# small_training DATA OUT METHOD DEVICE PRECISION FLAGS…: sets `arguments` to those of the program for
# eight steps of ListOps with dropout. All but a few examples are cut to one ragged length: a batch
# often has the layout of the last one, so that its step can be replayed, and some examples have
# padding. The rate is high enough for a wrong gradient to show in the losses.
small_training() {
  arguments=(train --task listops --recipe skyformer --data "$1" --out "$2" --force --attention "$3"
    --device "$4" --precision "$5" --seed 7 --steps 1000 --stop-after 8 --batch 4 --log-every 1
    --set max_length=600 lr=1e-3 "${@:6}")
}
# small_run PROGRAM DATA OUT METHOD DEVICE PRECISION FLAGS…: runs it.
small_run() {
  local arguments
  small_training "${@:2}"
  "$1" "${arguments[@]}"
}

# losses FILE: the loss of each step of a metrics.jsonl.
losses() { sed -n '/"kind": *"train"/s/.*"loss": *\([^,}]*\).*/\1/p' "$1"; }

# cuda_test_files: files of tests with a half that runs on a GPU. The others have nothing to show
# there, nor have launches_test.cpp and late_test.cpp, which are about the simulated device's launches.
cuda_test_files() {
  grep -rlE 'tests/support/devices.hpp|Device::cuda' tests --include='*_test.cpp' |
    grep -v -e '/launches_test\.cpp$' -e '/late_test\.cpp$' | sort
}

# Methods, batch and features of the benchmark; its lengths, that of the stated goals first.
BENCH_CASES="--attention all --batch 32 --features 128"
BENCH_LENGTHS=${BENCH_LENGTHS:-2048 1024 4096}
