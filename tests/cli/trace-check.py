"""Checks a trace against the Trace Event Format: trace-check.py FILE RANKS STEPS."""
import collections
import json
import sys

path, ranks, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
events = json.load(open(path, encoding="utf-8"))
spans = collections.defaultdict(list)
flights = collections.defaultdict(list)
seen = collections.defaultdict(set)
for e in events:
    assert e["ph"] in "MXbe", e
    if e["ph"] == "X":
        assert e["dur"] >= 0 and e["ts"] >= 0, e
        spans[e["pid"], e["tid"]].append(e)
        seen[e["pid"]].add(e["cat"])
    elif e["ph"] in "be":
        flights[e["pid"], e["cat"], e["id2"]["local"]].append(e)
        seen[e["pid"]].add(e["cat"])
assert {p for p, _ in spans} == set(range(ranks)), spans.keys()
names = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
assert names == {f"rank {r}" for r in range(ranks)}, names

# Spans of one thread are nested or disjoint, up to a nanosecond of rounding.
for thread, list_ in spans.items():
    stack = []
    for e in sorted(list_, key=lambda e: (e["ts"], -e["dur"])):
        end = e["ts"] + e["dur"]
        while stack and stack[-1] <= e["ts"] + 2e-3:
            stack.pop()
        assert not stack or end <= stack[-1] + 2e-3, (thread, e, stack[-1])
        stack.append(end)
for pair in flights.values():
    assert [e["ph"] for e in pair] == ["b", "e"] and pair[0]["ts"] <= pair[1]["ts"], pair
for rank in range(ranks):
    assert seen[rank] >= {"compute", "unit", "message", "pipeline", "optimizer", "step", "save"}, seen[rank]
    assert len([e for e in spans[rank, 0] if e["cat"] == "step"]) == steps
assert any("data" in s for s in seen.values())

# All ranks use one clock: a step ends with an all-reduce, so no rank begins its next step before all have
# reached it.
for s in range(1, steps):
    ends = [e["ts"] + e["dur"] for r in range(ranks) for e in spans[r, 0] if e["cat"] == "step" and e["args"]["step"] == s]
    starts = [e["ts"] for r in range(ranks) for e in spans[r, 0] if e["cat"] == "step" and e["args"]["step"] == s]
    agreed = [e["ts"] + e["dur"] for r in range(ranks) for e in spans[r, 0]
              if e["cat"] == "message" and e["args"]["what"] == "loss and signals"]
    later = [x for x in agreed if x > max(starts)]
    assert len(ends) == ranks and min(later) > max(starts), (s, ends, starts)
# SPDX-License-Identifier: Apache-2.0
