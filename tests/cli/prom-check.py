"""Checks a page against Prometheus's text format and naming rules: prom-check.py FILE PREFIX. Prints
NAME{LABELS} VALUE."""
import re
import shutil
import subprocess
import sys

path, prefix = sys.argv[1], sys.argv[2]
text = open(path, encoding="utf-8").read()
assert text.endswith("\n"), "no newline at the end"
kind, helped, seen, named, order = {}, set(), set(), set(), []
sample = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (\S+)')
for line in text.splitlines():
    if line.startswith("# HELP "):
        _, _, name, help_ = line.split(" ", 3)
        assert name not in helped and help_.endswith("."), line
        helped.add(name)
    elif line.startswith("# TYPE "):
        _, _, name, type_ = line.split(" ", 3)
        assert name in helped and name not in kind and type_ in ("gauge", "counter", "histogram"), line
        kind[name] = type_
        order.append(name)
    else:
        m = sample.fullmatch(line)
        assert m, f"not a sample: {line}"
        name, labels, value = m.groups()
        if order and kind[order[-1]] == "histogram":
            name = re.sub(r"_(bucket|sum|count)$", "", name)
        assert kind and name == order[-1], f"{name} is not under its own type"
        assert name.startswith(prefix), name
        assert ":" not in name and not re.search(r'(^|,)quantile="', labels or ""), f"kept for rules and summaries: {line}"
        assert (m[1], labels) not in seen, f"twice: {line}"
        seen.add((m[1], labels))
        named.add(name)
        number = float(value.replace("Inf", "inf"))
        if kind[name] == "counter":
            assert name.endswith("_total") and number >= 0, line
        else:
            assert not name.endswith("_total"), line
        assert not re.search(r"_(ms|milliseconds|kb|mib|percent)(_|$)", name), f"not a base unit: {name}"
        print(f"{m[1]}{{{labels or ''}}} {value}")
assert set(order) == named, f"metrics without a value: {set(order) - named}"
if shutil.which("promtool"):
    subprocess.run(["promtool", "check", "metrics"], input=text, text=True, check=True)
# SPDX-License-Identifier: Apache-2.0
