#!/usr/bin/env bash
# test_install.sh BUILD SCRATCH: installs into SCRATCH, then builds and runs programs that use only
# the installed library, outside the source tree: with pkg-config, and with CMake. Prints a line for
# each way; a way whose tool is absent is skipped. Exit code: how many ways failed.
set -eu
mode=$(basename "$1") portable=0
case $mode in *-portable) mode=${mode%-portable} portable=1 ;; esac
case ${mode##*-} in cuda) cuda=1 ;; simulated) cuda=simulated ;; *) cuda=0 ;; esac
# A relative prefix with a blank, by a user whose files nobody else may read.
prefix=$(realpath -m --relative-to=. "$2/in stalled")
(umask 077 && make -s install MODE="${mode%-*}" CUDA=$cuda PORTABLE=$portable PREFIX="$prefix" >/dev/null)
closed=$(find "$2/in stalled" ! -perm -a=r)
[ -z "$closed" ] || { echo "installed library: not all users can read $closed"; exit 1; }
cp -r tests/install_example "$2/example"
cd "$2/example"
sanitize=$([ "${mode%-*}" = asan ] && echo "-fsanitize=address,undefined" || true)
log=$2/example/log
failed=0

# way NAME FOLDER COMMAND…: the command builds the programs in the folder; then they run.
way() {
  local name=$1 folder=$2 program
  shift 2
  if "$@" >"$log" 2>&1; then
    for program in src/*.cpp; do
      program=$folder/$(basename "$program" .cpp)
      "$program" >"$log" 2>&1 && continue
      cat "$log"
      echo "installed library, $name: $program FAILED"
      failed=$((failed + 1))
      return
    done
    echo "installed library, $name: programs outside the tree check a gradient and train"
  else
    cat "$log"
    echo "installed library, $name: FAILED to build"
    failed=$((failed + 1))
  fi
}

with_make() {
  make -s CXX="${CXX:-g++}" CXXFLAGS="$sanitize"
}
with_cmake() {
  local compiler
  read -ra compiler <<<"${CXX:-g++}"  # "ccache g++" is a list
  # The prefix that CMake is given wins over another installation that pkg-config would find.
  mkdir "$1/other"
  sed 's,^prefix=.*,prefix=/nowhere,' "$PKG_CONFIG_PATH/skytape.pc" >"$1/other/skytape.pc"
  PKG_CONFIG_PATH=$1/other
  cmake -S . -B with_cmake -DCMAKE_PREFIX_PATH="$1/in stalled" -DCMAKE_CXX_FLAGS="$sanitize" \
    -DCMAKE_CXX_COMPILER="${compiler[-1]}" && cmake --build with_cmake
}

export PKG_CONFIG_PATH=$2/in\ stalled/lib/pkgconfig
if command -v pkg-config >/dev/null; then way pkg-config . with_make
else echo "installed library, pkg-config: skipped, there is no pkg-config"; fi
if command -v cmake >/dev/null; then way CMake with_cmake with_cmake "$2"
else echo "installed library, CMake: skipped, there is no cmake"; fi
exit "$failed"
