#!/usr/bin/env bash
# fuzz.sh PROGRAM: runs libFuzzer on each reader of tests/fuzz/data/readers.cpp for $FUZZ_SECONDS
# seconds (60). What it learns is kept beside the program for the next time. Exit code 1: a finding.
set -eu
program=$1 out=$(dirname "$1") failed=0
for reader in $(grep -oP '\{"\K[a-z]+(?=", [a-z]+\})' tests/fuzz/data/readers.cpp); do
  mkdir -p "$out/corpus-$reader"
  if FUZZ_READER=$reader "$program" -max_total_time="${FUZZ_SECONDS:-60}" -print_final_stats=1 \
      -artifact_prefix="$out/$reader-" "$out/corpus-$reader" >"$out/$reader.log" 2>&1; then
    echo "fuzz $reader: clean, $(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$reader.log") runs"
  else
    tail -n 20 "$out/$reader.log"
    echo "fuzz $reader: FOUND something, see $out/$reader.log"
    failed=$((failed + 1))
  fi
done
[ "$failed" -eq 0 ]
