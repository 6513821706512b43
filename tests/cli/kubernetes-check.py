"""Checks the Kubernetes objects for serving against the programs' options, metrics and routes:
kubernetes-check.py DIR SERVE-OPTIONS.json ROUTE-OPTIONS.json METRICS SERVERS.json.
Writes the router's configuration to route.json and prints the kinds."""
import glob
import json
import re
import sys

import yaml

options = {p: {o["name"] for o in json.load(open(f, encoding="utf-8"))["options"]}
           for p, f in (("dt-serve", sys.argv[2]), ("dt-route", sys.argv[3]))}
metrics = open(sys.argv[4], encoding="utf-8").read()
servers = json.load(open(sys.argv[5], encoding="utf-8"))
objects = {}
for path in sorted(glob.glob(sys.argv[1] + "/*.yaml")):
    if path.endswith(("mpijob.yaml", "katib-experiment.yaml")):
        continue
    for o in yaml.safe_load_all(open(path, encoding="utf-8")):
        assert (o["kind"], o["metadata"]["name"]) not in objects, path
        objects[o["kind"], o["metadata"]["name"]] = o


def check_args(program, args):
    for a in args:
        assert a.split("=")[0][2:] in options[program], (program, a)


def check_container(box, volumes):
    command, ports = box["command"], {p["name"] for p in box["ports"]}
    if command == ["sh", "-c"]:
        (line,) = re.findall(r"exec (dt-\w+) (.*)", box["args"][0])
        check_args(line[0], [w for w in line[1].split() if w.startswith("--")])
        text = line[1].replace(" ", "=")
    else:
        check_args(command[0], box["args"])
        text = " ".join(box["args"])
    assert re.search(r"--port=(\d+)", text)[1] == str(box["ports"][0]["containerPort"])
    assert "--host=0.0.0.0" in text
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        if probe in box:
            get = box[probe]["httpGet"]
            assert get["path"] == "/health" and (get["port"] in ports or get["port"] == box["ports"][0]["containerPort"])
    assert {m["name"] for m in box.get("volumeMounts", [])} == {v["name"] for v in volumes}


for (kind, name), o in objects.items():
    spec = o.get("spec", {})
    if kind == "Deployment":
        pod = spec["template"]
        assert spec["selector"]["matchLabels"] == pod["metadata"]["labels"]
        (container,) = pod["spec"]["containers"]
        check_container(container, pod["spec"]["volumes"])
    elif kind == "Service":
        target = objects["Deployment", spec["selector"]["app"]]["spec"]["template"]["spec"]["containers"][0]
        assert {p["targetPort"] for p in spec["ports"]} <= {p["name"] for p in target["ports"]}
    elif kind == "ServingRuntime":
        check_container(spec["containers"][0], [])
    elif kind == "InferenceService":
        model = spec["predictor"]["model"]
        formats = objects["ServingRuntime", model["runtime"]]["spec"]["supportedModelFormats"]
        assert model["modelFormat"]["name"] in {f["name"] for f in formats}
    elif kind in ("ScaledObject", "HorizontalPodAutoscaler"):
        assert ("Deployment", spec["scaleTargetRef"]["name"]) in objects
    elif kind == "PodDisruptionBudget":
        assert spec["selector"]["matchLabels"] == objects["Deployment", name]["spec"]["selector"]["matchLabels"]

conf = json.loads(objects["ConfigMap", "dt-route"]["data"]["route.json"])
(server,) = conf["servers"]
service = re.fullmatch(r"http://([a-z-]+):(\d+)", server["url"])
assert objects["Service", service[1]]["spec"]["clusterIP"] == "None" and server["each"]
assert int(service[2]) in {p["port"] for p in objects["Service", service[1]]["spec"]["ports"]}
server["url"] = "http://127.0.0.1:" + service[2]  # the configured name exists only in the cluster
json.dump(conf, open("route.json", "w", encoding="utf-8"))

scaled = objects["ScaledObject", "dt-serve"]["spec"]
(trigger,) = scaled["triggers"]
assert ("TriggerAuthentication", trigger["authenticationRef"]["name"]) in objects
assert isinstance(servers[trigger["metadata"]["valueLocation"]], int)
url = re.fullmatch(r"http://([a-z-]+)/route/servers", trigger["metadata"]["url"])
assert 80 in {p["port"] for p in objects["Service", url[1]]["spec"]["ports"]}
hpa = objects["HorizontalPodAutoscaler", "dt-serve"]["spec"]
(metric,) = [m["external"]["metric"]["name"] for m in hpa["metrics"]]
assert re.search("^" + metric + r" \d+$", metrics, re.M), metric
assert scaled["maxReplicaCount"] == hpa["maxReplicas"] == conf["scale_max"]
print(json.dumps(sorted({k for k, _ in objects})))
# SPDX-License-Identifier: Apache-2.0
