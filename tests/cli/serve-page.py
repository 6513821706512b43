"""serve-page.py URL PID KEYED-URL KEY [PICTURES]: uses dt-serve's page in a browser as a person would.
PICTURES: a folder for screenshots at two widths, light and dark."""
import json
import os
import signal
import sys
import urllib.request

from browser import Browser

url, pid, keyed, key = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
pictures = sys.argv[5] if len(sys.argv) > 5 else None
ANSWER = "chat.turns.at(-1)"


def post(route, body):
    r = urllib.request.Request(url + route, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(r))


def equal(got, want, what):
    assert got == want, f"{what}: {got!r}, not {want!r}"


def ask(b, text):
    n = b.js("chat.turns.length")
    b.click("#say")
    b.type(text)
    b.key("Enter")
    b.until(f"chat.turns.length === {n + 2} && !running")


def shot(b, name):
    if pictures:
        b.screenshot(os.path.join(pictures, name + ".png"))


def chat(b):
    """An answer is streamed and equals the API's answer with the current settings and system prompt."""
    b.open(url + "/")
    b.until("model === 'tiny'")
    b.key("s", "KeyS", 1)
    b.click("#system")
    b.type("Be brief.")
    for name, value in (("temperature", "0"), ("max_tokens", "40"), ("stop", "zq")):
        b.click(f"[data-set={name}]")
        b.type(value)
    b.key("Escape")
    ask(b, "Hello")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    want = post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 40, "stop": "zq"})
    equal(b.js(ANSWER + ".text"), want["choices"][0]["message"]["content"], "the answer")
    equal(b.js(ANSWER + ".tokens"), want["usage"]["completion_tokens"], "its tokens")
    shown = b.js("document.querySelector('#log').innerText")
    assert f"{want['usage']['completion_tokens']} token" in shown, "the count is not shown: " + shown
    shot(b, "chat")
    messages += [want["choices"][0]["message"], {"role": "user", "content": "And then?"}]
    ask(b, "And then?")
    want = post("/v1/chat/completions", {"messages": [{k: m[k] for k in ("role", "content")} for m in messages],
                                         "temperature": 0, "max_tokens": 40, "stop": "zq"})
    equal(b.js(ANSWER + ".text"), want["choices"][0]["message"]["content"], "the second answer")


def stop(b):
    """Escape ends an answer, on the page at once and in the server."""
    os.kill(pid, signal.SIGSTOP)
    try:
        b.click("#say")
        b.type("Go on")
        b.key("Enter")
        b.until("running && document.querySelector('#send').innerText === 'Stop'")
        b.key("Escape")
        b.until("!running")
    finally:
        os.kill(pid, signal.SIGCONT)
    equal(b.js(ANSWER + ".finish"), "stopped", "a stopped answer ends")
    b.key("l", "KeyL", 1)
    b.until("document.querySelector('#facts').innerText.includes('Running') && !document.querySelector('#none').hidden")
    shot(b, "scheduler")
    b.key("Escape")


def history(b):
    """The conversation survives a reload, can be edited, and a new conversation does not change it."""
    turns = b.js("JSON.stringify(chat.turns)")
    b.open(url + "/")
    b.until("model === 'tiny'")
    equal(b.js("JSON.stringify(chat.turns)"), turns, "the conversation after a reload")
    equal(b.js("document.querySelectorAll('#log .turn').length"), len(json.loads(turns)), "turns shown")
    b.key("n", "KeyN", 1)
    equal(b.js("chat.turns.length"), 0, "turns of a new conversation")
    b.click("#list li:nth-child(2) button")
    b.key("ArrowUp")
    equal(b.js("document.querySelector('#say').value"), "Go on", "the message to be changed")
    b.click("#list li.now button:last-child")
    equal(b.js("chats.filter(c => c.turns.length).length"), 0, "conversations after the only one is deleted")


def plain(b):
    """Plain completion mode continues the text."""
    b.key("s", "KeyS", 1)
    b.click("#plain")
    equal(b.js("chat.plain"), True, "plain, once ticked")
    equal(b.js("document.querySelector('[data-set=max_tokens]').placeholder"), "16", "limit of a plain completion")
    b.key("Escape")
    ask(b, "Once upon")
    want = post("/v1/completions", {"prompt": "Once upon", "temperature": 0, "max_tokens": 40, "stop": "zq"})
    equal(b.js(ANSWER + ".text"), want["choices"][0]["text"], "the continuation")


def hostile(b):
    """Markup in a model's output does not become an element, and the content security policy blocks
    scripts."""
    b.js("""(() => { const e = document.createElement('div');
        markdown('# <img src=x onerror=alert(1)>\\n\\n- <script>x</scr' + 'ipt>\\n\\n[a](javascript:alert(1)) **<b id=q>**\\n\\n```\\n<i>\\n```', e);
        e.id = 'trial'; document.body.append(e); })()""")
    equal(b.js("document.querySelectorAll('#trial img, #trial script, #trial b, #trial i, #trial a').length"), 0, "foreign elements")
    equal(b.js("document.querySelectorAll('#trial h1, #trial li, #trial pre, #trial strong').length"), 4, "elements of Markdown")
    b.js("document.querySelector('#trial').remove()")


def asks_for_key(b):
    b.open(keyed + "/")
    b.until("!document.querySelector('#settings').hidden && document.activeElement.id === 'key'")
    b.type(key)
    b.key("Tab")
    b.until("model === 'tiny'")
    equal(b.js("localStorage.getItem('dt.key')"), '""', "a key that was not to be kept")
    b.key("Escape")
    ask(b, "Hello")
    assert b.js(ANSWER + ".text"), "no answer with a key"


def narrow(b, name):
    b.open(url + "/")
    b.until("model === 'tiny'")
    for panel in ("settings", "live"):
        b.click("#to-" + panel)
        equal(b.js("document.documentElement.scrollWidth <= innerWidth"), True, "the width fits with " + panel)
        shot(b, f"{name}-{panel}")
        b.click(f"#{panel} [data-close]")
    b.click("#menu")
    b.click("#new")
    ask(b, "Hello")
    equal(b.js("document.documentElement.scrollWidth <= innerWidth"), True, "the width fits")
    shot(b, name)


with Browser() as b:
    for part in (chat, stop, history, plain, hostile):
        part(b)
    equal(b.complaints(), [], "errors on the page")
    asks_for_key(b)
    equal([c for c in b.complaints() if "401" not in c], [], "errors on the page with a key")
with Browser(width=390, height=760, phone=True, dark=True) as b:
    narrow(b, "phone-dark")
    equal(b.js("document.documentElement.classList.contains('dark')"), True, "dark as the system")
    b.click("#theme")
    equal(b.js("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)", "light, once chosen")
    equal(b.complaints(), [], "errors on the phone")
print("ok")
# SPDX-License-Identifier: Apache-2.0
