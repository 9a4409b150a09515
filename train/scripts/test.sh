#!/usr/bin/env bash
# Runs the tests and the check of an installed copy; the last line is "N passed, N failed".
# B: the build folder. Further arguments go to the test program (doctest's, e.g. -ts=slow).
set -u
log=$(mktemp)
scratch=$(mktemp -d)
trap 'rm -rf "$log" "$scratch"' EXIT

# Passive: the tests' many small parallel regions must not spin on a busy machine.
OMP_WAIT_POLICY=passive SKYTAPE_PROGRAM=$PWD/$B/skytape "$B/skytape_tests" "$@" | tee "$log"
status=${PIPESTATUS[0]}
read -r passed failed < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed.*/\1 \2/p' "$log" | tail -1)
if [ -z "${passed:-}" ]; then
  echo "the test program ended without a summary (status $status)"
  passed=0 failed=1
elif [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
  failed=1
fi

# Small programs outside the tree build against the installed library, found in two ways.
installs=$(train/scripts/test_install.sh "$B" "$scratch") || failed=$((failed + 1))
echo "$installs"
passed=$((passed + $(grep -c 'outside the tree' <<<"$installs")))

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
