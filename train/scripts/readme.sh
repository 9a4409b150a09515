#!/usr/bin/env bash
# readme.sh [--check]: writes the tables of README.md, or checks that they are current: the attention
# methods from the registry, the speed from the committed race.
set -eu
attention=$(mktemp)
speed=$(mktemp)
fresh=$(mktemp)
trap 'rm -f "$attention" "$speed" "$fresh"' EXIT
build/skytape info attention --markdown > "$attention"
sed -n '3,$p' train/results/race-cpu.md > "$speed"
awk -v attention="$attention" -v speed="$speed" '
  function put(file,  line) { print; print ""; while ((getline line < file) > 0) print line; print ""; skip = 1 }
  /^<!-- attention table/ { put(attention); next }
  /^<!-- speed table/ { put(speed); next }
  /^<!-- end of (attention|speed) table/ { skip = 0 }
  !skip { print }' README.md > "$fresh"
if [ "${1:-}" = --check ]; then
  diff -u README.md "$fresh" || { echo "README.md: a table is not current; make readme writes it"; exit 1; }
else
  cp "$fresh" README.md
fi
