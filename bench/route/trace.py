#!/usr/bin/env python3
"""Converts a trace to lines "SECONDS BLOCK-TOKENS INPUT OUTPUT NAME ..." for bench/route/simulate: one name per block, equal
names for equal blocks.
  trace.py FILE[.gz]      a Mooncake trace (hash_ids), or one with token ids (input_tok_ids), which is cut into blocks of 16"""
import gzip
import json
import sys

if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
    asked = sys.argv[1:2] in (["-h"], ["--help"])
    print(__doc__, file=sys.stdout if asked else sys.stderr)
    sys.exit(0 if asked else 2)

lines = []
with (gzip.open if sys.argv[1].endswith(".gz") else open)(sys.argv[1], "rt") as f:
    for line in f:
        q = json.loads(line)
        if "hash_ids" in q:
            lines.append((q["timestamp"] / 1000, 512, q["input_length"], q["output_length"], q["hash_ids"]))
        else:
            ids = q["input_tok_ids"]
            names = [hash(tuple(ids[i:i + 16])) & (2**62 - 1) for i in range(0, len(ids) - 15, 16)]
            lines.append((q["arrival_time_ns"] / 1e9, 16, q["input_toks"], q["output_toks"], names))
lines.sort(key=lambda v: v[0])
for t, block, i, o, names in lines:
    print(f"{t - lines[0][0]:.6f} {block} {i} {o}", *names)
# SPDX-License-Identifier: Apache-2.0
