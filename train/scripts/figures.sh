#!/usr/bin/env bash
# figures.sh: draws the pictures of train/results/figures again from their stored data.
# PYTHON: one with matplotlib.
set -eu
python=${PYTHON:-python3} results=train/results
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
build/skytape-lab report --runs $results/runs/listops-skyformer-skytape-s42 --out "$scratch/listops" >/dev/null 2>&1
"$python" train/report/draw.py "$scratch/listops/report.json" --out "$scratch/listops" >/dev/null
"$python" train/report/draw.py $results/mlm-curves.csv --out "$scratch/mlm" >/dev/null
for data in "$results"/figures/data/*.json; do
  "$python" train/report/draw.py "$data" --out "$scratch/$(basename "$data" .json)" >/dev/null
done
while read -r drawn stored; do # DATA/PICTURE, and its name in the pages
  cp "$scratch/$drawn.png" "$results/figures/$stored.png"
done <<'NAMES'
listops/curves-listops curves-listops
mlm/mlm-steps mlm-steps
approx-fresh/softmax-relative-close-up approx-fresh
arena-image/arena arena-image
arena-text/arena arena-text
approx-fresh/kernelized-relative approx-kernelized
cost-length/cost_length cost-length
encoder-spectrum/attention-spectrum encoder-spectrum
linformer-inference/cost_inference linformer-inference
matrix-listops/matrix-skyformer-trained matrix-listops
matrices-sentence/matrices matrices-sentence
matrices-sentence/matrix-nystrom matrix-sentence
stability/stability_gradients stability-gradients
text-approx/softmax-relative-close-up approx-text
text-spectrum/attention-spectrum spectrum-attention
text-spectrum/output-spectrum spectrum-output
text-spectrum/kernel-theory spectrum-kernel
NAMES
