#!/usr/bin/env bash
# fuzz.sh FLAGS…: builds tests/fuzz/data/readers.cpp once per reader with libFuzzer and the
# sanitizers, and runs each for $FUZZ_SECONDS seconds (60). Needs clang with its runtime (Debian: clang,
# libclang-rt-14-dev). FLAGS are the build's definitions and libraries. Exit code 1: a finding.
set -eu
clang=$(command -v clang++ || true)
[ -n "$clang" ] || { echo "fuzz: no clang++; install clang and libclang-rt-14-dev"; exit 1; }
definitions=() libraries=()
for flag in "$@"; do
  case $flag in -D*) definitions+=("$flag") ;; *) libraries+=("$flag") ;; esac
done
out=build/fuzz
mkdir -p "$out"
flags=(-std=c++20 -O1 -g -I. -fsanitize=address,undefined -fno-sanitize-recover=undefined "${definitions[@]}")
objects=()
for source in $(find data -name '*.cpp') tensor/core/error.cpp tensor/core/suggest.cpp; do
  object=$out/$(echo "$source" | tr / _).o
  objects+=("$object")
  [ "$object" -nt "$source" ] || "$clang" "${flags[@]}" -fsanitize=fuzzer-no-link -c "$source" -o "$object"
done
# Of an archive a target takes what readers call: no batches, whose tensors would ask for the engine.
rm -f "$out/readers.a"; ar rcs "$out/readers.a" "${objects[@]}"
failed=0
for target in listops records pairs images metadata png cache archive wordpiece bpe; do
  "$clang" "${flags[@]}" -fsanitize=fuzzer -DFUZZ_TARGET=$target tests/fuzz/data/readers.cpp \
    "$out/readers.a" "${libraries[@]}" -lgomp -o "$out/$target"
  mkdir -p "$out/corpus-$target"
  if "$out/$target" -max_total_time="${FUZZ_SECONDS:-60}" -print_final_stats=1 \
      -artifact_prefix="$out/$target-" "$out/corpus-$target" >"$out/$target.log" 2>&1; then
    echo "fuzz $target: clean, $(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$target.log") runs"
  else
    tail -n 20 "$out/$target.log"
    echo "fuzz $target: FOUND something, see $out/$target.log"
    failed=$((failed + 1))
  fi
done
[ "$failed" -eq 0 ]
