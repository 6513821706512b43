# Helpers that skip slow tests without DT_SLOW=1, and until_true. Use: `load slow`; ranks.bash and server.bash
# load it.
# shellcheck shell=bash disable=SC2034 # variables of the files that load this

# slow: true if slow tests are to run, too.
slow() {
    [ "${DT_SLOW:-0}" = 1 ]
}

# takes_long: first command of a slow test that is not the only one for what it shows. Skips it without
# DT_SLOW=1.
takes_long() {
    slow || skip "takes long: DT_SLOW=1"
}

# few COUNT ALL: prints COUNT; with DT_SLOW=1 prints ALL.
few() {
    if slow; then echo "$2"; else echo "$1"; fi
}

# one_of N ITEM...: sets the array `some` to every Nth item, beginning with the first; with DT_SLOW=1 to all.
# Order the items so that those selected cover most.
one_of() {
    local n=$1
    ! slow || n=1
    shift
    some=()
    while [ $# -gt 0 ]; do
        some+=("$1")
        shift $((n < $# ? n : $#))
    done
}

# every N A,B,C...: prints every Nth item of a list of layouts, beginning with the first; with DT_SLOW=1 all
# of them.
every() {
    local some items
    IFS=, read -ra items <<<"$2"
    one_of "$1" "${items[@]}"
    (IFS=, && echo "${some[*]}")
}

# until_true COMMAND...: repeats the command until it succeeds, for at most $until_s seconds (default 60).
until_true() {
    for _ in $(seq $((${until_s:-60} * 10))); do
        ! "$@" || return 0
        sleep 0.1
    done
    echo "never: $*"
    return 1
}
# SPDX-License-Identifier: Apache-2.0
