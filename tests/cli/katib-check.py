"""Checks the Katib experiment against dt-train's options: katib-check.py EXPERIMENT.yml OPTIONS.json
METRICS.jsonl. Prints how often the metrics collector's filter finds the objective."""
import json
import re
import sys

import yaml

e = yaml.safe_load(open(sys.argv[1], encoding="utf-8"))
options = {o["name"] for o in json.load(open(sys.argv[2], encoding="utf-8"))["options"]}
spec = e["spec"]
assert (e["apiVersion"], e["kind"]) == ("kubeflow.org/v1beta1", "Experiment")
assert set(spec) <= {"objective", "algorithm", "parallelTrialCount", "maxTrialCount", "maxFailedTrialCount",
                     "metricsCollectorSpec", "parameters", "trialTemplate", "earlyStopping", "resumePolicy"}
trial = spec["trialTemplate"]
assert {p["reference"] for p in trial["trialParameters"]} == {p["name"] for p in spec["parameters"]}
pod = trial["trialSpec"]["spec"]["template"]["spec"]
(box,) = [c for c in pod["containers"] if c["name"] == trial["primaryContainerName"]]
used = set(re.findall(r"\$\{trialParameters\.(\w+)\}", " ".join(box["args"])))
assert used == {p["name"] for p in trial["trialParameters"]}
for arg in box["args"]:
    assert re.fullmatch(r"--([a-z-]+)=.+", arg) and arg[2:].split("=")[0] in options, arg
source = spec["metricsCollectorSpec"]["source"]
assert f"--metrics={source['fileSystemPath']['path']}" in box["args"]
mounts = {m["name"] for m in box["volumeMounts"]}
assert mounts == {v["name"] for v in pod["volumes"]}
(pattern,) = source["filter"]["metricsFormat"]
found = dict.fromkeys([spec["objective"]["objectiveMetricName"], *spec["objective"]["additionalMetricNames"]], 0)
for line in open(sys.argv[3], encoding="utf-8"):
    have = dict(re.findall(pattern, line))
    for name in found:
        if name in have:
            assert float(have[name]) == json.loads(line)[name], (name, have[name])
            found[name] += 1
print(json.dumps(found))
# SPDX-License-Identifier: Apache-2.0
