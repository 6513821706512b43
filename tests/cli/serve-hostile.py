#!/usr/bin/env python3
"""serve-hostile.py URL PID idle|fuzz N: hostile clients, while well-behaved clients must be served.

idle: N connections that send nothing, a hundred of them a byte now and then. fuzz: N requests with changed
bytes. Prints a JSON object: how the well-behaved or the changed requests ended, and resident memory before
and after. Exit status 77: this process may not open that many files.
"""
import collections
import json
import random
import re
import resource
import socket
import sys
import time

host, port = re.match(r"http://(.*):(\d+)", sys.argv[1]).groups()
address = (host, int(port))
body = json.dumps({"prompt": "one of the others", "max_tokens": 5, "ignore_eos": True}).encode()
good = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"


def resident():
    with open(f"/proc/{sys.argv[2]}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))


def exchange(raw, seconds, more=True):
    """Returns the status of the answer, or what happened instead. more=False: then closes the sending
    direction."""
    data = b""
    try:
        with socket.create_connection(address, seconds) as s:
            s.sendall(raw)
            if not more:
                s.shutdown(socket.SHUT_WR)  # the server need not wait for more
            while True:
                got = s.recv(1 << 16)
                if not got:
                    break
                data += got
    except socket.timeout:
        return "stuck"
    except OSError:
        pass
    while re.match(rb"HTTP/1\.[01] 1\d\d [^\r]*\r\n\r\n", data):  # "100 Continue" may come first
        data = data[data.index(b"\r\n\r\n") + 4 :]
    status = re.match(rb"HTTP/1\.[01] (\d{3}) ", data)
    return status.group(1).decode() if status else "closed"


def whole(data=body):
    return good + b"Content-Length: %d\r\n\r\n" % len(data) + data


def idle(n):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < n + 100:
        sys.exit(77)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, n + 100), hard))
    held, ended, slowest = [], collections.Counter(), 0
    for i in range(n):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex(address)
        held.append(s)
        if i % 500 == 499:
            for slow in held[:100]:
                try:
                    slow.send(b"G" if i < 500 else b"E")
                except OSError:
                    pass  # cut off already, or not accepted yet
            t = time.monotonic()
            ended[exchange(whole(), 120)] += 1
            slowest = max(slowest, time.monotonic() - t)
    after = resident()
    for s in held:
        s.close()
    return {"ended": ended, "slowest_s": slowest, "rss_kib": after}


def spoil(rng):
    raw = bytearray(whole(body if rng.random() < 0.5 else rng.randbytes(rng.randrange(200))))
    kind = rng.random()
    if kind < 0.2:  # chunks of any declared length
        raw = bytearray(good + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % rng.randrange(1 << 40) + body + b"\r\n0\r\n\r\n")
    elif kind < 0.3:  # many or long headers
        raw = bytearray(good + b"X-%d: y\r\n" % rng.randrange(9) * rng.randrange(3000) + b"\r\n")
    elif kind < 0.4:
        raw = raw[: 1 + rng.randrange(len(raw) - 1)]
    elif kind < 0.5:  # two requests that disagree about the end of the first
        raw = bytearray(good + b"Content-Length: %d\r\nContent-Length: 5\r\n\r\n" % rng.randrange(-9, 1 << 33)) + raw
    for _ in range(rng.randrange(12)):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    return bytes(raw)


def fuzz(n):
    rng, ended = random.Random(11), collections.Counter()
    for _ in range(n):
        ended[exchange(spoil(rng), 120, False)] += 1
    return {"ended": ended, "rss_kib": resident()}


before = resident()
result = {"idle": idle, "fuzz": fuzz}[sys.argv[3]](int(sys.argv[4]))
result.update(rss_before_kib=before, afterwards=exchange(whole(), 120))
print(json.dumps(result))
# SPDX-License-Identifier: Apache-2.0
