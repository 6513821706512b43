#!/usr/bin/env python3
"""Tests constrained sampling by JSON schemas against the package jsonschema.

Random schemas are sent to dt-serve --batch with a small model at temperature 2, so that only the grammar
shapes the text. Every complete answer must satisfy its schema; refused schemas are counted by reason.
--write stores schemas with texts and verdicts in tests/data/golden-schemas.json for tests/unit/test_schema.c:
the answers, and modified ones that violate the schema.

    pip install jsonschema rfc3339-validator rfc3986-validator fqdn isoduration
    golden_schemas.py build/tools/dt-serve ../shared/data/stories260K/stories260K.bin --schemas 2000
"""
import argparse, collections, json, random, subprocess, sys
from decimal import Decimal

import jsonschema

WORDS = ["a", "ab", "b", "name", "kind", "x-y", "é", "q\"t", "10"]
PATTERNS = ["^[a-f]{2,5}$", "b", "^a|z$", "^(ab|cd)*e?$", "^[^xyz]{1,4}$", "^[0-9]{3}-[0-9]{2}$", "^x", "y+$",
            "^(a|b)*a(a|b)$", "^[A-Z][a-z]+( [A-Z][a-z]+)?$", "^.{1,3}$", "^\\S+$"]
FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "ipv6", "email", "hostname", "uri", "duration"]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def value(self, depth=0):
        r = self.r
        k = r.randrange(8 if depth < 2 else 6)
        return [None, True, r.randrange(-20, 20), r.choice([0.5, -1.25, 0.1, 3.0]), r.choice(WORDS), "",
                [self.value(depth + 1) for _ in range(r.randrange(3))] if k == 6 else [],
                {w: self.value(depth + 1) for w in r.sample(WORDS, 2)} if k == 7 else {}][k]

    def number(self, kind):
        r, s = self.r, {"type": kind}
        lo = r.choice([-100, -3, 0, 1, 0.5, -0.25, 99, 7, 1000]) if r.random() < .6 else None
        if lo is not None:
            s[r.choice(["minimum", "exclusiveMinimum"])] = lo
        if r.random() < .5:
            s[r.choice(["maximum", "exclusiveMaximum"])] = (lo or 0) + r.choice([1, 2.5, 10, 100, 12345])
        if r.random() < .4:
            s["multipleOf"] = r.choice([1, 2, 3, 7, 10, 25] + ([0.5, 0.1, 0.25, 1.5] if kind == "number" else []))
        return s

    def string(self):
        r, s = self.r, {"type": "string"}
        if r.random() < .4:
            s["pattern"] = r.choice(PATTERNS)
        elif r.random() < .3:
            s["format"] = r.choice(FORMATS)
        if r.random() < .3:
            s["minLength"] = r.randrange(4)
        if r.random() < .4:
            s["maxLength"] = s.get("minLength", 0) + r.randrange(1, 20 if "format" not in s else 60)
        if r.random() < .1:
            s["not"] = r.choice([{"const": "a"}, {"pattern": "a"}, {"maxLength": 2}, {"enum": ["", "b"]}])
        return s

    def array(self, depth):
        r, s = self.r, {"type": "array"}
        if r.random() < .3:
            s["prefixItems"] = [self.schema(depth + 1) for _ in range(r.randrange(1, 4))]
        if r.random() < .8:
            s["items"] = self.schema(depth + 1)
        if r.random() < .5:
            s["minItems"] = r.randrange(4)
        if r.random() < .7:
            s["maxItems"] = s.get("minItems", 0) + r.randrange(4)
        if r.random() < .15:
            s.pop("prefixItems", None)
            s["items"], s["uniqueItems"] = {"enum": [1, 2, "a", None, "1"][:r.randrange(1, 6)]}, True
        return s

    def object(self, depth):
        r, s = self.r, {"type": "object"}
        names = r.sample(WORDS, r.randrange(5))
        if names:
            s["properties"] = {w: self.schema(depth + 1) for w in names}
        s["required"] = r.sample(names, r.randrange(len(names) + 1)) + (["extra"] if r.random() < .05 else [])
        if r.random() < .5:
            s["additionalProperties"] = r.choice([False, False, True, self.schema(depth + 1)])
        if r.random() < .15:
            s["patternProperties"] = {p: self.schema(depth + 1) for p in r.sample(["^a", "b$", "^[x-z]+$"], 2)}
        if r.random() < .1:
            s["propertyNames"] = r.choice([{"maxLength": 4}, {"pattern": "^[a-z]"}])
        if r.random() < .15:
            s["minProperties"] = r.randrange(3)
        if r.random() < .15:
            s["maxProperties"] = r.randrange(1, 4)
        if names and r.random() < .1:
            s["dependentRequired"] = {names[0]: [names[-1]]}
        if names and r.random() < .08:
            s["dependentSchemas"] = {names[0]: {"required": [names[-1]]}}
        return s

    def schema(self, depth=0):
        r = self.r
        k = r.random()
        if depth < 3 and k < .18:
            return self.combined(depth)
        if k < .22:
            return r.choice([True, {}, {"$ref": "#/$defs/leaf"}])
        if k < .3:
            return r.choice([{"const": self.value()}, {"enum": [self.value() for _ in range(r.randrange(1, 5))]}])
        if depth < 3 and k < .55:
            return self.object(depth)
        if depth < 3 and k < .7:
            return self.array(depth)
        return r.choice([self.string, self.string, lambda: self.number("integer"), lambda: self.number("number"),
                         lambda: {"type": ["null", "boolean"]}, lambda: {"type": "boolean"}])()

    def combined(self, depth):
        r = self.r
        some = [self.schema(depth + 1) for _ in range(r.randrange(1, 4))]
        k = r.randrange(5)
        if k == 0:
            return {"anyOf": some, "title": "one of these"}
        if k == 1:
            return {"oneOf": some}
        if k == 2:
            return {"allOf": [self.string(), {"maxLength": 30}, r.choice([{}, {"pattern": "a"}])]}
        if k == 3:
            return {"allOf": [self.object(depth + 1), self.object(depth + 1)]}
        return {"type": "object", "properties": {"kind": {"enum": ["u", "v"]}, "n": self.number("integer")},
                "required": ["kind"], "anyOf": [{"properties": {"kind": {"const": "u"}}}, {"required": ["n"]}]}

    def top(self):
        s = self.schema()
        while not isinstance(s, dict) or "$ref" in s:
            s = self.schema()
        s["$defs"] = {"leaf": {"type": "object", "properties": {
            "v": {"type": "integer", "minimum": 0, "maximum": 99},
            "next": {"anyOf": [{"$ref": "#/$defs/leaf"}, {"type": "null"}]}}, "required": ["v"],
            "additionalProperties": False}}
        return s


