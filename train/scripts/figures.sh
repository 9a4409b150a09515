#!/usr/bin/env bash
# figures.sh: draws the pictures of train/results/figures whose data are stored again.
# PYTHON: one with matplotlib.
set -eu
python=${PYTHON:-python3} results=train/results
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
build/skytape-lab report --runs $results/runs/listops-skyformer-skytape-s42 --out "$scratch" >/dev/null 2>&1
"$python" train/report/draw.py "$scratch/report.json" $results/mlm-curves.csv \
  $results/figures/data --out "$scratch" >/dev/null
while read -r drawn stored; do  # in which name a study draws it, and in which pages show it
  cp "$scratch/$drawn.png" "$results/figures/$stored.png"
done <<'NAMES'
curves-listops curves-listops
mlm-steps mlm-steps
softmax-relative-close-up approx-fresh
kernelized-relative approx-kernelized
attention-spectrum encoder-spectrum
cost_length cost-length
cost_inference linformer-inference
matrices matrices-sentence
matrix-nystrom matrix-sentence
NAMES
