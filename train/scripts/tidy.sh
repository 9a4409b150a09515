#!/usr/bin/env bash
# clang-tidy over all C++ sources with the build's own flags (given as arguments).
set -eu -o pipefail
stop() { echo "check: $1" >&2; exit 2; }
command -v clang-tidy >/dev/null || stop "no clang-tidy here; to install it: apt-get install clang-tidy"
flags=()
for flag in "$@"; do
  case $flag in -mprefer-vector-width=* | -mstore-max=* | -Werror) ;; *) flags+=("$flag") ;; esac
done
mapfile -t sources < <(git ls-files '*.cpp' ':!tests/fuzz' ':!tests/install_example' ':!tests/exercises/solutions' ':!train/python')
[ ${#sources[@]} -gt 0 ] || stop "git lists no sources; expected a git checkout"
found=$(mktemp)
trap 'rm -f "$found"' EXIT
export FLAGS="${flags[*]}"
status=0
printf '%s\n' "${sources[@]}" |
  xargs -P "$(nproc)" -n 4 sh -c 'clang-tidy --quiet "$@" -- $FLAGS' sh 2> >(grep -v ' generated\.$' >&2) | tee "$found" || status=1
echo "clang-tidy: $(grep -c 'warning:\|error:' "$found" || true) findings"
exit $status
