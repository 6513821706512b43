"""A mock server of the OpenAI API for tests of dt-route, on asyncio; POST /mock sets its behaviour.
  route-mock.py [--name N] [--models a,b] [--host ADDRESS] [--port P] [--context N]
Prints its URL. Every answer names the server. GET /mock returns counters (requests, cancelled) and the last
headers and body. POST /mock sets: status (of answers; with times: of so many), retry_after, health and models (statuses of these routes), hints (whether an interim
answer precedes them), delay (seconds before the head),
hold (no head while it is set), tokens, gap (seconds between events), raw (bytes sent instead of an answer),
raw_endless (then x forever), raw_stalls (then nothing), die_after (events, then the connection is cut),
close (after each answer)."""
import argparse
import asyncio
import json

p = argparse.ArgumentParser()
p.add_argument("--name", default="a")
p.add_argument("--models", default="m")
p.add_argument("--host", default="127.0.0.1")
p.add_argument("--port", type=int, default=0)
p.add_argument("--key")
p.add_argument("--context", type=int, help="context length of the models")
args = p.parse_args()
length = {"max_model_len": args.context} if args.context else {}
state = dict(status=200, times=None, retry_after=None, health=200, models=200, hints=False, delay=0, hold=False, tokens=3, gap=0, raw=None, raw_endless=False, raw_stalls=False, die_after=None, close=False)
seen = dict(requests=0, cancelled=0, running=0, most=0, prompts=[], headers={}, body=None, path=None)


def reply(status, body, ctype="application/json", more=""):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (f"HTTP/1.1 {status} X\r\nContent-Type: {ctype}\r\nContent-Length: {len(body)}\r\n{more}\r\n").encode() + body


def usage(q):
    n = len(q.get("prompt") or json.dumps(q.get("messages", "")))
    return {"prompt_tokens": n, "completion_tokens": state["tokens"], "prompt_tokens_details": {"cached_tokens": 1}}


async def stream(w, q):
    w.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def event(o):
        s = b"data: " + (o if isinstance(o, bytes) else json.dumps(o).encode()) + b"\n\n"
        w.write(b"%x\r\n%s\r\n" % (len(s), s))
        await w.drain()

    for i in range(state["tokens"]):
        if state["die_after"] == i:
            w.transport.abort()
            return
        await event({"choices": [{"text": f"{args.name}{i} ", "delta": {"content": f"{args.name}{i} "}}]})
        await asyncio.sleep(state["gap"])
    if (q.get("stream_options") or {}).get("include_usage"):
        await event({"choices": [], "usage": usage(q)})
    await event(b"[DONE]")
    w.write(b"0\r\n\r\n")
    await w.drain()


async def complete(r, w, path, headers, body):
    try:
        q = json.loads(body)
    except (ValueError, RecursionError):
        w.write(reply(400, {"error": {"message": "no JSON"}}))
        return True
    seen.update(requests=seen["requests"] + 1, headers=headers, body=q, path=path, running=seen["running"] + 1)
    seen["most"] = max(seen["most"], seen["running"])
    seen["prompts"].append(str(q.get("prompt"))[:40])
    eof = asyncio.ensure_future(r.read(1))
    work = asyncio.ensure_future(answer(w, q))
    try:
        done, _ = await asyncio.wait({eof, work}, return_when=asyncio.FIRST_COMPLETED)
        if work not in done:
            work.cancel()
            seen["cancelled"] += 1
            return False
        work.result()
    except ConnectionError:
        seen["cancelled"] += 1
        return False
    finally:
        seen["running"] -= 1
        if not eof.done():
            eof.cancel()
        await asyncio.wait({eof})
        broken = not eof.cancelled() and (eof.exception() or True)
    return not broken


async def answer(w, q):
    await asyncio.sleep(state["delay"])
    while state["hold"]:
        await asyncio.sleep(0.01)
    if state["raw"] is not None:
        w.write(state["raw"].encode("latin1"))
        await w.drain()
        while state["raw_endless"]:
            w.write(b"x" * 65536)
            await w.drain()
        while state["raw_stalls"]:
            await asyncio.sleep(0.01)
        w.close()
    elif state["status"] != 200 and state["times"] != 0:
        state["times"] = state["times"] and state["times"] - 1
        more = f"Retry-After: {state['retry_after']}\r\n" if state["retry_after"] else ""
        w.write(reply(state["status"], {"error": {"message": "as wanted", "server": args.name}}, more=more))
    elif q.get("prompt") == "flood":
        w.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for _ in range(768):
            w.write(b"data: " + b"x" * 65536 + b"\n\n")
            await w.drain()
        w.close()
    elif q.get("stream"):
        await stream(w, q)
    elif state["die_after"] is not None:
        w.transport.abort()
    else:
        w.write(reply(200, {"server": args.name, "model": q.get("model"), "choices": [{"text": "x" * state["tokens"]}],
                            "usage": usage(q)}))
    await w.drain()


async def serve(r, w):
    try:
        while True:
            head = (await r.readuntil(b"\r\n\r\n")).decode("latin1").split("\r\n")
            method, path, _ = head[0].split(" ", 2)
            headers = {k.lower(): v.strip() for k, v in (h.split(":", 1) for h in head[1:] if h)}
            body = await r.readexactly(int(headers.get("content-length", 0)))
            if args.key and path != "/health" and headers.get("authorization") != "Bearer " + args.key:
                w.write(reply(401, {"error": {"message": "no key"}}))
            elif path == "/mock" and method == "POST":
                state.update(json.loads(body))
                w.write(reply(200, state))
            elif path == "/mock":
                w.write(reply(200, seen))
            elif path == "/health":
                w.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" if state["hints"] else b"")
                w.write(reply(state["health"], {}))
            elif path == "/v1/models":
                w.write(reply(state["models"], {"data": [{"id": m, **length} for m in args.models.split(",")]}))
            elif not await complete(r, w, path, headers, body) or state["close"]:
                break
            await w.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    w.close()


async def main():
    for tries in range(600):
        try:
            s = await asyncio.start_server(serve, args.host, args.port, limit=1 << 26)
            break
        except OSError:  # another process may hold the port for a moment
            if not args.port or tries == 599:
                raise
            await asyncio.sleep(0.1)
    print("http://%s:%d" % s.sockets[0].getsockname(), flush=True)
    await s.serve_forever()


asyncio.run(main())
# SPDX-License-Identifier: Apache-2.0
