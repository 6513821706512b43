#!/bin/sh
# clones.sh SOURCE: functions that are compiled for several processors (DT_SIMD, DT_CLONES) have names of their own, static
# or not: clang makes what chooses among them global.
set -eu
cd "$1"
twice=$(find kernels libcommon -name '*.c' -print0 | xargs -0 grep -hE '(DT_SIMD|DT_CLONES) [^(]*[a-z_0-9]+\(' |
	sed -E 's/.*[ *]([a-z_0-9]+)\(.*/\1/; s/\(.*//' | sort | uniq -d)
[ -z "$twice" ] || { echo "clones of one name in two files: $twice"; exit 1; }
# SPDX-License-Identifier: Apache-2.0
