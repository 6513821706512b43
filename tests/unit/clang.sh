#!/bin/sh
# With DT_SLOW=1: clang accepts every C file of kernels/, libcommon/ and tools/, with the options that the build gives
# each of them (a file compiled for several processors is read once for each), and warns of nothing.
#   clang.sh BUILD
set -u
cd "${1:?usage: clang.sh BUILD}" || exit 1
[ "${DT_SLOW:-0}" = 1 ] || { echo "skipped: takes long: DT_SLOW=1"; exit 77; }
for need in clang jq; do
    command -v $need >/dev/null 2>&1 || { echo "skipped: needs $need"; exit 77; }
done
list=$(jq -r '.[] | select(.file | test("(kernels|libcommon|tools)/[^.]*\\.c$")) | select(.file | test("tests/") | not) |
    .command | sub("^(ccache )?[^ ]+ "; "") | sub(" -MD .* -c "; " ")' compile_commands.json | sort -u)
[ -n "$list" ] || { echo "no C file in compile_commands.json"; exit 1; }
# gcc's options that clang does not know are ignored
printf '%s\n' "$list" | xargs -d '\n' -P "$(nproc)" -I '{}' \
    sh -c 'clang -fsyntax-only -Werror -Wno-unknown-warning-option -Wno-ignored-optimization-argument {}'
# SPDX-License-Identifier: Apache-2.0
