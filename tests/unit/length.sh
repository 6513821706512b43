#!/bin/sh
# No C file over 800 lines (CONTRIBUTING.md): past that it is two files. No comment over 110 columns, which
# clang-format leaves as they are.
set -u
cd "${1:?usage: length.sh ROOT}" || exit 1
find . -path './build*' -prune -o \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cc' \) -exec wc -l {} \; |
    awk '$1 > 800 { print $2 " has " $1 " lines"; bad = 1 } END { exit bad || NR == 0 }' || exit 1
find . -path './build*' -prune -o \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cc' \) -print | sort |
    while read -r file; do
        expand "$file" | awk -v file="$file" 'length($0) > 110 && /\/\*|^[ \t]*\*/ {
            print file ":" FNR " has " length($0) " columns"; bad = 1 } END { exit bad }' || echo over
    done | awk '{ print; bad = 1 } END { exit bad }'
# SPDX-License-Identifier: Apache-2.0
