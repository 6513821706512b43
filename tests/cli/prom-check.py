"""Holds a page to Prometheus's text format and its naming: prom-check.py FILE PREFIX. Prints NAME{LABELS} VALUE."""
import re
import sys

path, prefix = sys.argv[1], sys.argv[2]
text = open(path, encoding="utf-8").read()
assert text.endswith("\n"), "no newline at the end"
kind, helped, seen, order = {}, set(), set(), []
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
        assert kind and name == order[-1], f"{name} is not under its own type"
        assert name.startswith(prefix), name
        assert (name, labels) not in seen, f"twice: {line}"
        seen.add((name, labels))
        number = float(value.replace("Inf", "inf"))
        if kind[name] == "counter":
            assert name.endswith("_total") and number >= 0, line
        else:
            assert not name.endswith("_total"), line
        assert not re.search(r"_(ms|milliseconds|kb|mib|percent)(_|$)", name), f"not a base unit: {name}"
        print(f"{name}{{{labels or ''}}} {value}")
assert set(order) == {n for n, _ in seen}, f"metrics without a value: {set(order) - {n for n, _ in seen}}"
# SPDX-License-Identifier: Apache-2.0
