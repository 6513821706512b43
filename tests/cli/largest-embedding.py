"""Prints the largest magnitude of wte[TOKEN] + wpe[p] of a GPT-2 over positions p < POSITIONS:
largest-embedding.py FILE TOKEN POSITIONS."""
import array
import json
import struct
import sys

data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
found = {}
for name, t in json.loads(data[8 : 8 + n]).items():
    for key in ("wte", "wpe"):
        if name.endswith(key + ".weight"):
            first, end = t["data_offsets"]
            assert t["dtype"] == "F32", t
            found[key] = array.array("f", data[8 + n + first : 8 + n + end]), t["shape"][1]
(wte, d), (wpe, _), token = found["wte"], found["wpe"], int(sys.argv[2])
print(max(abs(wte[token * d + i] + wpe[p * d + i]) for p in range(int(sys.argv[3])) for i in range(d)))
# SPDX-License-Identifier: Apache-2.0
