#!/usr/bin/env bash
# Finds the build's needs, lists what is installed, and tells how to get the rest.
#   dependencies.sh --install   install what is missing where that is allowed; print make variables
#   dependencies.sh --report    print a table (make doctor)
#   dependencies.sh --found     print the compiler and the headers that it finds
# Exit code 1: the CPU build cannot work.
set -eu

CXX=${CXX:-g++}
CPPFLAGS=${CPPFLAGS:-}

# need | header | Debian package | make name | its libraries | what is lost without it (the last three empty: required)
needs() {
  cat <<'TABLE'
text formatting|fmt/format.h|libfmt-dev|||
dense linear algebra|Eigen/Dense|libeigen3-dev|||
command line|CLI/CLI.hpp|libcli11-dev|||
JSON|nlohmann/json.hpp|nlohmann-json3-dev|||
gzip|zlib.h|zlib1g-dev|||
SHA-256 and MD5|openssl/evp.h|libssl-dev|||
tests|doctest/doctest.h|doctest-dev|||
Philox reference of the tests|Random123/philox.h|librandom123-dev|||
fast f32 products (oneDNN)|dnnl.h|libdnnl-dev|DNNL|-ldnnl|products fall back to Eigen: about half the speed
PNG images|png.h|libpng-dev|PNG|-lpng|no Pathfinder from PNG folders
CSV files (libcsv)|csv.h|libcsv-dev|CSV|-lcsv|no custom data from .csv
tables of Unicode (utf8proc)|utf8proc.h|libutf8proc-dev|UTF8PROC|-lutf8proc|no WordPiece, byte-level BPE, SentencePiece
SentencePiece|sentencepiece_trainer.h|libsentencepiece-dev|SENTENCEPIECE|-lsentencepiece_train -lsentencepiece|no --tokens sentencepiece:FILE
archives|archive.h|libarchive-dev|ARCHIVE|-larchive|no reading of .tar.gz releases
downloads (libcurl)|curl/curl.h|libcurl4-openssl-dev|CURL|-lcurl|no skytape data --fetch
TABLE
}

# CXX is a list: "ccache g++" is one, too.
have_compiler() { echo 'int main(){}' | $CXX -std=c++20 -fopenmp -x c++ - -o /dev/null; }
# Ends where the compiler that was asked for does not work. A machine without any g++ gets one.
require_compiler() {
  if [ "$CXX" = g++ ] && ! command -v g++ >/dev/null || have_compiler; then return; fi
  echo "skytape: CXX='$CXX' cannot compile C++20 with OpenMP; expected g++ 12 or newer, or clang++ with libomp-dev" >&2
  exit 1
}
# Sets the headers of the table that the compiler finds, one a line, by one call of it.
find_headers() {
  eigen_flags=
  for dir in /usr/include/eigen3 /usr/local/include/eigen3; do
    [ -d "$dir" ] && eigen_flags="-isystem $dir" && break
  done
  # shellcheck disable=SC2086  # flags are lists
  headers=$(needs | sed 's/^[^|]*|\([^|]*\)|.*/#if __has_include(<\1>)\n"\1"\n#endif/' |
    $CXX -std=c++20 $CPPFLAGS $eigen_flags -E -P -x c++ - 2>/dev/null | tr -d '"')
}
have_header() { grep -qxF "$1" <<<"$headers"; }

look() {
  missing_required=() missing_optional=()
  find_headers
  command -v "${CXX%% *}" >/dev/null || missing_required+=(g++)
  while IFS='|' read -r _ header package name _; do
    have_header "$header" && continue
    if [ -n "$name" ]; then missing_optional+=("$package"); else missing_required+=("$package"); fi
  done < <(needs)
}

install_missing() {
  local sudo=
  [ -z "${SKYTAPE_NO_INSTALL:-}" ] && command -v apt-get >/dev/null || return 1
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || return 1
    sudo='sudo -n'
  fi
  echo "Installing what is missing: $*" >&2
  # shellcheck disable=SC2086
  { $sudo apt-get update -q && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -q -y --no-install-recommends "$@"; } >&2
}

