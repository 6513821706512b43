#!/bin/sh
# clones.sh SOURCE: functions that are compiled for several processors (DT_SIMD, DT_CLONES) are static, and have names of
# their own: clang gives what chooses among them another name, which other files do not call, and makes that global.
set -eu
cd "$1"
twice=$(find kernels libcommon -name '*.c' -print0 | xargs -0 grep -hE '(DT_SIMD|DT_CLONES) [^(]*[a-z_0-9]+\(' |
	sed -E 's/.*[ *]([a-z_0-9]+)\(.*/\1/; s/\(.*//' | sort | uniq -d)
open=$(find kernels libcommon \( -name '*.c' -o -name '*.h' \) -print0 |
	xargs -0 grep -HnE '(DT_SIMD|DT_CLONES) +[a-z_]+[ *]+[^ (]+\(' | grep -vE 'static (inline )?(DT_SIMD|DT_CLONES)|DT_CLONES static' || true)
[ -z "$open" ] || { printf 'clones that are not static:\n%s\n' "$open"; exit 1; }
[ -z "$twice" ] || { echo "clones of one name in two files: $twice"; exit 1; }
# SPDX-License-Identifier: Apache-2.0
