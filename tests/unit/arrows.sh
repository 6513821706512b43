#!/bin/sh
# Fails on an include against the arrows of CONTRIBUTING.md, and on a timed wait that may follow the wall clock.
#   arrows.sh ROOT      the tree to look at
set -u
root=${1:?usage: arrows.sh ROOT}
cd "$root" || exit 1

# shellcheck disable=SC2016 # the program is awk's
find tools libcommon kernels -name '*.[ch]' -o -name '*.cu' -o -name '*.cc' | sort | xargs awk '
BEGIN {
	# Level of each row: a row uses those of a lower level, and itself.
	level["base"] = 1; level["model"] = 2; level["plan"] = 3
	level["ckpt"] = level["data"] = level["comm"] = level["grammar"] = 4
	level["nn"] = 5
	level["train"] = level["serve"] = level["bench"] = level["supervise"] = level["route"] = level["board"] = level["convert"] = 6
	level["eval"] = level["rl"] = 7
	# Within serve: http -> api -> engine -> sched; capacity uses sched, and nothing uses it.
	folder["sched"] = 1; folder["engine"] = 2; folder["api"] = 3; folder["http"] = 4; folder["capacity"] = 5
}
function bad(why) {
	printf "%s:%d: %s: %s\n", FILENAME, FNR, what, why
	nbad++
}
/pthread_cond_(timed|clock)wait *\(/ && FILENAME != "libcommon/base/cond.c" {
	what = "pthread_cond_timedwait"
	bad("dt_cond_wait_s (base/cond.h) waits whatever becomes of the wall clock")
}
/^[ \t]*#[ \t]*include[ \t]*["<]/ {
	what = $0
	sub(/^[ \t]*#[ \t]*include[ \t]*/, "", what)
	quoted = substr(what, 1, 1) == "\""
	what = substr(what, 2)
	sub(/[">].*/, "", what)
	n = split(what, to, "/")
	split(FILENAME, from, "/")
	seen++

	if (what ~ /^(cuda|cublas|cudnn|nccl|curand|nvrtc|cooperative_groups)/ &&
	    FILENAME !~ /^kernels\/cuda\// && FILENAME != "libcommon/comm/nccl.c")
		bad("CUDA headers belong under kernels/cuda and in libcommon/comm/nccl.c")
	if (what == "mpi.h" && (from[1] == "kernels" ||
	    (from[1] == "libcommon" && from[2] != "comm")))
		bad("MPI belongs in libcommon/comm")
	if (!quoted)
		next
	if (n == 1)
		bad("a quoted include names its row: \"row/" what "\"")
	else if (to[1] == "tools" && from[1] == "tools" && to[2] ~ /\.h$/)
		next # a program of two files
	else if (to[1] == "tools" || to[1] == "tests" || to[1] == "..")
		bad("nothing includes " to[1])
	else if (to[1] == "libcommon")
		bad("rows are included as \"row/file.h\"")
	else if (to[1] == "kernels") {
		if (from[1] == "libcommon" && level[from[2]] <= 3 && to[2] == "device.h")
			bad(from[2] " knows no device")
	} else if (!(to[1] in level))
		bad("unknown row " to[1])
	else if (from[1] == "kernels")
		bad("kernels never include libcommon")
	else if (from[1] == "libcommon" && to[1] != from[2] && level[to[1]] >= level[from[2]])
		bad(from[2] " must not use " to[1])
	else if (from[1] == "libcommon" && from[2] == "serve" && from[3] == "sched" &&
		 to[1] != "serve" && to[1] != "base")
		bad("serve/sched must not use " to[1])
	else if (to[1] == "serve" && !(to[2] in folder))
		bad("unknown folder serve/" to[2])
	else if (from[1] == "libcommon" && from[2] == "serve" && folder[to[2]] > folder[from[3]])
		bad("serve/" from[3] " must not use serve/" to[2])
	else if (to[1] != from[2] && from[1] != "tests" && what ~ /(^|[\/_])(internal|priv)\.h$/)
		bad("a private header of " to[1])
	else if (FILENAME ~ /^libcommon\/bench\/load\// && to[1] != "base" && what !~ /^bench\/load\//)
		bad("bench/load uses base alone")
	else if (FILENAME ~ /^libcommon\/route\// && to[1] != "base" && to[1] != "route")
		bad("route uses base alone")
}
END {
	if (!seen)
		print "no include found: wrong folder?"
	exit nbad || !seen
}'
# SPDX-License-Identifier: Apache-2.0
