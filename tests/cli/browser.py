"""Drives headless Chromium over its debugging pipe: NUL-terminated JSON on descriptors 3 and 4; needs no port
and no Python package."""
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find():
    """Returns Chromium's path, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return shutil.which(name)
    return None


class Browser:
    def __init__(self, width=1280, height=800, dark=False, phone=False, seconds=120):
        self.seconds, self.n, self.held, self.replies, self.events = seconds, 0, b"", {}, []
        self.home = tempfile.mkdtemp(prefix="browser-")
        to_read, self.to = os.pipe()
        self.at, at_write = os.pipe()
        # In the child the pipe ends must be descriptors 3 and 4. Duplicate them above 10 first, so that they
        # do not overwrite each other.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (to_read, at_write)]
        for fd in (to_read, at_write):
            os.close(fd)

        def settle():
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
             "--user-data-dir=" + self.home, "--remote-debugging-pipe", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=settle,
            close_fds=False, start_new_session=True)
        for fd in high:
            os.close(fd)
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")
        self.call("Log.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends the browser and the processes of its session."""
        for fd in (self.to, self.at):
            os.close(fd)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, 9)
        except ProcessLookupError:
            pass
        self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)

    def _read(self, end):
        while b"\0" not in self.held:
            if not select.select([self.at], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            got = os.read(self.at, 1 << 16)
            if not got:
                raise EOFError("the browser has ended")
            self.held += got
        one, self.held = self.held.split(b"\0", 1)
        m = json.loads(one)
        if "id" in m:
            self.replies[m["id"]] = m
        else:
            self.events.append(m)

    def call(self, method, **params):
        self.n += 1
        m = {"id": self.n, "method": method, "params": params}
        if self.session:
            m["sessionId"] = self.session
        os.write(self.to, json.dumps(m).encode() + b"\0")
        end = time.monotonic() + self.seconds
        while self.n not in self.replies:
            self._read(end)
        reply = self.replies.pop(self.n)
        if "error" in reply:
            raise RuntimeError(f"{method}: {reply['error']['message']}")
        return reply["result"]

    def js(self, text):
        """Returns the value of a JavaScript expression in the page; waits for a promise."""
        r = self.call("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in r:
            raise RuntimeError(r["exceptionDetails"].get("exception", {}).get("description", text))
        return r["result"].get("value")

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def until(self, text):
        """Waits until the expression is true."""
        end = time.monotonic() + self.seconds
        while not self.js(text):
            if time.monotonic() > end:
                raise TimeoutError("never: " + text + "; the page says: " + str(self.js("document.body.innerText"))[:2000])
            time.sleep(0.05)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, key, code=None, modifiers=0):
        """Presses a key; modifiers: 1 Alt, 2 Ctrl, 8 Shift."""
        known = {"Enter": 13, "Escape": 27, "ArrowUp": 38, "Tab": 9}
        more = {"text": "\r"} if key == "Enter" else {}
        at = dict(key=key, code=code or key, modifiers=modifiers, windowsVirtualKeyCode=known.get(key, 0))
        self.call("Input.dispatchKeyEvent", type="keyDown", **at, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", **at)

    def click(self, selector):
        """Clicks on the middle of an element with the mouse. An element that covers it gets the click."""
        at = self.js(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'nearest'}});"
                     "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)

    def complaints(self):
        """Returns the errors and content security policy violations of the page so far."""
        said = []
        for e in self.events:
            if e["method"] == "Runtime.exceptionThrown":
                said.append(e["params"]["exceptionDetails"].get("exception", {}).get("description", "exception"))
            elif e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] == "error":
                said.append(e["params"]["entry"]["text"])
        return said

    def screenshot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

# SPDX-License-Identifier: Apache-2.0
