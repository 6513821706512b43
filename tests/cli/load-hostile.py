"""A hostile server for dt-loadgen: the model's name in a request selects what it answers. Prints its URL. GET: a list of
one model, or what the path /NAME before it selects."""
import http.server
import json
import socket
import sys
import time


def event(value):
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def text(s):
    return event({"choices": [{"index": 0, "text": s}]})


def usage(prompt, completion):
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})


BIG = 256 << 20
ok, end, two = usage(4, 2), event(b"[DONE]"), text("a") + text("b")
streams = {
    "good": [two, ok, end],
    "crlf": [(two + ok + end).replace(b"\n", b"\r\n")],
    "comments": [b": hello\n\n", two, b"event: x\nid: 7\nretry: 5\n\n", ok, end],
    "no-json": [text("a"), event(b'{"choices": ['), ok, end],
    "number": [event(b"5"), ok, end],
    "deep": [event(b"[" * 100000), ok, end],
    "nul": [event(b"\0"), ok, end],
    "no-newline": [two, ok, b"data: [DONE]"],
    "negative-usage": [two, usage(-4, -2), end],
    "text-usage": [two, usage("4", "2"), end],
    "empty-usage": [two, event({"choices": [], "usage": {}}), end],
    "long-line": [b'data: {"choices": [{"text": "', b"x" * BIG, b'"}]}\n\n', ok, end],
    "long-comment": [(b": " + b"x" * 65534 + b"\n") * 16] * (BIG >> 20) + [two, ok, end],
    "long-answer": [text("x" * (1 << 20))] * (BIG >> 20) + [ok, end],
}
bodies = {
    "busy": (429, {"error": {"message": "slow down"}}, {"Retry-After": "1"}),
    "moved": (307, b"", {"Location": "/elsewhere"}),
    "silent": (503, b"", {}),
    "latin-1": (500, b"caf\xe9 is closed", {}),
    "control": (500, {"error": {"message": "\x1b[31mred\u009b0m " + "\u00e9" * 300}}, {}),
    "long-error": (500, b"e" * BIG, {}),
    "long-plain": (200, b"e" * BIG, {}),
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def head(self, status, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def body(self, status, value, headers):
        value = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.head(status, headers | {"Content-Length": str(len(value))})
        self.wfile.write(value)

    def chunks(self, pieces):
        self.head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        for piece in pieces:
            self.wfile.write(b"%x\r\n" % len(piece))
            self.wfile.write(piece)
            self.wfile.write(b"\r\n")

    def end(self):
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def answer(self, way):
        if way in streams:
            self.chunks(streams[way] + [b""])
        elif way in bodies:
            self.body(*bodies[way])
        elif way == "dies":
            self.chunks([two])
            self.end()
        elif way == "hangs":
            self.chunks([two])
            time.sleep(3600)
        elif way == "never":
            time.sleep(3600)
        elif way == "garbage":
            self.wfile.write(b"garbage\r\n\r\n")
            self.end()
        else:
            self.end()

    def do_GET(self):
        if self.path == "/v1/models":
            self.body(200, {"data": [{"id": "good"}]}, {})
        else:
            self.answer(self.path.split("/")[1])

    def do_POST(self):
        self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["model"])

    def log_message(self, *args):
        print(self.command, self.path, file=sys.stderr, flush=True)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args):
        pass  # clients leave


server = Server(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
# SPDX-License-Identifier: Apache-2.0
