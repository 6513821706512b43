#!/usr/bin/env python3
"""Counts failed requests while every server and the router itself are restarted, one after the other.
  restart.py DT-ROUTE [REQUESTS [CONNECTIONS]]
Four mock servers (tests/cli/route-mock.py) are killed without warning and started again, repeatedly; in between, the router
hands over to a new process (SIGUSR2). A client opens a new connection only if told that the old one would close, or after an
error. Defaults: 20000 requests, 8 connections. Prints JSON."""
import asyncio
import json
import os
import signal
import subprocess
import sys
import time

if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
    asked = sys.argv[1:2] in (["-h"], ["--help"])
    print(__doc__, file=sys.stdout if asked else sys.stderr)
    sys.exit(0 if asked else 2)

ROUTE = sys.argv[1]
WANT = int(sys.argv[2]) if len(sys.argv) > 2 else 20000
CLIENTS = int(sys.argv[3]) if len(sys.argv) > 3 else 8
MOCK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/cli/route-mock.py")
BODY = b'{"model":"m","prompt":"x"}'
ASK = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
left, failed, kills, handovers = WANT, {}, 0, 0


def mock(port):
    p = subprocess.Popen([sys.executable, MOCK, "--port", str(port)], stdout=subprocess.PIPE, text=True)
    return p, int(p.stdout.readline().rsplit(":", 1)[1])


async def client(port):
    global left
    r = w = None
    while left > 0:
        left -= 1
        try:
            if w is None:
                r, w = await asyncio.open_connection("127.0.0.1", port)
            w.write(ASK)
            head = (await r.readuntil(b"\r\n\r\n")).lower()
            status = head.split()[1].decode()
            await r.readexactly(int(head.split(b"content-length:")[1].split()[0]))
            if status != "200":
                failed[status] = failed.get(status, 0) + 1
            if b"connection: close" in head:
                w.close()
                w = None
        except (OSError, asyncio.IncompleteReadError) as e:
            failed[type(e).__name__] = failed.get(type(e).__name__, 0) + 1
            w = None


async def restarts(servers, router):
    global kills, handovers
    at = 0
    while left > 0:
        await asyncio.sleep(0.7)
        p, port = servers[at % 4]
        p.kill()
        p.wait()
        kills += 1
        await asyncio.sleep(0.3)
        servers[at % 4] = mock(port)
        at += 1
        if at % 3 == 0:
            os.kill(router["pid"], signal.SIGUSR2)
            handovers += 1
            for _ in range(100):
                await asyncio.sleep(0.05)
                lines = open(router["log"]).read().split("takes over")
                if len(lines) > handovers:
                    router["pid"] = int(lines[handovers - 1].rsplit("process", 1)[1])
                    break


async def main():
    if not os.access(ROUTE, os.X_OK):
        sys.exit(f"restart.py: there is no program '{ROUTE}'")
    servers, router = [mock(0) for _ in range(4)], {}
    log = "/tmp/route-restart-%d.log" % os.getpid()
    try:
        p = subprocess.Popen([ROUTE, "--port", "0", "--policy", "least"] + [f"127.0.0.1:{s[1]}" for s in servers],
                             stdout=subprocess.PIPE, stderr=open(log, "w"), text=True)
        router.update(pid=p.pid, log=log)
        url = p.stdout.readline()
        if not url:
            sys.exit("restart.py: the router did not start: " + open(log).read().strip())
        await asyncio.sleep(1)
        begun = time.time()
        port = int(url.rsplit(":", 1)[1])
        await asyncio.gather(restarts(servers, router), *[client(port) for _ in range(CLIENTS)])
        print(json.dumps({"requests": WANT, "failed": sum(failed.values()), "how": failed, "servers_killed": kills,
                          "routers_replaced": handovers, "seconds": round(time.time() - begun, 1)}))
    finally:
        for s in servers:
            s[0].kill()
        if router:
            os.kill(router["pid"], signal.SIGKILL)
            os.unlink(log)


asyncio.run(main())
# SPDX-License-Identifier: Apache-2.0
