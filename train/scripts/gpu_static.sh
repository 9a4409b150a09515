#!/usr/bin/env bash
# make gpu-static: registers, static shared memory and spills of every CUDA kernel, as ptxas noted them
# beside the objects of a CUDA build (*.ptxas). Exit status 1: a kernel spills registers; those in f64,
# which gradient checks alone run, may.
#   B    folder of the build
#   OUT  table to write, tab-separated (default $B/kernels.tsv)
set -euo pipefail
OUT=${OUT:-$B/kernels.tsv}
mapfile -t notes < <(find "$B" -path "$B/tests" -prune -o -name '*.cuda.o.ptxas' -print | sort)
if [ ${#notes[@]} -eq 0 ]; then
  echo "gpu_static: no *.ptxas below $B; expected a CUDA build's folder" >&2
  exit 1
fi
{
  printf 'source\tarchitecture\tregisters\tshared bytes\tspilled bytes\tkernel\n'
  awk -v root="$B/" '
    FNR == 1 { file = substr(FILENAME, length(root) + 1); sub(/\.cuda\.o\.ptxas$/, "", file) }
    /Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; arch = part[4]; spilled = 0 }
    /bytes spill stores/ { spilled += $5 + $9 }
    match($0, /: Used [0-9]+ registers/) {
      registers = substr($0, RSTART + 7) + 0
      shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART) + 0 : 0
      print file "\t" arch "\t" registers "\t" shared "\t" spilled "\t" kernel
    }' "${notes[@]}" | c++filt
} >"$OUT"
if awk -F '\t' 'NR > 1 && $5 > 0 && $6 !~ /double/ { print "gpu_static: " $1 " on " $2 " spills " $5 " bytes: " $6; found = 1 }
    END { exit !found }' "$OUT" >&2; then
  exit 1
fi
echo "$(($(wc -l <"$OUT") - 1)) kernels, $(awk -F '\t' 'NR > 1 && $5 > 0' "$OUT" | wc -l) of them, in f64, with spills; $OUT"