report() {
  local width=34
  row() { printf "  %-${width}s %-10s %s\n" "$1" "$2" "$3"; }
  if command -v "${CXX%% *}" >/dev/null; then row "C++20 compiler with OpenMP" found "$($CXX --version | head -1)"
  else row "C++20 compiler with OpenMP" MISSING "apt-get install g++ (12 or newer)"; fi
  while IFS='|' read -r need header package name _ lost; do
    if have_header "$header"; then row "$need" found "$package"
    elif [ -n "$name" ]; then row "$need" absent "apt-get install $package ($lost)"
    else row "$need" MISSING "apt-get install $package"; fi
  done < <(needs)
  local mpicc=${MPICC:-$(command -v mpicc)}
  if [ -n "$mpicc" ]; then row "MPI (several ranks)" found "$mpicc$(mpirun --version 2>/dev/null | sed -n '1s/^/, /p')"
  else row "MPI (several ranks)" absent "apt-get install libopenmpi-dev openmpi-bin (training in one process only)"; fi
  local nvcc root file
  if nvcc=$(command -v "${NVCC:-}"); then row "CUDA compiler" found "$("$nvcc" --version | sed -n 's/.*release \([^,]*\).*/\1/p')"
    root=$(cd "$(dirname "$(realpath "$nvcc")")/.." && pwd)
    for lib in cublas curand nccl; do
      file=$root/lib64/lib$lib.so
      [ -e "$file" ] || file=$($CXX -print-file-name="lib$lib.so")  # a path where the linker finds it
      if [ -e "$file" ]; then row "$lib" found "$(dirname "$file")"; else row "$lib" absent "part of the CUDA toolkit"; fi
    done
  else row "CUDA compiler" absent "CUDA builds only; the CUDA toolkit has nvcc"; fi
  if nvidia-smi -L >/dev/null 2>&1; then row "GPU" found "$(nvidia-smi -L | head -1)"
  else row "GPU" absent "everything runs on the CPU"; fi
  for tool in "clang-format|make check" "clang-tidy|make check" "dot|the picture of the folders: apt-get install graphviz" \
      "cmake|its test: apt-get install cmake" "pkg-config|its test: apt-get install pkg-config"; do
    if command -v "${tool%%|*}" >/dev/null; then row "${tool%%|*}" found ""; else row "${tool%%|*}" absent "${tool##*|}"; fi
  done
  local python=${PYTHON:-python3}
  if "$python" -c 'import matplotlib' 2>/dev/null; then row "matplotlib" found "$python"
  else row "matplotlib" absent "pictures, make report: apt-get install python3-matplotlib and PYTHON=/usr/bin/python3"; fi
}

case "${1:-}" in
  --found)
    find_headers
    printf '%s\n' "$CXX $CPPFLAGS" "$headers"
    ;;
  --report)
    require_compiler
    look
    report
    [ ${#missing_required[@]} -eq 0 ] || { echo "The build needs: apt-get install ${missing_required[*]}"; exit 1; }
    ;;
  --install)
    require_compiler
    look
    if [ $((${#missing_required[@]} + ${#missing_optional[@]})) -gt 0 ]; then
      install_missing "${missing_required[@]}" "${missing_optional[@]}" || true
      require_compiler
      look
    fi
    if [ ${#missing_required[@]} -gt 0 ]; then
      echo "skytape: missing: ${missing_required[*]}. Install with:" >&2
      echo "  sudo apt-get update && sudo apt-get install ${missing_required[*]} ${missing_optional[*]}" >&2
      exit 1
    fi
    [ ${#missing_optional[@]} -eq 0 ] || echo "skytape: building without ${missing_optional[*]} (make doctor says what is lost)" >&2
    have=
    while IFS='|' read -r _ header _ name libraries _; do
      if [ -n "$name" ] && have_header "$header"; then have="$have $name"; echo "LIB_$name := $libraries"; fi
    done < <(needs)
    echo "OPTIONAL :=$have"
    echo "EIGEN_FLAGS := $eigen_flags"
    ;;
  *) echo "usage: dependencies.sh --install | --report | --found" >&2; exit 2 ;;
esac
