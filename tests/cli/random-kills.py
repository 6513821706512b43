#!/usr/bin/env python3
"""Injects random faults into a run under dt-run: ranks, mpirun and dt-run itself are killed, ranks stopped,
hosts added and removed, the disk filled. The run must end with the parameters of an undisturbed run, to the
bit (--reproducible), must count no step twice and leave nothing behind.

random-kills.py BIN DATA WORKDIR STEPS SEED [elastic]    needs WORKDIR/plain, an undisturbed run of STEPS
steps

elastic: lost ranks are replaced by new processes while the others go on.
"""
import json
import os
import random
import signal
import subprocess
import sys
import time

bin_dir, data, work, steps, seed = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
elastic = sys.argv[6:] == ["elastic"]
rng = random.Random(seed)
os.chdir(work)
patience = float(os.environ.get("DT_KILLS_S", "180"))  # seconds without a new step: a busy machine has some
print(f"seed {seed}")


def lines(name):
    try:
        with open(name) as f:
            text = f.read()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.split("\n")[:-1] if line]


def events():
    return lines("events.jsonl")


def step():
    done = lines("m.jsonl")
    return max((e["step"] for e in done), default=0)


def start(at):
    """Starts dt-run; its job finds the disk full once, some steps after step `at`."""
    full = f"enospc:rank={rng.randrange(2)},step={at + rng.randrange(5, min(40, steps // 2))}"
    log = open("err", "a")
    return subprocess.Popen(
        [f"{bin_dir}/dt-run", "--events", "events.jsonl", "--ranks", "2:3", "--discover", "cat hosts", "--discover-every",
         "0.2", "--heartbeat-timeout", "4", "--tries", "50", *(["--replace"] if elastic else []), "--",
         f"{bin_dir}/dt-train", "--model", "gpt2-tiny", "--data", data, "--seq", "32", "--no-mfu", "--threads", "1", "--precision", "fp32", "--reproducible", "--global-batch", "12",
         "--microbatch", "1", "--steps", str(steps), "--save", "run", "--save-every", "4", "--keep", "3", "--metrics",
         "m.jsonl", "--comm-timeout", "60", "--inject", full, *(["--elastic", "dp"] if elastic else [])], stderr=log)


def hit(pid, sig):
    try:
        os.kill(pid, sig)
        return True
    except ProcessLookupError:
        return False


def parent(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return int(f.read().rsplit(")", 1)[1].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def is_mpirun(pid):
    try:
        with open(f"/proc/{pid}/comm") as f:
            return f.read().strip() in ("mpirun", "orterun", "mpiexec", "prterun")
    except (FileNotFoundError, ProcessLookupError):
        return False


def hosts(n):
    with open("hosts.new", "w") as f:
        f.write(f"localhost:{n}\n")
    os.rename("hosts.new", "hosts")


def one_fault(run):
    """Injects one fault into the job that is training; returns its name, or None if there was no target."""
    last = [e for e in events() if e["event"] in ("training", "ranks", "end")][-1:]
    if not last or last[0]["event"] == "end":
        return None
    kind = rng.choice(["rank", "rank", "rank", "first rank", "mpirun", "stop", "dt-run", "hosts"])
    ranks = last[0]["ranks"]
    if kind == "hosts":
        hosts(5 - last[0].get("to", len(ranks)))  # a stopped rank is listed until it is known to be lost
        return kind
    if kind == "dt-run":
        return kind if hit(run.pid, signal.SIGKILL) else None
    who = ranks[0 if kind == "first rank" else rng.randrange(len(ranks))]["pid"]
    above = parent(who)
    if not above:
        return None
    if kind == "mpirun":
        return kind if is_mpirun(above) and hit(above, signal.SIGKILL) else None
    return kind if hit(who, signal.SIGSTOP if kind == "stop" else signal.SIGKILL) else None


hosts(2)
run = start(0)
made, target = {}, rng.randrange(1, 12)
most, since = 0, time.time()
while True:
    now_at = step()
    if now_at > most:
        most, since = now_at, time.time()
    if time.time() - since > patience:
        run.terminate()
        sys.exit(f"no step in {patience:.0f} s: step {now_at} of {steps}, {made}")
    status = run.poll()
    if status == -signal.SIGKILL:
        run = start(now_at)
    elif status is not None:
        break
    if now_at >= target and target < steps - 5:
        kind = one_fault(run)
        if kind:
            made[kind] = made.get(kind, 0) + 1
            target = step() + rng.randrange(1, 12)
    time.sleep(0.02)
made["full disk"] = sum("No space left" in line for line in open("err"))
print(f"{sum(made.values())} faults: {made}")
problems = []
if status:
    problems.append(f"dt-run exits with {status}")
seen = events()
books = seen[-1]
parts = sum(books[k] for k in ("steps_s", "start_up_s", "data_s", "save_s", "restore_s", "redone_s", "recovery_s", "other_s"))
if abs(parts - books["wall_s"]) > 0.1 or books["steps"] > steps or books["other_s"] < -0.1:
    problems.append(f"books: {books}")
for job in {e["job"] for e in seen if e["event"] == "training"}:
    problems += [f"/dev/shm/{name} is left" for name in os.listdir("/dev/shm") if f".{job}." in name]
same = subprocess.run([f"{bin_dir}/dt-shard-ckpt", "diff", f"plain/step-{steps:08d}", f"run/step-{steps:08d}"],
                      capture_output=True, text=True)
if same.returncode:
    problems.append(f"other parameters than those of an undisturbed run: {same.stdout[-300:]}")
print(f"{len([e for e in seen if e['event'] == 'start'])} starts, goodput of the last dt-run {books['goodput']:.2f}")
sys.exit("\n".join(problems) if problems else 0)
# SPDX-License-Identifier: Apache-2.0
