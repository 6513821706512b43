#!/usr/bin/env python3
"""hold-thread.py PID: stops the thread of the process that uses most processor time (ptrace), prints "held",
and releases it at the end of standard input. Exit status 77: ptrace of another process is not permitted."""

import ctypes
import os
import sys
import time

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
libc.ptrace.restype = ctypes.c_long


def ticks(pid):
    """Returns the processor time of each thread, in clock ticks."""
    ret = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{tid}/stat", encoding="ascii") as f:
                field = f.read().rsplit(")", 1)[1].split()
        except OSError:  # the thread has ended
            continue
        ret[int(tid)] = int(field[11]) + int(field[12])
    return ret


def busiest(pid):
    while True:
        before = ticks(pid)
        time.sleep(0.3)
        used = {tid: n - before.get(tid, 0) for tid, n in ticks(pid).items()}
        tid = max(used, key=used.get)
        if used[tid] > 5:
            return tid


def main():
    tid = busiest(int(sys.argv[1]))
    if libc.ptrace(SEIZE, tid, 0, 0) != 0 or libc.ptrace(INTERRUPT, tid, 0, 0) != 0:
        print("threads cannot be held here:", os.strerror(ctypes.get_errno()))
        sys.exit(77)
    os.waitpid(tid, WALL)
    print("held", flush=True)
    sys.stdin.read()
    libc.ptrace(DETACH, tid, 0, 0)


main()
# SPDX-License-Identifier: Apache-2.0
