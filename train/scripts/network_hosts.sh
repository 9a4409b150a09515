#!/usr/bin/env bash
# Trains on several hosts that are network namespaces of this machine: each has an address and a name
# of its own, and ranks talk over real sockets. Needs root, ip and Open MPI's mpirun.
#   network_hosts.sh HOSTS [DATA]   HOSTS: 2 to 9; DATA: folder of data sets (made where it is missing)
# Shows that the hosts end with the bits of one process; then cuts one off in the middle, sees the job
# stop, and resumes. The last line is "N passed, N failed".
set -u
source train/scripts/common.sh
hosts=${1:-2} data=${2:-datasets}
program=${SKYTAPE_PROGRAM:-build/skytape}
scratch=$(mktemp -d)
passed=0 failed=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

clean() {
  [ -z "${mpirun:-}" ] || kill -9 "$mpirun" 2>/dev/null
  for i in $(seq "$hosts"); do
    ip netns pids "sky$i" 2>/dev/null | xargs -r kill -9 2>/dev/null
    ip netns del "sky$i" 2>/dev/null
  done
  ip link del sky-bridge 2>/dev/null
  rm -rf "$scratch"
}
trap clean EXIT

ip link add sky-bridge type bridge && ip addr add 10.77.0.254/24 dev sky-bridge && ip link set sky-bridge up || exit 1
list=
for i in $(seq "$hosts"); do
  ip netns add "sky$i"
  ip link add "sky-to$i" type veth peer name eth0 netns "sky$i"
  ip link set "sky-to$i" master sky-bridge up
  ip -n "sky$i" addr add "10.77.0.$i/24" dev eth0
  ip -n "sky$i" link set eth0 up
  ip -n "sky$i" link set lo up
  list+=${list:+,}sky$i:1
done

# The command by which mpirun starts its daemons, instead of ssh: HOST COMMAND…
cat >"$scratch/agent" <<'AGENT'
#!/bin/sh
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0"; exec sh -c "$*"' "$host" "$@"
AGENT
chmod +x "$scratch/agent"

job() {
  mpirun -np "$hosts" --host "$list" --mca plm_rsh_agent "$scratch/agent" --mca btl tcp,self \
    --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 --bind-to none \
    --mca oob_tcp_keepalive_time 5 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 5 "$@"
}
train=("$program" train --task listops --data "$data" --steps 60 --batch 8 --threads 1 --log-every 5
  --set accumulate=4 --set max_length=256 --set eval_examples=32 --set width=16 --set ff_width=16
  --set checkpoint_every=10 --rank-timeout 20)
same() { cmp <(tensors "$scratch/$1/last.safetensors") <(tensors "$scratch/$2/last.safetensors"); }
check() {
  if "${@:2}"; then passed=$((passed + 1)); echo "== $1: ok"; else failed=$((failed + 1)); echo "== $1: FAILED"; fi
}

check "one process" "${train[@]}" --out "$scratch/one"
check "$hosts hosts" job "${train[@]}" --out "$scratch/hosts"
check "$hosts hosts: the bits of one process" same one hosts

start=$SECONDS
job "${train[@]}" --out "$scratch/cut" 2>"$scratch/err" &
mpirun=$!
until grep -q "^step 20" "$scratch/err" || ! kill -0 $mpirun 2>/dev/null; do sleep 0.1; done
ip link set "sky-to$hosts" down
cut=$SECONDS
wait $mpirun
code=$?
cat "$scratch/err"
echo "cut off after $((cut - start)) s, stopped $((SECONDS - cut)) s later with exit code $code"
check "a host cut off: the job stops within a minute" [ $((SECONDS - cut)) -lt 60 ]
check "a host cut off: not with success" [ "$code" -ne 0 ]
# mpirun's own message where its daemon is missed first, else that of the ranks.
check "a host cut off: its name is said" grep -q "from rank .* on sky$hosts\|on node sky$hosts" "$scratch/err"
ip link set "sky-to$hosts" up
# Who asked for the host's hardware address meanwhile remembers that nobody answered.
for i in $(seq "$hosts"); do ip -n "sky$i" neigh flush dev eth0; done
for i in $(seq 50); do [ -z "$(ip netns pids "sky$hosts")" ] && break; sleep 1; done
check "the host that was cut off has stopped too" [ -z "$(ip netns pids "sky$hosts")" ]
check "the job resumes" job "${train[@]}" --resume --out "$scratch/cut"
check "the resumed job has the bits of one process" same one cut

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
