#!/usr/bin/env bats
# Compiler reports of ptxas for the attention kernels with warpgroup products; needs no GPU.

setup() {
    nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
    [ -x "$nvcc" ] || skip "no CUDA toolkit (nvcc)"
    "$nvcc" --version | grep -q 'release 1[3-9]' || skip "a toolkit before CUDA 13, whose ptxas gives out registers otherwise"
    cd "$BATS_TEST_TMPDIR" || return 1
}

# With too few registers ptxas serializes these products (C7512) or spills registers to memory.
@test "attention on sm_90: ptxas serializes no warpgroup product and spills no register" {
    for unit in attention_wg attention_wg_backward; do
        "$nvcc" -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -Xptxas -v -I"$DT_SRC" -cubin -o $unit.cubin \
            "$DT_SRC/kernels/cuda/$unit.cu" >$unit.log 2>&1
        grep -q 'Compiling entry function .*Li128E' $unit.log
        run grep -E 'serialized|[1-9][0-9]* bytes spill' $unit.log
        echo "$output"
        [ "$status" -eq 1 ]
    done
}
# SPDX-License-Identifier: Apache-2.0
