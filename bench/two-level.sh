#!/bin/bash
# Four "machines" of two ranks on this one: network namespaces joined by a bridge, 1 Gbit/s and 1 ms each way.
# Times every algorithm and the MPI library's own choice in one run a size and prints what the message costs, measured
# in the same run, predicted for each. Needs root, iproute2 with netem and Open MPI; exits 77 with a reason where it cannot run.
# Usage: two-level.sh PROGRAM-FOLDER [SIZE ...]
set -u
bin=$(realpath "${1:?usage: two-level.sh PROGRAM-FOLDER [SIZE ...]}") || exit 2
shift
sizes=("${@:-1M}") calls=${CALLS:-5}
[ "${1:-}" ] || sizes=(1M 4M)
nodes=4 ranks=2 net=10.201.37
tag=dtn$$

skip()
{
	echo "skipped: $*" >&2
	exit 77
}

cleanup()
{
	for i in $(seq "$nodes"); do
		ip netns pids "$tag-$i" 2>/dev/null | xargs -r kill 2>/dev/null
		ip netns del "$tag-$i" 2>/dev/null
	done
	ip link del "$tag" 2>/dev/null
	rm -rf "$dir"
}

# slow DEVICE [COMMAND ...]: half of the delay on either side; a kernel without netem limits the rate alone
slow()
{
	local dev=$1
	shift
	"$@" tc qdisc add dev "$dev" root netem rate 1gbit delay 500us limit 100000 2>/dev/null && return
	delay=no
	"$@" ip link set "$dev" gso_max_size 16384 gso_max_segs 10 # what is sent at once has to fit into the burst
	"$@" tc qdisc add dev "$dev" root tbf rate 1gbit burst 32kb latency 400ms || skip "no traffic shaping"
}

delay=yes
[ "$(id -u)" = 0 ] || skip "needs root for network namespaces"
for t in ip tc mpirun jq unshare; do
	command -v "$t" >/dev/null || skip "no $t"
done
dir=$(mktemp -d) || exit 1
trap cleanup EXIT
trap 'exit 1' INT TERM
ip link add "$tag" type bridge 2>/dev/null || skip "network namespaces are not allowed here"
if ! ip addr add "$net.254/24" dev "$tag" || ! ip link set "$tag" up; then
	skip "no bridge"
fi
hosts=
for i in $(seq "$nodes"); do
	ip netns add "$tag-$i" || skip "no network namespace"
	ip link add "$tag$i" type veth peer name eth0 netns "$tag-$i" || skip "no veth"
	ip link set "$tag$i" master "$tag" up
	ip netns exec "$tag-$i" bash -c "ip link set lo up; ip addr add $net.$i/24 dev eth0; ip link set eth0 up"
	slow "$tag$i"
	slow eth0 ip netns exec "$tag-$i"
	hosts+=${hosts:+,}$net.$i:$ranks
done
cat >"$dir/agent" <<END
#!/bin/bash
host=\$1
shift
exec ip netns exec $tag-\${host##*.} unshare --uts bash -c "hostname $tag-\${host##*.}; \$*"
END
chmod +x "$dir/agent"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent=$dir/agent
export OMPI_MCA_btl_tcp_if_include=$net.0/24 OMPI_MCA_oob_tcp_if_include=$net.0/24 OMPI_MCA_btl=self,vader,tcp

[ $delay = yes ] || echo 'note: no netem in this kernel: 1 Gbit/s, but without the delay of 1 ms' >&2
cd "$dir" || exit 1
for s in "${sizes[@]}"; do
	timeout 300 mpirun -np $((nodes * ranks)) -host "$hosts" "$bin/dt-allreduce-bench" --json --explain -a all \
		-b "$s" -e "$s" -n "$calls" -w 2 >out.json 2>err || {
		cat err >&2
		exit 1
	}
	jq -c '.nodes as $n | .results[] | select(.in_place) | {machines: $n, algorithm, size_bytes, p50_s, predicted_s}' \
		out.json >>all.jsonl
done
jq -rs '
    (["algorithm", "size_bytes", "measured_s", "predicted_s", "off"] | @tsv),
    (.[] | [.algorithm, .size_bytes, (.p50_s * 1e5 | round / 1e5), ((.predicted_s // 0) * 1e5 | round / 1e5),
        (if .predicted_s then "\(100 * (.predicted_s / .p50_s - 1) | round) %" else "-" end)] | @tsv)' all.jsonl | expand -t 16
jq -rs 'group_by(.size_bytes)[] | (map({(.algorithm): .p50_s}) | add) as $t |
    "\(.[0].size_bytes) bytes on \(.[0].machines) machines: two-level is \($t.ring / $t["two-level"] * 100 | round / 100) times as fast as the ring, \($t.mpi / $t["two-level"] * 100 | round / 100) times as Open MPI'"'"'s choice; predictions off by at most \(map(select(.predicted_s) | .predicted_s / .p50_s - 1 | fabs) | max * 100 | round) %"' all.jsonl
