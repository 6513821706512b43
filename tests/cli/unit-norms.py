"""unit-norms.py DIR: the 2-norm of each unit of a GPT-2 in a safetensors folder: embedding, layers, final."""
import array
import collections
import glob
import json
import math
import re
import struct
import sys

squares = collections.defaultdict(float)
for path in glob.glob(sys.argv[1] + "/*.safetensors"):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    for name, t in json.loads(data[8 : 8 + n]).items():
        if name == "__metadata__":
            continue
        assert t["dtype"] == "F32", t
        first, end = t["data_offsets"]
        values = array.array("f", data[8 + n + first : 8 + n + end])
        layer = re.search(r"h\.(\d+)\.", name)
        unit = layer.group(1) if layer else "final" if "ln_f" in name else "embed"
        squares[unit] += math.fsum(float(v) * v for v in values)
order = ["embed"] + sorted((u for u in squares if u.isdigit()), key=int) + ["final"]
for unit in order:
    print(json.dumps([unit, math.sqrt(squares[unit])]))
# SPDX-License-Identifier: Apache-2.0
