#!/bin/sh
# Every C file is as clang-format 14 writes it.
set -u
cd "${1:?usage: format.sh ROOT}" || exit 1
version=$(clang-format --version 2>/dev/null | sed -n 's/.*version \([0-9]*\).*/\1/p')
if [ "$version" != 14 ]; then
    echo "skipped: needs clang-format 14, found '${version:-none}'"
    exit 77
fi
find . -path './build*' -prune -o \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cc' \) -print | sort | xargs clang-format --dry-run -Werror
# SPDX-License-Identifier: Apache-2.0
