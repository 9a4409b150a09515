# shellcheck shell=bash disable=SC2034
# Functions that several scripts use.

# tensors FILE: a checkpoint without its header, which names paths and times.
tensors() { tail -c +$(($(od -An -t u8 -N8 "$1") + 9)) "$1"; }

# cuda_test_files: files of tests with a half that runs on a GPU. The others have nothing to show
# there, nor have launches_test.cpp and late_test.cpp, which are about the simulated device's launches.
cuda_test_files() {
  grep -rlE 'tests/support/devices.hpp|Device::cuda' tests --include='*_test.cpp' |
    grep -v -e '/launches_test\.cpp$' -e '/late_test\.cpp$' | sort
}
