#!/usr/bin/env bash
# make gpu-static: what the compiler alone says of every CUDA kernel: registers, shared memory, spills
# and theoretical occupancy; with cuobjdump (the toolkit's, or PyPI's nvidia-cuda-cuobjdump) also
# tensor-core instructions and the width of loads and stores. Exit status 1: a kernel other than the
# gradient checks' f64 spills registers, or one that is meant for tensor cores has no instruction of
# theirs.
#   B    folder of a CUDA build; ptxas's notes lie beside its objects (*.ptxas)
#   OUT  page to write (default train/results/gpu-static.md)
set -euo pipefail
OUT=${OUT:-train/results/gpu-static.md}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mapfile -t notes < <(find "$B" -path "$B/tests" -prune -o -name '*.cuda.o.ptxas' -print | sort)
if [ ${#notes[@]} -eq 0 ]; then
  echo "gpu_static: no *.ptxas below $B; expected a CUDA build's folder" >&2
  exit 1
fi

# Prints a row for each kernel and architecture: the file, sm_N, registers, bytes of shared memory,
# spilled bytes, and its name in C++.
awk -v root="$B/" '
  FNR == 1 { file = substr(FILENAME, length(root) + 1); sub(/\.cuda\.o\.ptxas$/, "", file) }
  /Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; arch = part[4]; spilled = 0 }
  /bytes spill stores/ { spilled += $5 + $9 }
  /: Used [0-9]* registers/ {
    shared = 0
    if (match($0, /[0-9]+ bytes smem/)) shared = substr($0, RSTART) + 0
    match($0, /Used [0-9]+/)
    print file "\t" arch "\t" substr($0, RSTART + 5) + 0 "\t" shared "\t" spilled "\t" kernel
  }' "${notes[@]}" | c++filt >"$scratch/kernels"

# Kernels that differ in their types alone share a row, which has the largest figures of them; those
# whose template numbers decide the tiles do not.
awk -F '\t' -v OFS='\t' '
  function ceiling(a, b) { return int((a + b - 1) / b) }
  function least(a, b) { return a < b ? a : b }
  # The name without namespaces, arguments and result; "name<" is followed by template arguments.
  function plain(text) {
    gsub(/\(anonymous namespace\)::/, "", text)
    gsub(/[A-Za-z_0-9]+::/, "", text)
    sub(/^void /, "", text)
    if (sub(/Layout</, "", text)) sub(/>, /, ", ", text)
    sub(/\(Precision\)0/, "fp32", text); sub(/\(Precision\)1/, "tf32", text); sub(/\(Precision\)2/, "bf16", text)
    sub(/\(Score\)0/, "softmax", text); sub(/\(Score\)1/, "gaussian", text); sub(/\(Form\)0/, "times", text); sub(/\(Form\)1/, "transposed", text); sub(/\(Form\)2/, "backward du", text); sub(/\(Form\)3/, "backward dy", text)
    return text
  }
  # Threads of a block, and the shared memory that a launch asks for (attention/tiled/tiled.cu,
  # attention/sampling/sampling.cu for rows of 2048, attention/selection/informer_rows.cu,
  # attention/blocks/block_attention*.cu, attention/{feature_maps,random_features}/*.cu,
  # attention/{inverse,landmarks}/*.cu, tensor/mlp/mlp.cu, tensor/projection/token_products.cu,
  # tensor/movement/token_sums.cu for a vocabulary of 20).
  function block(file, name, args,    n, size, width, run, tile, rows, square) {
    bytes = 0
    if (name ~ /^(map|warp_rows|narrow_rows|block_rows|column_chunks|transpose)_kernel$/) return 256
    if (name ~ /^(busy|empty|clock)_kernel$/) return 1  # what measures a GPU
    if (name ~ /_node$/) return 32
    if (name == "mma_kernel") return 256
    if (name == "top_k_kernel") {
      if (args ~ /true$/) bytes = 2048 * (args ~ /^double/ ? 16 : 8)
      return 512
    }
    if (name == "sort_picks_kernel") return 512
    if (name == "max_columns_kernel" || file ~ /sinkhorn.cu$/) return 1024
    if (name == "nearest_sums_kernel") return 128
    if (name == "measure_kernel") {
      bytes = 131072 + 2048 * (args ~ /^double/ ? 2 : 1)
      return 512
    }
    if (name == "form_kernel") {
      split(args, n, ", ")
      if (args ~ /^[tb]f/) bytes = 256 * ((n[2] + n[3] + 16) * (args ~ /^tf32/ ? 4 : 2) + 4)
      else bytes = 4 * (160 * (n[1] + n[2] + 9) + 2 * 32 * 132)
      return 256
    }
    if (file ~ /feature_attention.cu$/) {
      split(args, n, ", "); size = args ~ /^tf32/ ? 4 : 2
      bytes = 256 * (name == "key_maxima_kernel" ? (n[2] + 8) * size : (n[2] + n[3] + 16) * size + 4)
      return 256
    }
    if (file ~ /token_products.cu$/) {
      if (name == "backward_kernel") bytes = args ~ /^Project/ ? 107520 : 48128
      return 256
    }
    if (file ~ /mlp.cu$/) {
      if (name == "backward_kernel") bytes = 114944
      return 256
    }
    if (name ~ /operands_kernel$/ || name == "wide_kernel") return 256
    if (file ~ /tiled_tensor_core.cu$/) {
      split(args, n, ", "); bytes = 4 * (64 * (n[2] + 8) * (args ~ /^tf32/ ? 4 : 2) + 128)
      if (name == "key_gradient_kernel") bytes += 512 + 2048
      return name == "key_gradient_kernel" ? 256 : 128
    }
    if (file ~ /block_attention_tensor_core.cu$/) {
      split(args, n, ", "); bytes = 2 * (2 * 64 * (n[2] + 8) * (args ~ /^tf32/ ? 4 : 2) + 16 * 64 + 16)
      return 128
    }
    if (file ~ /tensor_core.cu$/) return 128
    if (file ~ /tiled.cu$/) {
      size = args ~ /^double/ ? 8 : 4
      split(args, n, ", "); width = n[2] + 0
      run = size == 4 && width <= 64 ? 8 : size == 8 && width > 64 ? 2 : 4
      own = 16 * run; walk = size == 4 && width <= 64 ? 64 : 32
      if (name == "forward_kernel" && size == 4 && width == 32) walk = 128
      square = 2 * walk * (width + 4) + own * (walk + 4)
      bytes = size * (name == "forward_kernel" ? own * (width + 4) + square + walk + own : 2 * own * (width + 4) + square + 2 * walk + own)
      return 256
    }
    if (file ~ /block_attention.cu$/) {
      size = args ~ /^double/ ? 8 : 4
      split(args, n, ", "); width = n[2] + 0
      own = 8 * (size == 4 && width <= 64 ? 8 : size == 8 && width > 64 ? 2 : 4)
      walk = size == 4 && width <= 64 ? 64 : 32
      bytes = size * (2 * walk * (width + 4) + own * (walk + 4)) + 4 * size * (own + walk)
      bytes += size * own * (name == "block_forward_kernel" ? width + 5 : 2 * (width + 4))
      return 128
    }
    if (file ~ /(layer_norm|norm_pool|classifier).cu$/) return 256
    if (name == "token_sums_kernel") { bytes = 8 * 20 * 128 * (args ~ /^double/ ? 8 : 4); return 256 }
    if (name ~ /^(project|tensor_core)_kernel$/) return 256
    if (file ~ /iterative_inverse.cu$/) {
      size = args + 0; bytes = 2 * 4 * size * (size + 9)
      return 2 * size
    }
    if (file ~ /landmark_middle.cu$/) {
      split(args, n, ", "); size = n[1] + 0; width = n[2] > size ? n[2] + 0 : size
      bytes = 3 * 4 * size * (width + 8) + 4 * (size == 32 ? 6 * size + 5 : 8 * size + 9)
      return size == 32 ? 128 : 256
    }
    if (file ~ /inverse_planes.cu$/) {
      size = args + 0; bytes = 3 * 4 * size * (size + 8)
      return size == 32 ? 128 : 256
    }
    print "gpu_static: " file ": no block size known for " name > "/dev/stderr"
    exit bad = 1
  }
  # Share of a multiprocessor that may hold threads and does: registers go to warps by 256, shared
  # memory to blocks by 128 bytes and 1 KiB more.
  function occupancy(arch, threads, registers, shared,    warps, blocks) {
    warps = ceiling(threads, 32)
    blocks = least(32, int(64 / warps))
    blocks = least(blocks, int(int(65536 / (256 * ceiling(registers * 32, 256)) / 4) * 4 / warps))
    blocks = least(blocks, int((arch == "sm_80" ? 164 : 228) * 1024 / (128 * ceiling(shared, 128) + 1024)))
    return 100 * blocks * warps / 64
  }
  {
    text = plain($6)
    open = index(text, "<")
    name = open ? substr(text, 1, open - 1) : text
    sub(/\(.*/, "", name)
    args = open ? substr(text, open + 1) : ""
    sub(/>\(.*/, "", args)
    numbers = args ~ /double/ ? "f64" : "f32"
    threads = block($1, name, args)
    label = name
    if (name ~ /^(map|warp_rows|narrow_rows|block_rows)_kernel$/) {
      functor = args; sub(/^[0-9]+, /, "", functor); sub(/<.*/, "", functor)
      label = functor " (" (name == "map_kernel" ? "map" : name == "warp_rows_kernel" ? "warp" : name == "narrow_rows_kernel" ? "lanes" : "block") ")"
    } else if ($1 ~ /tiled|tensor_core|block_attention|feature_attention|(inverse|landmarks)\/.*\.cu$/ || name == "form_kernel") label = name "<" args ">"
    if (($1 ~ /tensor_core|feature_attention/ || name == "form_kernel") && args ~ /tf32|bf16/) numbers = args ~ /tf32/ ? "tf32" : "bf16"
    key = $2 OFS $1 OFS label OFS numbers
    if (!(key in count)) { occupied[key] = 1000 }
    ++count[key]
    if ($3 > registers[key]) registers[key] = $3
    if ($4 + bytes > shared[key] + 0) shared[key] = $4 + bytes
    if ($5 > spilled[key] + 0) spilled[key] = $5
    wide[key] = threads
    share = occupancy($2, threads, $3, $4 + bytes)
    if (share < occupied[key]) occupied[key] = share
  }
  END {
    if (bad) exit 1
    for (key in count) print key, count[key], wide[key], registers[key], shared[key] + 0, spilled[key] + 0, occupied[key]
  }' "$scratch/kernels" | sort >"$scratch/rows"

# ---- machine code ----------------------------------------------------------------------------
# Of attention's own kernels: disassembling every kernel takes minutes.
# cuobjdump_path: the toolkit's, or a Python wheel's.
cuobjdump_path() {
  command -v cuobjdump && return
  "${PYTHON:-python3}" -c 'import glob, sys
print(next(f for p in sys.path for f in glob.glob(p + "/nvidia/cu*/bin/cuobjdump")))' 2>/dev/null
}
: >"$scratch/sass"
if cuobjdump=$(cuobjdump_path); then
  while read -r file; do
    "$cuobjdump" -sass "$B/$file.cuda.o" | awk -v file="$file" '
      function show() { if (kernel) print file "\t" arch "\t" tensor + 0 "\t" loads[16] + 0 "\t" loads[8] + 0 "\t" loads[4] + 0 "\t" stores[16] + 0 "\t" stores[8] + 0 "\t" stores[4] + 0 "\t" kernel }
      function width(op) { return op ~ /\.128/ ? 16 : op ~ /\.64/ ? 8 : 4 }
      /arch = sm_/ { next_arch = $3 }
      /Function :/ { show(); kernel = $3; arch = next_arch; tensor = 0; split("", loads); split("", stores) }
      /HMMA|WGMMA/ { ++tensor }
      match($0, /LDG[.A-Z0-9]*/) { ++loads[width(substr($0, RSTART, RLENGTH))] }
      match($0, /STG[.A-Z0-9]*/) { ++stores[width(substr($0, RSTART, RLENGTH))] }
      END { show() }'
  done < <(cut -f1 "$scratch/kernels" | sort -u | grep -E '^attention/(tiled|blocks|feature_maps|random_features|inverse|landmarks)/.*\.cu$') | c++filt |
    sed -E 's/\(anonymous namespace\):://g; s/[A-Za-z_0-9]+:://g; s/\tvoid /\t/; s/\(Precision\)1/tf32/; s/\(Precision\)2/bf16/' >"$scratch/sass"
fi

# ---- the page --------------------------------------------------------------------------------
{
  echo "# What the compiler says of every CUDA kernel"
  echo
  echo "\`make gpu-static\`, $("${NVCC:-nvcc}" --version | sed -n 's/.*release \([^,]*\), \(.*\)/CUDA \1, nvcc \2/p'). A row stands for kernels that differ in types alone (column \"of\": how many) and has the"
  echo "largest figures of them, and the least occupancy: resident warps over those that a multiprocessor can hold, as registers, shared memory (static"
  echo "and asked for at the launch) and block size allow. In brackets: how the team of a row runs, or \"map\". f64 is for gradient checks; f32 stands for integers, too."
  cut -f1 "$scratch/rows" | sort -u | while read -r arch; do
    printf '\n## %s\n\n| source | kernel | numbers | of | threads | registers | shared bytes | spilled bytes | occupancy %% |\n' "$arch"
    echo "|---|---|---|---:|---:|---:|---:|---:|---:|"
    awk -F '\t' -v arch="$arch" '$1 == arch { printf "| %s | `%s` | %s | %d | %d | %d | %d | %d | %.0f |\n", $2, $3, $4, $5, $6, $7, $8, $9, $10 }' "$scratch/rows"
  done
  if [ -s "$scratch/sass" ]; then
    printf '\n## Machine code of the attention tiles\n\n| kernel | | tensor-core instructions | loads of 16, 8, at most 4 bytes | stores |\n|---|---|---:|---|---|\n'
    awk -F '\t' '{ name = $10; sub(/\(.*/, "", name); printf "| `%s` | %s | %d | %d, %d, %d | %d, %d, %d |\n", name, $2, $3, $4, $5, $6, $7, $8, $9 }' "$scratch/sass" | sort
  fi
} >"$scratch/page"
mkdir -p "$(dirname "$OUT")"
cp "$scratch/page" "$OUT"

# ---- verdict ---------------------------------------------------------------------------------
status=0
spills=$(awk -F '\t' '$4 != "f64" && $9 > 0 { print "  " $2 ": " $3 " on " $1 " spills " $9 " bytes" }' "$scratch/rows")
if [ -n "$spills" ]; then
  printf 'gpu_static: registers are spilled:\n%s\n' "$spills" >&2
  status=1
fi
if [ -s "$scratch/sass" ]; then
  idle=$(awk -F '\t' '(($1 ~ /tensor_core|feature_attention/ && $10 !~ /^(map|warp_rows|(block_)?operands)_kernel/) || $10 ~ /SplitProduct/) && $3 == 0 { print "  " $10 " on " $2 }' "$scratch/sass")
  if [ -n "$idle" ]; then
    printf 'gpu_static: no tensor-core instructions in:\n%s\n' "$idle" >&2
    status=1
  fi
else
  echo "machine code: skipped, no cuobjdump here (PyPI: nvidia-cuda-cuobjdump)"
fi
echo "$(wc -l <"$scratch/kernels") kernels, $(awk -F '\t' '$9 > 0' "$scratch/rows" | wc -l) rows with spills; $OUT"
exit $status