def exact(text):
    return json.loads(text, parse_float=Decimal)


def judge(schema):
    return jsonschema.Draft202012Validator(exact(json.dumps(schema)),
                                           format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)


def serve(args, schemas):
    lines = "".join(json.dumps({
        "prompt": "Once", "max_tokens": 450, "temperature": 2, "seed": i, "id": i,
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": s}}}) + "\n"
        for i, s in enumerate(schemas))
    out = subprocess.run([args.serve, "--batch", "--tokenizer", args.tokenizer, args.model], input=lines.encode(), stdout=subprocess.PIPE, check=False)
    return [json.loads(line) for line in out.stdout.splitlines()]


def changed(r, text):
    """Returns a slightly different text: one byte or one value is changed."""
    v = json.loads(text)
    k = r.randrange(5)
    if k == 0 and isinstance(v, dict) and v:
        v.pop(r.choice(list(v)))
    elif k == 1 and isinstance(v, dict):
        v[r.choice(["zz", "a", "b"])] = r.choice([0, "x", None])
    elif k == 2 and isinstance(v, list):
        v.append(r.choice([v[0] if v else 1, "x", 5000]))
    elif k == 3 and isinstance(v, (int, float)) and not isinstance(v, bool):
        v += r.choice([1, -1, 1000, 0.3])
    elif isinstance(v, str):
        v = r.choice([v + "q", v[1:], v.upper(), v * 9])
    else:
        v = r.choice([None, 0.123, "zz", [], {"zz": 1}])
    return json.dumps(v, ensure_ascii=False)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("serve")
    p.add_argument("model")
    p.add_argument("--tokenizer", default="../shared/data/stories260K/tok512.bin")
    p.add_argument("--schemas", type=int, default=500)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--write")
    args = p.parse_args()
    schemas = [Maker(args.seed * 1000003 + i).top() for i in range(args.schemas)]
    answers = serve(args, schemas)
    assert len(answers) == len(schemas), f"{len(answers)} answers to {len(schemas)} schemas"
    count, reasons, bad, golden = collections.Counter(), collections.Counter(), 0, []
    r = random.Random(args.seed)
    for s, a in zip(schemas, answers):
        if "error" in a:
            count["refused"] += 1
            reasons[a["error"]["message"][:70]] += 1
            if "value can meet" not in a["error"]["message"] and "not supported" not in a["error"]["message"]:
                bad += 1
                print("refused:", json.dumps(s), a["error"], file=sys.stderr)
            continue
        if a["finish_reason"] != "stop":
            count["cut at max_tokens"] += 1
            continue
        v = judge(s)
        wrong = list(v.iter_errors(exact(a["text"])))
        count["good"] += not wrong
        if wrong:
            bad += 1
            print("WRONG:", json.dumps(s), a["text"], wrong[0].message, file=sys.stderr)
            continue
        others = {changed(r, a["text"]) for _ in range(4)}
        golden.append({"schema": s, "right": [a["text"]],
                       "wrong": sorted(t for t in others if not v.is_valid(exact(t)))})
    print(dict(count))
    for text, n in reasons.most_common():
        print(f"{n:6d}  {text}")
    if args.write:
        golden = [g for g in golden if len(json.dumps(g)) < 1500]
        with open(args.write, "w") as f:
            f.write("[\n" + ",\n".join(json.dumps(g, ensure_ascii=False) for g in golden[:300]) + "\n]\n")
    return bad > 0


sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
