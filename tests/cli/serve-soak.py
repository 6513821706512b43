#!/usr/bin/env python3
"""serve-soak.py URL PID N: sends N requests of random kinds, 30 % cancelled at random moments, 10 % with
changed bytes.

Prints a JSON object: how the requests ended, and the server's resident memory after each quarter.
"""
import asyncio
import json
import random
import re
import sys

host, port = re.match(r"http://(.*):(\d+)", sys.argv[1]).groups()
rng = random.Random(5)
ended = {}


def resident():
    with open(f"/proc/{sys.argv[2]}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))


def request(i, spoil):
    body = {"max_tokens": rng.randrange(1, 60), "stream": rng.random() < 0.5, "seed": i, "n": rng.choice([1, 1, 3])}
    text = "x" * rng.randrange(1, 90) if rng.random() < 0.6 else "shared prefix " * rng.randrange(1, 6) + str(i)
    chat = rng.random() < 0.4
    if chat:
        body["messages"] = [{"role": "user", "content": text}]
    else:
        body["prompt"] = text
    if rng.random() < 0.1:
        body["response_format"] = {"type": "json_object"}
    raw = bytearray(json.dumps(body).encode())
    for _ in range(rng.randrange(1, 6) if spoil else 0):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    path = "chat/completions" if chat else "completions"
    head = f"POST /v1/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(raw)}\r\n\r\n"
    return head.encode() + raw, body["stream"]


def judge(reply, stream):
    code = reply.split(b" ", 2)[1].decode()
    body = reply.split(b"\r\n\r\n", 1)[1]
    if code != "200":
        json.loads(body)["error"]["message"]
    elif b"text/event-stream" in reply[:400]:
        return code if b"data: [DONE]" in body else "cut short"
    else:
        json.loads(body)
    return code


async def one(i, places):
    async with places:
        kind = rng.random()
        raw, stream = request(i, kind < 0.1)
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(raw)
        try:
            if 0.1 <= kind < 0.4:
                how = "cancelled"
                await asyncio.wait_for(reader.read(1 << 20), rng.random() * 0.3)
            else:
                how = judge(await asyncio.wait_for(reader.read(-1), 100), stream)
        except asyncio.TimeoutError:
            how = "cancelled" if 0.1 <= kind < 0.4 else "stuck"
        except ConnectionError:
            how = "cancelled" if 0.1 <= kind < 0.4 else "connection lost"
        ended[how] = ended.get(how, 0) + 1
        writer.close()


async def main():
    places, sizes, n = asyncio.Semaphore(64), [], int(sys.argv[3]) // 4
    for part in range(4):
        await asyncio.gather(*[one(part * n + i, places) for i in range(n)])
        sizes.append(resident())
    print(json.dumps({"ended": ended, "rss_kib": sizes}))


asyncio.run(main())
# SPDX-License-Identifier: Apache-2.0
