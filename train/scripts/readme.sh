#!/usr/bin/env bash
# readme.sh [--check]: writes the table of attention methods into README.md from the registry, or
# checks that it is current.
set -eu
table=$(mktemp)
fresh=$(mktemp)
trap 'rm -f "$table" "$fresh"' EXIT
build/skytape info attention --markdown > "$table"
awk -v table="$table" '
  /^<!-- attention table/ { print; print ""; while ((getline line < table) > 0) print line; print ""; skip = 1; next }
  /^<!-- end of attention table/ { skip = 0 }
  !skip { print }' README.md > "$fresh"
if [ "${1:-}" = --check ]; then
  diff -u README.md "$fresh" || { echo "README.md: the table of attention methods is not current; make readme writes it"; exit 1; }
else
  cp "$fresh" README.md
fi
