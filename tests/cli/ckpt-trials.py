#!/usr/bin/env python3
"""Injects random faults into saving and reading of checkpoints, one trial after the other, reproducible by
seed.

    ckpt-trials.py --bin DIR --help-bin DIR --work DIR [--seed N] [--trials N] [--only KIND]

Each trial begins with a root that holds a complete checkpoint of step 1, of a random layout. Then one fault
happens:

    kill      the process that saves step 2 (or step 1 again) is killed with SIGKILL at a random system call
    moment    the same at a random time
    stop      it is stopped at a random system call; readers read meanwhile; then it is continued or killed
    errno     one of its system calls, or all from then on, fail with EIO or ENOSPC
    enospc    it saves to a tmpfs of random size
    truncate, flip, swap, missing, alien, future   a complete step 2 is damaged: a file truncated, bits
    flipped, two
              shards exchanged, a file removed, the manifest of another checkpoint, a manifest of a newer
              format

Requirements: what is read equals what was saved under that step, bit by bit, or is refused with exit status 1
or 3; step 1 reads as before unless it was the step saved again; the checkpoint that root leads to is
complete; a refused command leaves nothing behind; the next save succeeds and removes leftovers. Prints one
JSON object; exits with 1 on any violation.
"""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

LAYOUTS = ["dp1", "dp2", "dp3.z1", "tp2", "pp3", "dp2.tp2", "dp2.tp2.z1", "dp2.z3", "dp2.pp3.z1"]
CALLS = {"pwrite": 60, "fsync": 9, "fallocate": 4, "rename": 2, "latest": 1}  # calls in a save, approximately
SEEDS = {1: 7, 2: 8, 3: 9}  # seed of the elements, by step
KINDS = ["kill", "moment", "stop", "errno", "enospc", "truncate", "flip", "swap", "missing", "alien", "future"]


class Violation(Exception):
    pass


