"""Writes the metrics of a simulated run, healthy or with a planted fault: planted.py NAME FILE. Without
arguments lists all names, each with the faults that dt-doctor must report, or -."""
import json
import math
import random
import sys


class Run:
    def __init__(self, seed, steps=300, parts=None, layout=4, **more):
        self.random, self.steps, self.lines = random.Random(seed), steps, []
        self.parts = dict({"data_s": 0.001, "compute_s": 0.1, "comm_grads_s": 0.008, "comm_pipeline_s": 0.0,
                           "optimizer_s": 0.004, "checkpoint_s": 0.0}, **(parts or {}))
        self.more, self.ranks = more, layout

    def line(self, i, loss, **more):
        r = self.random
        at = {k: v * r.uniform(0.9, 1.1) for k, v in self.parts.items()}
        if i < 2:
            at["compute_s"] *= 5  # first touch of memory pages
        step_s = more.pop("step_s", sum(at.values()) * 1.01)
        lr = 3e-4 * min(1, (i + 1) / 20) * (0.1 + 0.45 * (1 + math.cos(math.pi * i / self.steps)))
        o = {"run_id": "planted", "step": i + 1, "loss": loss, "grad_norm": 1 + 0.3 * r.random(), "lr": lr, "tokens": 4096 * (i + 1),
             "tokens_per_s": 4096 / step_s, "step_s": step_s, **at, "comm_tensor_s": 0.0, "comm_weights_s": 0.0, "comm_other_s": 1e-5,
             "mfu": 0.42, "peak_bytes": 1e9, "rss_bytes": 1.2e9}
        o.update(self.more)
        o.update(more)
        self.lines.append(o)
        return o

    def curve(self, i):
        """A falling loss with the noise of batches."""
        return 2 + 6 * math.exp(-i / (self.steps / 6)) + 0.05 * self.random.gauss(0, 1)

    def plain(self, **by_step):
        for i in range(self.steps):
            self.line(i, self.curve(i), **{k: f(i) for k, f in by_step.items()})
        return self

    def details(self, slow=None, factor=1.0, every=10):
        for o in self.lines[every - 1 :: every]:
            c = [0.1 * self.random.uniform(0.95, 1.05) for _ in range(self.ranks)]
            if slow is not None:
                c[slow] *= factor
            o["details"] = {"steps": every, "ranks": {"compute_s": c}}
        return self

    def evaluations(self, curve, every=30):
        for i in range(every, self.steps + 1, every):
            at = next(k for k, o in enumerate(self.lines) if o["step"] == i and "loss" in o)
            self.lines.insert(at + 1, {"run_id": "planted", "step": i, "eval_loss": curve(i), "eval_s": 0.1})
        return self


def autocorrelated(seed):
    r, walk = Run(seed, 400), 0.0
    for i in range(r.steps):
        walk = 0.93 * walk + 0.1 * r.random.gauss(0, 1)
        r.line(i, 2 + 6 * math.exp(-i / 60) + walk)
    return r


def diverging(seed):
    r = Run(seed)
    for i in range(r.steps):
        r.line(i, r.curve(i) if i < 150 else 2.5 + 5 * min(1, (i - 150) / 60) + 0.3 * r.random.random())
    return r


def doubled(seed):
    r = Run(seed)
    losses = [5 + 0.05 * r.random.gauss(0, 1) for _ in range(60)]
    for i in range(r.steps):
        r.line(i, losses[i % 60])
    return r


def changed(seed):
    r = Run(seed).plain()
    for i, o in enumerate(r.lines):
        o["tokens"] = 4096 * min(i + 1, 120) + 2048 * max(0, i + 1 - 120)
    return r


def not_finite(seed):
    r = Run(seed).plain()
    for i in (200, 201):
        r.lines[i].update(loss=None, grad_norm=None, skipped=True, why="nan")
    return r


def overflowing(seed):
    r = Run(seed, loss_scale=65536.0).plain()
    for o in r.lines[::8]:
        o.update(grad_norm=None, skipped=True)
    return r


def saving(seed):
    r = Run(seed).plain()
    for o in r.lines[9::10]:
        o["checkpoint_s"] = 0.5
        o["step_s"] += 0.5
    return r


def spiking(seed):
    r = Run(seed).plain()
    for i in (90, 140, 141, 230):
        r.lines[i]["grad_norm"] = 40.0
    return r


def restarted(seed):
    r = Run(seed).plain()
    del r.lines[150:170]
    return r


