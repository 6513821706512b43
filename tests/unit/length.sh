#!/bin/sh
# No C file over 800 lines (CONTRIBUTING.md): past that it is two files. No comment over 110 columns, which
# clang-format leaves as they are.
set -u
cd "${1:?usage: length.sh ROOT}" || exit 1
# shellcheck disable=SC2016 # the program is awk's
find . -path './build*' -prune -o \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cc' \) -print | sort | xargs awk '
function close_file() {
	if (lines > 800) {
		print file " has " lines " lines"
		bad = 1
	}
}
FNR == 1 {
	close_file()
	file = FILENAME
	seen++
}
{ lines = FNR }
/\/\*|^[ \t]*\*/ {
	columns = 0 # a tab goes on to the next multiple of 8
	n = split($0, part, "\t")
	for (i = 1; i <= n; i++) {
		columns += length(part[i])
		if (i < n)
			columns += 8 - columns % 8
	}
	if (columns > 110) {
		print FILENAME ":" FNR " has " columns " columns"
		bad = 1
	}
}
END {
	close_file()
	exit bad || !seen
}'
# SPDX-License-Identifier: Apache-2.0
