#!/usr/bin/env python3
"""A program of environments for dt-rl --env-command: a row of five cells, start in the middle; the reward is
1 at the right end and -1 at the left end."""
import json
import sys

for line in sys.stdin:
    ask = json.loads(line)
    if "open" in ask:
        cells = [2] * ask["open"]["envs"]
        answer = {"agents": 1, "observation": 5, "actions": 2}
    elif "reset" in ask:
        for i in ask["reset"]:
            cells[i] = 2
        answer = {"observations": [[float(k == cells[i]) for k in range(5)] for i in ask["reset"]]}
    else:
        cells = [c + (1 if a else -1) for c, a in zip(cells, ask["step"])]
        answer = {"observations": [[float(k == c) for k in range(5)] for c in cells],
                  "rewards": [(c == 4) - (c == 0) for c in cells], "terminated": [c in (0, 4) for c in cells]}
    print(json.dumps(answer), flush=True)
# SPDX-License-Identifier: Apache-2.0
