"""Checks that alert rules and dashboards use only metrics that exist: contrib-check.py RULES.yml BOARD.json
SOURCE PAGE ..."""
import glob
import json
import re
import sys

import yaml

rules, board, source, pages = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
have = set()
for page in pages:
    have |= set(re.findall(r"^# TYPE (\S+)", open(page, encoding="utf-8").read(), re.M))
for prefix, path in ("dt_route_", "route/metrics.c"), ("dt_serve_", "serve/engine/metrics.c"):
    path = f"{source}/libcommon/{path}"
    have |= {prefix + name for name in re.findall(r'"([a-z_0-9]+)", "(?:gauge|counter|histogram)"', open(path, encoding="utf-8").read())}
WORDS = """and or on ignoring without by sum max quantile rate increase time label_values""".split()


def check(expr, where):
    depth = 0
    for c in re.sub(r'"[^"]*"', '""', expr):
        depth += (c in "([{") - (c in ")]}")
        assert depth >= 0, (where, expr)
    assert depth == 0, (where, expr)
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]|\"[^\"]*\"", "", expr)
    bare = re.sub(r"\b(without|by|ignoring|on)\s*\([^)]*\)", "", bare)
    names = set(re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*", bare)) - set(WORDS)
    assert names or "label_values" in expr, (where, expr)
    assert names <= have, (where, sorted(names - have))
    return names


used, alerts = set(), set()
for group in yaml.safe_load(open(rules, encoding="utf-8"))["groups"]:
    assert set(group) == {"name", "rules"}
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule
        assert rule["alert"] not in alerts and re.fullmatch(r"[A-Z][A-Za-z]+", rule["alert"])
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s")) and rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"].endswith(".")
        alerts.add(rule["alert"])
        used |= check(rule["expr"], rule["alert"])
d = json.load(open(board, encoding="utf-8"))
ids = [p["id"] for p in d["panels"]]
assert len(ids) == len(set(ids)) >= 8 and d["schemaVersion"] >= 30
boxes = set()
for p in d["panels"]:
    g = p["gridPos"]
    cells = {(x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])}
    assert not cells & boxes and g["x"] + g["w"] <= 24, p["title"]
    boxes |= cells
    for t in p["targets"]:
        used |= check(t["expr"].replace("$instance", "x"), p["title"])
print(len(alerts), "alerts,", len(ids), "panels,", len(used), "metrics")
# SPDX-License-Identifier: Apache-2.0
