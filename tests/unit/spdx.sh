#!/bin/sh
# Every file names its licence (scripts/spdx adds the line where it is missing).
exec "${1:?usage: spdx.sh ROOT}/scripts/spdx" --check
# SPDX-License-Identifier: Apache-2.0