def done_again(seed, steps=300, died=250, came_back=120, other=None):
    """A run that died and was resumed from an older step: repeated steps have identical losses but other
    times. other: a run id for the part before, as if it were another run."""
    r = Run(seed, steps).plain().evaluations(lambda i: 2.1 + 6 * math.exp(-i / 40))
    before = [dict(o) for o in r.lines if o["step"] <= died]
    for o in before:
        if other:
            o["run_id"] = other
        if "step_s" in o and o["step"] > came_back:
            o["data_s"] = o["step_s"] = 0.3
    r.lines = before + [o for o in r.lines if o["step"] > came_back]
    return r


def rate(seed):
    r = Run(seed).plain()
    for o in r.lines[150:]:
        o["lr"] *= 4
    return r


FAULTS = {
    "slow-data": ("data-bound", lambda: Run(1, parts={"data_s": 0.06}).plain()),
    "slow-network": ("communication-bound", lambda: Run(2, parts={"comm_grads_s": 0.12}).plain()),
    "few-microbatches": ("pipeline-bubble", lambda: Run(3, parts={"comm_pipeline_s": 0.08}).plain()),
    "slow-disk": ("slow-checkpoints", lambda: saving(4)),
    "tiny-microbatch": ("low-mfu", lambda: Run(5, mfu=0.03).plain()),
    "hot-machine": ("slows-down", lambda: Run(6).plain(step_s=lambda i: 0.11 * (1 if i < 150 else 1.6))),
    "noisy-machine": ("uneven-steps", lambda: Run(7).plain(step_s=lambda i: 0.11 * (5 if i % 10 == 3 else 1))),
    "slow-rank": ("straggler", lambda: Run(8).plain().details(slow=2, factor=1.6)),
    "nan": ("not-finite", lambda: not_finite(9)),
    "fp16": ("overflow", lambda: overflowing(10)),
    "high-lr": ("diverges", lambda: diverging(11)),
    "zero-lr": ("learns-nothing", lambda: (lambda r: ([r.line(i, 8 + 0.05 * r.random.gauss(0, 1)) for i in range(300)], r)[1])(Run(12))),
    "bad-samples": ("gradient-spikes", lambda: spiking(13)),
    "no-shuffle": ("not-shuffled", lambda: autocorrelated(14)),
    "same-data": ("learns-nothing repeated-samples", lambda: doubled(15)),
    "small-data": ("overfits", lambda: Run(16).plain().evaluations(lambda i: 2.5 + 4 * math.exp(-i / 40) + max(0, i - 120) * 0.004)),
    "batch-on-resume": ("batch-changed", lambda: changed(17)),
    "schedule-on-resume": ("rate-jumps", lambda: rate(18)),
    "lost-lines": ("steps-missing", lambda: restarted(19)),
    "another-run": ("data-bound repeated-samples steps-missing uneven-steps", lambda: done_again(22, other="another")),
    "leak": ("memory-grows", lambda: Run(20).plain(rss_bytes=lambda i: 1e9 * (1 + i / 300))),
    "router": ("experts-uneven", lambda: Run(21, expert_largest_load=6.5).plain()),
    "healthy": ("-", lambda: Run(31).plain().details()),
    "healthy-short": ("-", lambda: Run(32, 20).plain()),
    "healthy-resumed": ("-", lambda: done_again(37)),
    "healthy-resumed-early": ("-", lambda: done_again(38, 400, 390, 0)),
    "healthy-pipeline": ("-", lambda: Run(33, 500, parts={"comm_pipeline_s": 0.02, "comm_grads_s": 0.02}).plain().details()
                         .evaluations(lambda i: 2.1 + 6 * math.exp(-i / 80))),
    "healthy-fp16": ("-", lambda: (lambda r: ([o.update(grad_norm=None, skipped=True) for o in (r.lines[0], r.lines[1], r.lines[250])], r)[1])
                     (Run(34, 400, loss_scale=32768.0).plain())),
    "healthy-mixture": ("-", lambda: Run(35, 1000, expert_largest_load=1.6, mfu=0.31).plain()),
    "healthy-converged": ("-", lambda: (lambda r: ([r.line(i, 2.3 + 0.4 * math.exp(-i / 30) + 0.05 * r.random.gauss(0, 1)) for i in range(600)], r)[1])(Run(36, 600))),
}

if len(sys.argv) < 3:
    for name, (fault, _) in FAULTS.items():
        print(name, fault)
else:
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        for o in FAULTS[sys.argv[1]][1]().lines:
            f.write(json.dumps(o) + "\n")
# SPDX-License-Identifier: Apache-2.0
