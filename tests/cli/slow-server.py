"""A streaming server with known delays. It serves one request at a time and takes FIRST seconds for the first
piece and GAP for each further one. The prompt's length selects a failure: 1 token: status 503; 2 tokens: an
error in the stream; 3 tokens: the stream ends without [DONE]; 4 tokens: no
usage; 5 tokens: no stream. 6 tokens: a model that reasons before its last piece."""
import http.server
import json
import sys
import threading
import time

FIRST, GAP, PIECES = 0.05, 0.01, 5
alone = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply(200, {"data": [{"id": "slow"}]})

    def event(self, text):
        self.wfile.write(b"data: " + text.encode() + b"\n\n")
        self.wfile.flush()

    def do_POST(self):
        q = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            return self.reply(200, {"tokens": [1, 2, 3]})
        kind = len(q["prompt"])
        if kind == 1:
            return self.reply(503, {"error": {"message": "full"}})
        if kind == 5:
            return self.reply(200, {"choices": [{"text": "x"}]})
        with alone:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            try:
                for i in range(PIECES):
                    time.sleep(GAP if i else FIRST)
                    thought = {"delta": {"reasoning_content": "x"}}
                    self.event(json.dumps({"choices": [thought if kind == 6 and i < PIECES - 1 else {"text": "x"}]}))
                    if kind == 2:
                        return self.event(json.dumps({"error": {"message": "broke down"}}))
                if kind != 4:
                    self.event(json.dumps({"choices": [], "usage": {"prompt_tokens": kind, "completion_tokens": PIECES}}))
                if kind != 3:
                    self.event("[DONE]")
            except OSError:
                pass

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


server = Server(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
# SPDX-License-Identifier: Apache-2.0
