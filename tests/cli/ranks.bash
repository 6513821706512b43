# What test files of programs that run on ranks share: `load ranks`, then on_ranks in setup_file, in_folder in setup.

in_folder() {
    PATH=$DT_BIN:$PATH
    cd "$BATS_FILE_TMPDIR" || return 1
}

# fixed_text: 22 KB of words in text.txt that are always the same: the licence, and its lines from back to front
fixed_text() {
    { cat "$DT_SRC/LICENSE"; awk '{ for (i = NF; i > 0; i--) printf "%s%s", $i, i > 1 ? " " : "\n" }' "$DT_SRC/LICENSE"; } >text.txt
}

on_ranks() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
    in_folder
}
# SPDX-License-Identifier: Apache-2.0
