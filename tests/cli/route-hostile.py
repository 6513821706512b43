#!/usr/bin/env python3
"""route-hostile.py URL: hostile clients of dt-route. Prints a line for every wrong behaviour and then exits
with 1. The router must serve other clients meanwhile and hold no resources afterwards."""
import json
import re
import socket
import sys
import threading
import time
import urllib.request

url = sys.argv[1]
address = (lambda m: (m[1], int(m[2])))(re.match(r"http://(.*):(\d+)", url))
body = b'{"model":"m","prompt":"x"}'
problems = []


def exchange(raw, seconds=20):
    """Returns all that is received until the router closes; b"" on a reset, None if it does not close in
    time."""
    data = b""
    try:
        with socket.create_connection(address, seconds) as s:
            s.sendall(raw)
            while got := s.recv(1 << 16):
                data += got
    except TimeoutError:
        return None
    except OSError:
        pass
    return data


def want(name, raw, *statuses):
    data = exchange(raw)
    found = re.findall(rb"HTTP/1\.1 (\d+) ", data or b"")
    if [int(s) for s in found] != list(statuses):
        problems.append(f"{name}: {found}, want {statuses}: {data[:200] if data is not None else 'it does not close'}")


def post(*headers, content=body, version="1.1"):
    return b"POST /v1/completions HTTP/%s\r\n%s\r\n" % (version.encode(), b"".join(h + b"\r\n" for h in headers)) + content


H, L = b"Host: localhost", b"Content-Length: %d" % len(body)
smuggled = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
want("as it should be", post(H, L, b"Connection: close"), 200)
want("two in one", post(H, L) + post(H, L, b"Connection: close"), 200, 200)
want("chunked", post(H, b"Transfer-Encoding: chunked", b"Connection: close", content=b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)), 200)
for version, header, said in ("1.0", b"keep-alive", b"keep-alive"), ("1.0", b"x", b"close"), ("1.1", b"keep-alive", None):
    # a client of HTTP/1.0 waits for the end of the connection unless it is told that it stays open
    data = exchange(post(H, L, b"Connection: " + header, version=version) + post(H, L, b"Connection: close"))
    got = re.findall(rb"Connection: (\S+)", data)
    if got != [s for s in (said, b"close") if s][: 1 if said == b"close" else 2]:
        problems.append(f"HTTP/{version} with Connection: {header}: {got}")
for form in (b"Content-Length: 9437184", b"Transfer-Encoding: chunked"):
    data = exchange(post(H, form, content=b"900000\r\n" + bytes(9437184)))
    if b"413 Content Too Large" not in data or b'"code":"body_too_large"' not in data:
        problems.append(f"a body that is too large, {form}: {data[:200]}")
want("CL and TE", post(H, L, b"Transfer-Encoding: chunked", content=b"0\r\n\r\n" + smuggled), 400)
want("TE and CL", post(H, b"Transfer-Encoding: chunked", L, content=b"0\r\n\r\n" + smuggled), 400)
want("two lengths", post(H, L, b"Content-Length: 3", content=body + smuggled), 400)
want("TE hidden", post(H, L, b"Transfer-Encoding : chunked", content=body + smuggled), 400)
want("TE twice", post(H, b"Transfer-Encoding: chunked, identity", content=b"0\r\n\r\n" + smuggled), 400)
want("TE of 1.0", post(H, b"Transfer-Encoding: chunked", content=b"0\r\n\r\n" + smuggled, version="1.0"), 400)
want("folded", post(H, b"X: a", b" b", L), 400)
want("bare newline", post(H, L, b"X: a\nTransfer-Encoding: chunked"), 400)
want("NUL", post(H, L, b"X: a\0b"), 400)
want("no host", post(L), 400)
want("body of a GET", b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 43\r\n\r\n" + smuggled, 400)
want("body of POST /health", b"POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(smuggled) + smuggled, 405)
# the error says itself that the connection ends, and has a body also after a HEAD
data = exchange(b"POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello")
if b"\r\nConnection: close\r\n" not in data:
    problems.append(f"a body that is not read: {data[:200]}")
data = exchange(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\nGARBAGE\r\n\r\n")
if not data.endswith(b"}"):
    problems.append(f"an error after a HEAD: {data[:400]}")
want("bad chunk", post(H, b"Transfer-Encoding: chunked", content=b"zz\r\n"), 400)
want("1 MiB of headers", post(H, *[b"X-%d: %s" % (i, b"y" * 1000) for i in range(1000)], L), 431)
want("a header of 1 MiB", post(H, b"X: " + b"y" * (1 << 20), L), 431)
want("1 MiB of path", b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431)
want("too many headers", post(H, *[b"X: y"] * 200, L), 431)
want("body too large", post(H, b"Content-Length: 99999999999"), 413)
want("chunks too large", post(H, b"Transfer-Encoding: chunked", content=b"100000\r\n" + b"x" * (1 << 20) + b"\r\n" +
                              b"fffffff\r\n" + b"x" * (8 << 20)), 413)
want("a foreign name", post(b"Host: evil.example", L), 403)
want("a page", post(H, b"Origin: https://evil.example", L), 403)
want("depth", post(H, b"Content-Length: 200013", b"Connection: close", content=b'{"prompt": ' + b"[" * 100000 + b"]" * 100000 + b"} "), 400)
want("no JSON", post(H, b"Content-Length: 4", b"Connection: close", content=b"\0\0\0\0"), 400)
want("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n\r\n", 400)


# slow loris: one byte now and then, and bodies that never arrive. head_timeout_s and body_timeout_s are 1.
def loris(first, name):
    begun = time.monotonic()
    with socket.create_connection(address) as s:
        s.settimeout(10)
        s.sendall(first)
        try:
            while time.monotonic() < begun + 8:
                s.sendall(b"x")
                time.sleep(0.1)
        except OSError:
            pass
    if time.monotonic() - begun > 5:
        problems.append(f"{name}: not cut off within 5 s")


threads = [threading.Thread(target=loris, args=a) for a in [(b"POST /", "slow head")] * 50 +
           [(post(H, b"Content-Length: 1000000", content=b""), "slow body")] * 50]
for t in threads:
    t.start()
time.sleep(0.3)
for i in range(20):
    begun = time.monotonic()
    with urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", body)) as r:
        if r.status != 200:
            problems.append("others are not served")
    if time.monotonic() - begun > 2:
        problems.append("others wait")
for t in threads:
    t.join()

# a client that does not read a long answer: the router pauses its server's stream, memory stays bounded, it
# is cut off
with socket.create_connection(address) as s:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.sendall(post(H, L.replace(b"%d" % len(body), b"%d" % len(body.replace(b'"x"', b'"flood"'))), content=body.replace(b'"x"', b'"flood"')))
    time.sleep(4)
time.sleep(0.5)
metrics = urllib.request.urlopen(url + "/metrics").read().decode()
for name in "running", "held_bytes":
    value = float(re.search(rf"^dt_route_{name} (\S+)", metrics, re.M)[1])
    if value:
        problems.append(f"{name} is {value} afterwards")
if any(float(v) for v in re.findall(r"^dt_route_server_running\S* (\S+)", metrics, re.M)):
    problems.append("a server has load afterwards")
print("\n".join(problems) or json.dumps("well"))
sys.exit(bool(problems))
# SPDX-License-Identifier: Apache-2.0
