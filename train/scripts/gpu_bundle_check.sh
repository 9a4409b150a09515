#!/usr/bin/env bash
# gpu_bundle_check.sh BUNDLE: runs a bundle in an otherwise empty root folder that has the C library
# and a CUDA runtime's cuBLAS, as on a machine where nothing was installed. Needs root, or a kernel
# that lets users make namespaces. Exit status 1: it would not run there.
set -eu
bundle=$(realpath "$1")
if [ -z "${IN_NAMESPACE:-}" ]; then
  as_root=()
  [ "$(id -u)" = 0 ] || as_root=(--map-root-user)
  exec env IN_NAMESPACE=1 unshare --mount "${as_root[@]}" "$0" "$bundle"
fi

root=$(mktemp -d)
leave() {
  umount -R "$root" 2>/dev/null || true # the namespace's mounts end with it in any case
  rm -rf --one-file-system "$root"
}
trap leave EXIT
mount --make-rprivate /
mount -t tmpfs none "$root"
mkdir -p "$root"/{bundle,proc,tmp,cuda,usr/local/cuda/lib64}
mount --rbind /proc "$root/proc" # the loader asks it where the program is
mount --bind "$bundle" "$root/bundle"
mount -o remount,bind,ro "$root/bundle"

# place FILE FOLDER: the file, under the name that programs ask for, in a folder of the new root.
place() {
  mkdir -p "$root$2"
  : >"$root$2/$(basename "$1")"
  mount --bind "$(realpath "$1")" "$root$2/$(basename "$1")"
}
libraries=$(ldd "$bundle/skytape-lab" "$bundle/skytape_tests" | grep -o '/[^ ]*' | grep -v ':$' | sort -u | grep -v "^$bundle/")
cublas=
for library in $libraries; do
  case $library in
    *libcublas*) cublas="$cublas $library" ;;
    */ld-linux* | */libc.so.* | */libm.so.* | */libmvec.so.* | */libdl.so.* | */librt.so.* | */libpthread.so.*)
      place "$library" "$(dirname "$library")" ;;
    *) ;; # not there, so that it will be missed
  esac
done

run() { env -i PATH=/usr/sbin:/usr/bin OMP_WAIT_POLICY=passive ${FOLDER:+LD_LIBRARY_PATH=$FOLDER} chroot "$root" "$@"; }
# expect STATUS WORDS COMMAND…: ends so and says that.
expect() {
  local status=0 want=$1 words=$2 text
  shift 2
  text=$(run "$@" 2>&1) || status=$?
  if [ $status -ne "$want" ] || ! grep -q -e "$words" <<<"$text"; then
    echo "gpu_bundle_check: $*: exit $status, expected $want and '$words'; got" >&2
    tail -n 5 <<<"$text" >&2
    exit 1
  fi
  echo "empty root: $*: $(grep -m 1 -e "$words" <<<"$text")"
}

# Without cuBLAS nothing can start: the new root is as empty as it should be.
expect 127 'libcublas.so' /bundle/skytape-lab --version
# A Python wheel's folder, and then the toolkit's.
for library in $cublas; do place "$library" /wheel/nvidia/cublas/lib; done
FOLDER=/wheel/nvidia/cublas/lib expect 0 '^skytape ' /bundle/skytape-lab --version
for library in $cublas; do place "$library" /usr/local/cuda/lib64; done
expect 0 '^skytape ' /bundle/skytape-lab --version
expect 2 'no GPU answers' /bundle/skytape-lab info gpu
expect 0 'stopped as asked after step 3' /bundle/skytape-lab train --device cpu --data /bundle/datasets \
  --out /tmp/run --steps 20 --stop-after 3 --batch 2 --set max_length=128
expect 0 '^[1-9][0-9]* passed, 0 failed' /bundle/skytape_tests -tc='gemm*,softmax*'