class Trial:
    def __init__(self, opts, number, kind):
        self.rng = random.Random(f"{opts.seed} {number}")
        self.opts, self.kind, self.number = opts, kind, number
        self.tool, self.make = os.path.join(opts.bin, "dt-shard-ckpt"), os.path.join(opts.help_bin, "make-ckpt")
        self.root = os.path.join(opts.work, "root")
        self.outcome = "nothing"
        self.note = ""

    # ---- running programs ----

    def run(self, *argv, **kw):
        return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kw)

    def saver(self, root, step, layout, fault=None):
        words = [w for w in ["compress"] if self.rng.random() < 0.3]
        env = dict(os.environ)
        if fault:
            env.update(LD_PRELOAD=os.path.join(self.opts.help_bin, "fault.so"), DT_FAULT=fault)
        return [self.make, root, str(step), layout, str(SEEDS[step]), *words], env

    def save(self, root, step, layout, fault=None):
        argv, env = self.saver(root, step, layout, fault)
        return self.run(*argv, env=env)

    def truth(self, step):
        path = os.path.join(self.opts.work, f"truth-{step}")
        if not os.path.isdir(path):
            done = self.save(path, step, "dp1")
            if done.returncode:
                raise Violation(f"cannot save at all: {done.stdout}")
        return path

    def step(self, n):
        return os.path.join(self.root, f"step-{n:08d}")

    # ---- requirements ----

    def equal(self, path, step):
        """Returns True if path reads as the step was saved, False if it is refused."""
        done = self.run(self.tool, "diff", path, self.truth(step))
        if done.returncode == 0:
            return True
        if "differ" in done.stdout or "only in" in done.stdout or done.returncode not in (1, 3):
            raise Violation(f"'{path}' reads wrong ({done.returncode}): {done.stdout}")
        return False

    def must_equal(self, path, step):
        if not self.equal(path, step):
            raise Violation(f"'{path}' does not read: {self.run(self.tool, 'verify', path).stdout}")

    def whole_root(self, allowed, path=None):
        """Checks that the checkpoint that the root leads to is complete and equals what was saved; returns
        its step."""
        path = path or self.root
        done = self.run(self.tool, "ls", "--json", path)
        if done.returncode:
            raise Violation(f"the root leads to nothing: {done.stdout}")
        step = json.loads(done.stdout[done.stdout.index('{"'):])["step"]
        if step not in allowed:
            raise Violation(f"the root leads to step {step}")
        self.must_equal(path, step)
        done = self.run(self.tool, "verify", path)
        if done.returncode:
            raise Violation(f"the root is not whole: {done.stdout}")
        return step

    def goes_on(self):
        """Checks that the next save succeeds and leaves nothing of the failed one."""
        done = self.save(self.root, 3, self.rng.choice(LAYOUTS))
        if done.returncode:
            raise Violation(f"the next save fails: {done.stdout}")
        self.must_equal(self.root, 3)
        left = [e for e in os.listdir(self.root) if "tmp" in e]
        if left:
            raise Violation(f"left behind: {left}")

    # ---- saves with a fault ----

    def point(self, what):
        call = self.rng.choices(list(CALLS), [8, 4, 2, 2, 1])[0]
        plus = "+" if what.isdigit() and self.rng.random() < 0.5 else ""
        self.note = f"{call}:{self.rng.randint(1, CALLS[call])}{plus}:{what}"
        return self.note

    def in_trouble(self, step):
        """Runs a save with a fault; returns True if it reports success."""
        layout = self.rng.choice(LAYOUTS)
        if self.kind == "errno":
            done = self.save(self.root, step, layout, self.point(self.rng.choice(["5", "28"])))
            if done.returncode not in (0, 1):
                raise Violation(f"the saver ends with {done.returncode}: {done.stdout}")
            return done.returncode == 0
        argv, env = self.saver(self.root, step, layout, None if self.kind == "moment" else
                               self.point("stop" if self.kind == "stop" else "kill"))
        child = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if self.kind == "moment":
            time.sleep(self.rng.random() * self.opts.span)
            child.kill()
        if self.kind == "stop":
            if os.WIFSTOPPED(os.waitpid(child.pid, os.WUNTRACED)[1]):
                self.outcome = "stopped"
                self.whole_root({1, step})
                if self.rng.random() < 0.5:
                    child.kill()
                child.send_signal(signal.SIGCONT)
                return child.wait() == 0
            return True  # it ended before that call
        return child.wait() == 0

    def saving(self):
        step = 1 if self.rng.random() < 0.25 else 2  # 1: saves step 1 again, which replaces it
        saved = self.in_trouble(step)
        now = self.whole_root({step} if saved else {1, step})
        if self.outcome == "nothing":
            self.outcome = "saved" if saved else "interrupted"
        if step == 2:
            self.must_equal(self.step(1), 1)
            if os.path.isdir(self.step(2)):
                self.must_equal(self.step(2), 2)
            elif now == 2 or saved:
                raise Violation("step 2 is not there")
        self.goes_on()

    def enospc(self):
        """Saves to a small tmpfs in a mount namespace of its own. Script arguments: $1 root, $2 size in KiB,
        then commands."""
        argv, _ = self.saver(os.path.join(self.root, "run"), 2, self.rng.choice(LAYOUTS))
        first, _ = self.saver(os.path.join(self.root, "run"), 1, "dp1")
        need = self.opts.one_kib
        size = self.rng.randint(need + 16, 2 * need + 2 * need // 3)
        script = """
            mount -t tmpfs -o size=${2}k none "$1" || exit 77
            $3 || exit 78
            $4 >"$5" 2>&1; echo $? >"$5.rc"
            "$6" verify "$1/run" >>"$5" 2>&1 || exit 3
            "$6" diff "$1/run/step-00000001" "$7" >>"$5" 2>&1 || exit 4
            [ "$(cat "$5.rc")" != 0 ] || "$6" diff "$1/run" "$8" >>"$5" 2>&1 || exit 5
            [ "$(cat "$5.rc")" = 0 ] || [ ! -e "$1/run/step-00000002" ] || "$6" diff "$1/run/step-00000002" "$8" >>"$5" 2>&1 || exit 6
        """
        out = os.path.join(self.opts.work, "out")
        done = self.run("unshare", "-m", "sh", "-c", script, "sh", self.root, str(size), " ".join(first), " ".join(argv),
                        out, self.tool, self.truth(1), self.truth(2))
        self.note = f"{size} KiB"
        if done.returncode == 78:
            self.outcome = "no room for the first"
            return
        if done.returncode:
            raise Violation(f"exit {done.returncode}: {done.stdout}{open(out).read() if os.path.exists(out) else ''}")
        self.outcome = "saved" if open(out + ".rc").read().strip() == "0" else "interrupted"
        if self.outcome == "interrupted" and "No space left" not in open(out).read():
            raise Violation(f"a full disk is not named: {open(out).read()}")

    # ---- damage ----

    def files(self, step):
        return sorted(os.listdir(self.step(step)))

    def damage(self):
        rng, folder = self.rng, self.step(2)
        files = self.files(2)
        shards = [f for f in files if f.startswith("shard-")]
        name = rng.choice(files) if self.kind in ("truncate", "missing") else rng.choice(shards)
        path = os.path.join(folder, name)
        self.note = name
        if self.kind == "truncate":
            os.truncate(path, rng.randrange(os.path.getsize(path)))
        elif self.kind == "flip":
            name = rng.choice(shards * 3 + files)
            path, self.note = os.path.join(folder, name), name
            with open(path, "r+b") as f:
                for _ in range(rng.choice([1, 1, 8])):
                    at = rng.randrange(os.path.getsize(path))
                    f.seek(at)
                    byte = f.read(1)[0] ^ 1 << rng.randrange(8)
                    f.seek(at)
                    f.write(bytes([byte]))
        elif self.kind == "swap" and len(shards) > 1:
            a, b = (os.path.join(folder, s) for s in rng.sample(shards, 2))
            os.rename(a, folder + "/x")
            os.rename(b, a)
            os.rename(folder + "/x", b)
        elif self.kind == "swap":  # replace the only shard by that of step 1
            shutil.copy(os.path.join(self.step(1), "shard-00000.h5"), path)
        elif self.kind == "missing":
            os.unlink(path)
        elif self.kind == "alien":
            shutil.copy(os.path.join(self.step(1), "manifest.json"), os.path.join(folder, "manifest.json"))
        elif self.kind == "future":
            path = os.path.join(folder, "manifest.json")
            text = open(path).read()
            open(path, "w").write(text.replace('"version":1', f'"version":{rng.randint(2, 10**6)}', 1))

    def damaged(self):
        layout = self.rng.choice(LAYOUTS)
        done = self.save(self.root, 2, layout)
        if done.returncode:
            raise Violation(f"cannot save: {done.stdout}")
        self.damage()
        verdict = self.run(self.tool, "verify", self.step(2)).returncode
        if verdict not in (0, 1, 3):
            raise Violation(f"verify ends with {verdict}")
        if self.kind == "alien":  # the folder now holds step 1's manifest
            reads = False
            if self.equal(self.step(2), 1) and verdict != 0:
                raise Violation("reads, but verify says no")
        else:
            reads = self.equal(self.step(2), 2)
        self.outcome = "refused" if not reads else "harmless"
        if not reads and verdict == 0 and self.kind != "alien":
            raise Violation("verify finds nothing, but it does not read")
        if self.kind in ("truncate", "missing", "swap", "future") and verdict == 0:
            raise Violation("verify finds nothing")
        if self.kind == "future" and verdict != 1:
            raise Violation("a newer format is not a failure but an answer")
        # a resharded copy is correct, or resharding is refused and leaves nothing
        made = os.path.join(self.opts.work, "made")
        done = self.run(self.tool, "reshard", "--layout", self.rng.choice(LAYOUTS), self.step(2), made)
        if done.returncode == 0 and self.kind != "alien":
            self.must_equal(made, 2)
        elif done.returncode not in (0, 1, 3):
            raise Violation(f"reshard ends with {done.returncode}")
        elif done.returncode and os.path.isdir(made) and os.listdir(made):
            raise Violation(f"reshard leaves {os.listdir(made)}")
        shutil.rmtree(made, ignore_errors=True)
        self.must_equal(self.step(1), 1)
        # the root leads to a correct checkpoint, or to one that is refused when it is read
        done = self.run(self.tool, "ls", "--json", self.root)
        if done.returncode not in (0, 3):
            raise Violation(f"the root leads nowhere: {done.stdout}")
        self.goes_on()

    def go(self):
        shutil.rmtree(self.root, ignore_errors=True)
        os.makedirs(self.root)
        if self.kind == "enospc":
            return self.enospc()
        done = self.save(self.root, 1, self.rng.choice(LAYOUTS))
        if done.returncode:
            raise Violation(f"cannot save: {done.stdout}")
        return self.saving() if self.kind in KINDS[:4] else self.damaged()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--bin", required=True)
    ap.add_argument("--help-bin", required=True)
    ap.add_argument("--work", required=True)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--trials", type=int, default=44)
    ap.add_argument("--only", choices=KINDS)
    opts = ap.parse_args()
    os.makedirs(opts.work, exist_ok=True)
    kinds = [opts.only] if opts.only else KINDS
    probe = Trial(opts, -1, "errno")
    t0 = time.monotonic()
    path = probe.truth(1)
    opts.span = 1.3 * (time.monotonic() - t0)
    opts.one_kib = int(subprocess.check_output(["du", "-skL", os.path.join(path, "latest")]).split()[0])
    for step in (2, 3):
        probe.truth(step)
    mounts = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", opts.work], stderr=subprocess.DEVNULL)
    if mounts.returncode and "enospc" in kinds:
        print("ckpt-trials: no mounting here: no trials of a full disk", file=sys.stderr)
        kinds = [k for k in kinds if k != "enospc"]
    counts, bad = {}, 0
    for number in range(opts.trials):
        trial = Trial(opts, number, kinds[number % len(kinds)])
        try:
            trial.go()
        except Violation as why:
            bad += 1
            print(f"trial {number} of seed {opts.seed}, {trial.kind} {trial.note}: {why}", file=sys.stderr)
            trial.outcome = "VIOLATION"
        of_kind = counts.setdefault(trial.kind, {})
        of_kind[trial.outcome] = of_kind.get(trial.outcome, 0) + 1
    print(json.dumps({"schema": 1, "seed": opts.seed, "trials": opts.trials, "violations": bad, "outcomes": counts}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
# SPDX-License-Identifier: Apache-2.0
