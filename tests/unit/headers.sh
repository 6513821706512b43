#!/bin/sh
# All headers of libcommon and kernels compile in one unit, in two orders: no two rows define the same name, and
# each header includes what it needs. Nor do two units of kernels/cuda: of templates of C++ that differ by such a
# struct alone the linker keeps one.
#   headers.sh ROOT      the tree to look at
set -u
cd "${1:?usage: headers.sh ROOT}" || exit 1
unit=$(mktemp -d) || exit 1
trap 'rm -rf "$unit"' EXIT
# kernels/cuda is C++ for a card; *_priv.h, internal.h and the headers of the processor's kernels are of one folder
find libcommon kernels -name '*.h' ! -path 'kernels/cuda/*' ! -path 'kernels/cpu/*' | sort |
    sed 's,^libcommon/,,; s/.*/#include "&"/' >"$unit/forward.c"
if [ ! -s "$unit/forward.c" ]; then
    echo "no header found: wrong folder?"
    exit 1
fi
twice=$(sed -n 's/^struct \([a-z_0-9]*\) {.*/\1/p' kernels/cuda/*.cu | sort | uniq -d)
if [ -n "$twice" ]; then
    echo "defined by two units of kernels/cuda: struct $twice"
    exit 1
fi
sort -r "$unit/forward.c" >"$unit/backward.c"
flags=$(pkg-config --cflags ompi-c hdf5 jansson libmicrohttpd libevent_core 2>/dev/null)
for order in forward backward; do
    # shellcheck disable=SC2086 # words
    ${CC:-cc} -std=gnu11 -D_GNU_SOURCE -DDT_VERSION='""' -fopenmp -fsyntax-only -w -I. -Ilibcommon $flags \
        "$unit/$order.c" || exit 1
done
# SPDX-License-Identifier: Apache-2.0
