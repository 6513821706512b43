# What test files of programs that run on ranks share: `load ranks`, then on_ranks in setup_file, in_folder in setup.
# shellcheck shell=bash disable=SC2034,SC2154 # variables of the files that load this

in_folder() {
    PATH=$DT_BIN:$PATH
    cd "$BATS_FILE_TMPDIR" || return 1
}

# fixed_text: 22 KB of words in text.txt that are always the same: the licence, and its lines from back to front
fixed_text() {
    { cat "$DT_SRC/LICENSE"; awk '{ for (i = NF; i > 0; i--) printf "%s%s", $i, i > 1 ? " " : "\n" }' "$DT_SRC/LICENSE"; } >text.txt
}

# licence_set: the licence by bytes, as the data set d.h5 of text.txt
licence_set() {
    cat "$DT_SRC/LICENSE" >text.txt
    dt-dataset build --tokenizer byte --out d.h5 text.txt
}

# train RANKS METRICS OPTION...: with $opts; what it said when it fails
train() {
    mpirun -np "$1" dt-train "${opts[@]}" --metrics "$2" "${@:3}" 2>"$2.err" || { cat "$2.err"; return 1; }
}

on_ranks() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
    in_folder
}
# SPDX-License-Identifier: Apache-2.0
