#!/usr/bin/env python3
"""A server for dt-rollout that misbehaves. Prints its URL. The first part of the path says how: plain not at all,
reversed (choices in another order, by their index), twice (an index occurs twice), few (a choice is missing),
json (no JSON), moved (a redirect), never (asks for a pause of a day); and, at the first request of each prompt only,
cut (the answer ends early), drop (it does not begin), busy (503), pause (429 with Retry-After: 1; before that
second has passed, any request is answered by 400)."""
import http.server
import json
import time

begun = {}


class Hostile(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, status, body, cut=0, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) - cut])

    def do_GET(self):
        self.reply(200, b'{"data": [{"id": "m"}]}')

    def do_POST(self):
        how = self.path.split("/")[1]
        q = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        first = begun.setdefault((how, q["prompt"]), now := time.monotonic())
        choices = [{"index": i, "text": "ab"[i % 2] * (i + 1), "token_ids": [97 + i % 2] * (i + 1), "finish_reason": "stop",
                    "prompt_token_ids": list(q["prompt"].encode()),
                    "logprobs": {"token_logprobs": [-0.5 - i] * (i + 1)}} for i in range(q["n"])]
        if how == "reversed":
            choices.reverse()
        if how == "twice":
            choices[1]["index"] = 0
        if how == "few":
            choices.pop()
        body = json.dumps({"choices": choices}).encode()
        if how == "json":
            self.reply(200, b'{"choices": [')
        elif how == "moved":
            self.reply(302, b"", Location="/plain/v1/completions")
        elif how == "never":
            self.reply(429, b"{}", Retry_After="86400")
        elif how == "pause" and now - first < 1:
            self.reply(*((429, b"{}") if first == now else (400, b"too early")), Retry_After="1")
        elif how == "busy" and first == now:
            self.reply(503, b"{}")
        elif how in ("cut", "drop") and first == now:
            if how == "cut":
                self.reply(200, body, cut=9)
            self.close_connection = True
        else:
            self.reply(200, body)

    def log_message(self, *rest):
        pass


s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
s.handle_error = lambda *rest: None  # the client has left
print(f"http://127.0.0.1:{s.server_port}", flush=True)
s.serve_forever()
# SPDX-License-Identifier: Apache-2.0
