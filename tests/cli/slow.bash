# What takes minutes runs with DT_SLOW=1 alone; until_true waits. `load slow`; ranks.bash and server.bash load it too.
# shellcheck shell=bash disable=SC2034 # variables of the files that load this

# slow: whether everything is to run
slow() {
    [ "${DT_SLOW:-0}" = 1 ]
}

# takes_long: first in a point that takes long, and is not the only one for what it shows
takes_long() {
    slow || skip "takes long: DT_SLOW=1"
}

# few COUNT ALL: COUNT, with DT_SLOW=1 ALL
few() {
    if slow; then echo "$2"; else echo "$1"; fi
}

# one_of N ITEM...: into `some` each Nth item, from the first; with DT_SLOW=1 all. The items are in an order in which
# those that stand alone cover most.
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

# every N A,B,C...: the Nth items of a list of layouts, from the first; with DT_SLOW=1 all
every() {
    local some items
    IFS=, read -ra items <<<"$2"
    one_of "$1" "${items[@]}"
    (IFS=, && echo "${some[*]}")
}

# until_true COMMAND...: waits until it succeeds, for until_s seconds (60) at most
until_true() {
    for _ in $(seq $((${until_s:-60} * 10))); do
        ! "$@" || return 0
        sleep 0.1
    done
    echo "never: $*"
    return 1
}
# SPDX-License-Identifier: Apache-2.0
