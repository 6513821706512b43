# Sourced: machines of one's own on this one, network namespaces joined by slowlink. Needs root, iproute2 and a TUN device.
#
#   slownet_up SLOWLINK NODES RANKS BITS-PER-SECOND DELAY-US    machines net-1 ...; returns 1 and says why where it cannot
#   slownet_run COMMAND ...    on the first machine, in the background: its process is $slownet_pid
#   slownet_down               ends everything
#
# In slownet_run's environment mpirun finds the others: $slownet_hosts is the list for its -host. Nothing of this is in
# the namespace of the caller, so the addresses clash with nobody's. The caller sees to it that slownet_down is called
# (trap ... EXIT), and waits for slownet_pid so that a signal is not put off.
slownet_up()
{
	local slowlink=$1 i names=()
	slownet_nodes=$2 slownet_tag=dtn$$ slownet_hosts= slownet_pid= slownet_link=
	[ "$(id -u)" = 0 ] || { slownet_why='needs root for network namespaces'; return 1; }
	for i in ip mpirun unshare; do
		command -v $i >/dev/null || { slownet_why="no $i"; return 1; }
	done
	[ -c /dev/net/tun ] || { slownet_why='no /dev/net/tun'; return 1; }
	slownet_dir=$(mktemp -d) || { slownet_why='no temporary folder'; return 1; }
	for i in $(seq "$slownet_nodes"); do
		ip netns add "$slownet_tag-$i" 2>/dev/null || { slownet_why='network namespaces are not allowed here'; return 1; }
		names+=("$slownet_tag-$i")
		slownet_hosts+=${slownet_hosts:+,}10.201.37.$i:$3
	done
	"$slowlink" "$4" "$5" "${names[@]}" >"$slownet_dir/ready" 2>"$slownet_dir/why" &
	slownet_link=$!
	until grep -qs ready "$slownet_dir/ready"; do
		kill -0 $slownet_link 2>/dev/null || { slownet_why=$(cat "$slownet_dir/why"); return 1; }
		sleep 0.05
	done
	for i in $(seq "$slownet_nodes"); do
		ip netns exec "$slownet_tag-$i" bash -c "
			sysctl -qw net.ipv4.tcp_congestion_control=reno net.ipv6.conf.all.disable_ipv6=1
			ip link set lo up
			ip link set slow0 mtu 9000 txqueuelen 20000 up
			ip addr add 10.201.37.$i/24 dev slow0" 2>"$slownet_dir/why" ||
			{ slownet_why=$(cat "$slownet_dir/why"); return 1; }
	done
	# a machine has a name of its own, or Open MPI takes all of them for this one
	cat >"$slownet_dir/agent" <<-END
		#!/bin/bash
		host=\$1
		shift
		exec ip netns exec $slownet_tag-\${host##*.} unshare --uts bash -c "hostname $slownet_tag-\${host##*.}; \$*"
	END
	chmod +x "$slownet_dir/agent"
	export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
	export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent=$slownet_dir/agent
	export OMPI_MCA_btl_tcp_if_include=10.201.37.0/24 OMPI_MCA_oob_tcp_if_include=10.201.37.0/24
	export OMPI_MCA_btl=self,vader,tcp
}

slownet_run()
{
	# shellcheck disable=SC2016 # the inner shell's arguments
	ip netns exec "$slownet_tag-1" unshare --uts bash -c 'hostname "$0"; exec "$@"' "$slownet_tag-1" "$@" &
	slownet_pid=$!
}

slownet_down()
{
	local i pids
	[ -n "${slownet_tag:-}" ] || return 0
	for i in $(seq "$slownet_nodes"); do
		for _ in 1 2 3 4 5; do # what is ending may still start something
			pids=$(ip netns pids "$slownet_tag-$i" 2>/dev/null)
			[ -n "$pids" ] || break
			# shellcheck disable=SC2086
			kill -KILL $pids 2>/dev/null
			sleep 0.05
		done
		ip netns del "$slownet_tag-$i" 2>/dev/null
	done
	[ -z "$slownet_link" ] || kill "$slownet_link" 2>/dev/null
	[ -z "$slownet_dir" ] || rm -rf "$slownet_dir"
	slownet_tag=
}
# SPDX-License-Identifier: Apache-2.0
