#!/bin/sh
# Runs shellcheck over every script: known by its first line; with DT_SLOW=1 over the tests of programs too.
set -u
cd "${1:?usage: scripts.sh ROOT}" || exit 1
if ! command -v shellcheck >/dev/null 2>&1; then
    echo "skipped: needs shellcheck"
    exit 77
fi
list=$(
    find . \( -path './build*' -o -path ./.git \) -prune -o -type f ! -name '*.bats' ! -name '*.[ch]' -print |
        while read -r file; do
            case $(head -c 64 "$file" | tr -d '\0' | head -n 1) in
            '#!/bin/sh'* | '#!/bin/bash'* | '#!/usr/bin/env bash'* | '#!/usr/bin/env sh'*) echo "$file" ;;
            esac
        done
)
if [ -z "$list" ]; then
    echo "no script found"
    exit 1
fi
# shellcheck disable=SC2086 # words
shellcheck -S warning $list || exit 1
[ "${DT_SLOW:-0}" = 1 ] || exit 0 # they take three times as long as all others
find tests -name '*.bats' -exec shellcheck -S warning -s bats -e SC2030,SC2031,SC2154 {} +
# SPDX-License-Identifier: Apache-2.0
