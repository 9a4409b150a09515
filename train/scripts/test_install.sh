#!/usr/bin/env bash
# test_install.sh BUILD SCRATCH: installs into SCRATCH, then builds and runs a program that uses only
# the installed library, outside the source tree.
set -eu
mode=$(basename "$1")
source=$PWD/tests/install_example/src/gradcheck_own_function.cpp
case ${mode##*-} in cuda) cuda=1 ;; simulated) cuda=simulated ;; *) cuda=0 ;; esac
make -s install MODE="${mode%-*}" CUDA=$cuda PREFIX="$2/installed" >/dev/null
cd "$2"
export PKG_CONFIG_PATH=$2/installed/lib/pkgconfig
sanitize=$([ "${mode%-*}" = asan ] && echo "-fsanitize=address,undefined" || true)
flags() { sed -n "s/^$1: //p" "$PKG_CONFIG_PATH/skytape.pc"; }
# shellcheck disable=SC2046,SC2086  # flags are lists, and so is "ccache g++"
${CXX:-g++} $(flags Cflags) $sanitize "$source" $(flags Libs) -o own
if ./own >own.log 2>&1; then
  echo "installed library: a program outside the tree checks its own gradient"
else
  cat own.log
  echo "installed library: FAILED"
  exit 1
fi
