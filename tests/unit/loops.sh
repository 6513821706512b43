#!/bin/sh
# loops.sh SOURCE: the condition of an unrolled loop (DT_FOR) divides by constants only. UBSan checks other divisions; gcc
# then ignores the annotation and warns, which ends a sanitizer build.
set -eu
cd "$1"
bad=$(find kernels libcommon \( -name '*.c' -o -name '*.h' \) -print0 |
	xargs -0 grep -HnE 'DT_FOR ?\([^;]*;[^;]*[/%] *[a-z_(][^;]*;' || true)
[ -z "$bad" ] || { printf 'division by a variable in the condition of DT_FOR:\n%s\n' "$bad"; exit 1; }
# SPDX-License-Identifier: Apache-2.0
