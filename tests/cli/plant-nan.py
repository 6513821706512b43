"""Makes one element of a tensor NaN: plant-nan.py FILE.safetensors NAME ELEMENT."""
import json
import struct
import sys

path, name, at = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open(path, "r+b") as f:
    (n,) = struct.unpack("<Q", f.read(8))
    tensor = json.loads(f.read(n))[name]
    size = {"F32": 4, "F16": 2, "BF16": 2}[tensor["dtype"]]
    f.seek(8 + n + tensor["data_offsets"][0] + at * size)
    f.write(b"\xff" * size)
# SPDX-License-Identifier: Apache-2.0
