#!/bin/sh
# No C file over 800 lines (CONTRIBUTING.md): past that it is two files.
set -u
cd "${1:?usage: length.sh ROOT}" || exit 1
find . -path './build*' -prune -o \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cc' \) -exec wc -l {} \; |
    awk '$1 > 800 { print $2 " has " $1 " lines"; bad = 1 } END { exit bad || NR == 0 }'
