#!/usr/bin/env bash
# test.sh PROGRAM ARGUMENTS…: runs that test program of the build folder B, in parts that as many
# processes share as there are cores, and after all tests the check of an installed copy. The last
# line is "N passed, N failed". Arguments are doctest's, e.g. -ts=slow.
set -u
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
tests=$B/$1
shift
export B scratch tests
# Passive: the tests' many small parallel regions must not spin on a busy machine.
export OMP_WAIT_POLICY=passive SKYTAPE_PROGRAM=$PWD/$B/skytape

# part NUMBER FIRST LAST ARGUMENTS…: these test cases. An end without a summary is a failure.
part() {
  local number=$1 first=$2 last=$3 log=$scratch/$1.log status summary
  shift 3
  "$tests" "$@" --first="$first" --last="$last" >"$log" 2>&1
  status=$?
  summary=$(tail -n 1 "$log")
  if ! grep -Eq '^[0-9]+ passed, [0-9]+ failed$' <<<"$summary"; then
    summary="0 passed, 1 failed"
    echo "the test program ended without a summary (status $status)" >>"$log"
  elif [ "$status" -ne 0 ] && [[ $summary == *" 0 failed" ]]; then
    summary=${summary/ 0 failed/ 1 failed}
    echo "the test program ended with status $status" >>"$log"
  fi
  echo "$summary" >"$scratch/$number.summary"
  echo "test cases $first to $last: $summary"
  [[ $summary == *" 0 failed" ]] || cat "$log"
}
export -f part

cases=$("$tests" "$@" --count | sed -n 's/.*filters: //p')
if [ "${cases:-0}" -eq 0 ]; then
  echo "no test case matches the filters"
  exit 1
fi
each=$(((cases + 31) / 32))
for ((first = 1; first <= cases; first += each)); do
  printf '%s\0' "$((first / each))" "$first" "$((first + each - 1))" "$@"
done | xargs -0 -n $((3 + $#)) -P "$(nproc)" bash -c 'part "$@"' part
skips=$(cat "$scratch"/*.log | grep -E '^[0-9]+ CUDA cases skipped' | awk '{ n += $1 } END { print n + 0 }')
[ "$skips" -eq 0 ] || echo "$skips CUDA cases skipped: no GPU answers"
grep -h '^skipped, ' "$scratch"/*.log | sort -u

passed=$(awk '{ n += $1 } END { print n }' "$scratch"/*.summary)
failed=$(awk '{ n += $3 } END { print n }' "$scratch"/*.summary)

# Small programs outside the tree build against the installed library, found in two ways.
if [ "$tests" = "$B/skytape_tests" ] && [ $# -eq 0 ]; then
  installs=$(train/scripts/test_install.sh "$B" "$scratch") || failed=$((failed + 1))
  echo "$installs"
  passed=$((passed + $(grep -c 'outside the tree' <<<"$installs")))
elif [ $# -gt 0 ]; then
  echo "skipped, as tests were chosen: the installed library"
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
