#!/usr/bin/env bash
# make gpu-bundle: a folder that runs on a machine with an NVIDIA GPU, a CUDA runtime with cuBLAS, and
# nothing else: no compiler, no packages, no network. It holds program and tests with the libraries
# they need, and small data. Without a GPU it is made in minutes; there,
#   B=build/gpu-bundle CHECKS="smoke tests" train/scripts/gpu_check.sh
#   OUT      the folder (default build/gpu-bundle)
#   GOLDENS  folder of reference vectors (default tests/goldens, which the working tree has)
#   CUDA_ARCH  compute capabilities (default 90a-real: wgmma, and no PTX for later ones, which would
#              not fit)
set -eu
source train/scripts/common.sh
OUT=${OUT:-build/gpu-bundle}
GOLDENS=${GOLDENS:-tests/goldens}
B=build/release-cuda-portable
LIMIT_MIB=64 # of what travels: working tree and bundle

# One process on one GPU: MPI and NCCL stay here, and so do tests that a GPU has no part in.
mapfile -t tests < <(cuda_test_files
  find tests -name '*.cpp' ! -name '*_test.cpp' ! -path 'tests/tour/*' ! -path 'tests/fuzz/*' \
    ! -path 'tests/cuda_simulator/*' ! -path 'tests/install_example/*' ! -path 'tests/exercises/*')
${MAKE:-make} CUDA=1 PORTABLE=1 OPTIONAL= MPI=0 WITH_NCCL= CUDA_ARCH="${CUDA_ARCH:-90a-real}" TEST_SRC="${tests[*]}" \
  $B/skytape-lab $B/skytape_tests

# ---- program, tests and their libraries ------------------------------------------------------
rm -rf "$OUT"
mkdir -p "$OUT/lib"
for program in skytape-lab skytape_tests; do strip -o "$OUT/$program" $B/$program; done
# Libraries of the compiler, zlib and OpenSSL: the GPU machine may have other versions than these,
# or none.
ldd $B/skytape-lab $B/skytape_tests |
  sed -n 's,.*\(libgomp\|libstdc++\|libgcc_s\|libz\|libcrypto\)\.so[^ ]* => \(/[^ ]*\) .*,\2,p' | sort -u |
  while read -r library; do cp -L "$library" "$OUT/lib/"; done
# CUPTI, which `bench --kernels` opens: the version of the compiler's CUDA.
nvcc=$(command -v "${NVCC:-nvcc}") cuda=$("$nvcc" --version | sed -n 's/.*release \([^,]*\).*/\1/p')
toolkit=$(dirname "$(dirname "$(realpath "$nvcc")")")
cupti=$(find "$toolkit"/lib64/ "$toolkit"/extras/CUPTI/lib64/ -name "libcupti.so.${cuda%.*}" 2>/dev/null | head -1)
if [ -n "$cupti" ]; then
  cp -L "$cupti" "$OUT/lib/"
else
  echo "no CUPTI in $toolkit: kernels will be timed by events unless the machine has it"
fi

# needed FILE…: the names of libraries that they ask for.
needed() { readelf -d "$@" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u; }
echo "what the bundle needs of the machine:"
unexpected=
while read -r library; do
  [ -e "$OUT/lib/$library" ] && continue
  case $library in
    libc.so.6 | libm.so.6 | libmvec.so.1 | libdl.so.2 | librt.so.1 | libpthread.so.0 | libutil.so.1 | ld-linux*) ;;
    libcublas.so.*) ;;
    *) unexpected="$unexpected $library" ;;
  esac
  echo "  $library"
done < <(needed "$OUT"/skytape* "$OUT"/lib/*)
glibc=$(readelf -V "$OUT"/skytape* "$OUT"/lib/* | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -1)
echo "  glibc ${glibc#GLIBC_} or newer, x86-64-v3 (AVX2), a driver for CUDA $cuda"
if [ -n "$unexpected" ]; then
  echo "gpu-bundle: expected a C library and cuBLAS only, got$unexpected" >&2
  exit 1
fi

# ---- data ------------------------------------------------------------------------------------
program=$(realpath "$OUT/skytape-lab")
if [ "$(realpath "$GOLDENS")" != "$(realpath tests/goldens)" ]; then
  mkdir "$OUT/goldens"
  cp -R "$GOLDENS"/*/ "$OUT/goldens/"
fi
"$program" data --task listops --limit 1500 --data "$OUT/datasets" >/dev/null
rm -f "$OUT/datasets/listops/.lock"

# ---- size ------------------------------------------------------------------------------------
bundle=$(du -sb "$OUT" | cut -f1)
tree=$(git ls-files -co --exclude-standard -z | xargs -0 du -cb | tail -1 | cut -f1)
mib() { awk -v b="$1" 'BEGIN { printf "%.1f MiB", b / 1048576 }'; }
du -sb "$OUT"/* | sort -rn | while read -r bytes file; do echo "  $(mib "$bytes") $file"; done
echo "bundle $(mib "$bundle"), working tree $(mib "$tree"): $(mib $((bundle + tree))) of $LIMIT_MIB MiB"
if [ $((bundle + tree)) -gt $((LIMIT_MIB * 1048576)) ]; then
  echo "gpu-bundle: $(mib $((bundle + tree))) would travel, expected at most $LIMIT_MIB MiB" >&2
  exit 1
fi
train/scripts/gpu_bundle_check.sh "$OUT"
