#!/usr/bin/env python3
"""A server that answers 503, as while it loads its model, to three requests; then it lists no model, and ends."""
import http.server


class Loading(http.server.BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self):
        Loading.asked += 1
        body, status = (b'{"error":{"code":"loading"}}', 503) if Loading.asked < 4 else (b'{"data":[]}', 200)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *rest):
        pass


s = http.server.HTTPServer(("127.0.0.1", 0), Loading)
s.timeout = 30
print(f"http://127.0.0.1:{s.server_port}", flush=True)
for _ in range(4):
    s.handle_request()
# SPDX-License-Identifier: Apache-2.0
